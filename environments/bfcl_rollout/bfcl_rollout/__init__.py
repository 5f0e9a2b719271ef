"""The common rollout interface of the BFCL environments.

Importing this package imports nothing heavy: the worker process loads `bfcl_rollout.worker` and
`bfcl_rollout.records` on their own, and a process that holds verifiers as well forks three times slower.
"""

__version__ = "0.1.0"
