"""The one kind of error a user can mend before a run."""


class SetupError(RuntimeError):
    """Something the run needs is missing or wrong. The message is one line and says what to do."""
