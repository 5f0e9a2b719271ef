#!/usr/bin/env sh
# Set up, then pass the tests. Arguments go to pytest, e.g. -m "not slow".
set -eu
. "$(dirname "$0")/setup.sh"
exec .venv/bin/pytest "$@"
