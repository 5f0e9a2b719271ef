#!/usr/bin/env sh
# Set up, then play one scenario of the memory benchmark on all three backends with the embedded model.
set -eu
. "$(dirname "$0")/setup.sh"
exec .venv/bin/vf-run bfcl-v4-memory -m scripted/recall --env.taskset.scenarios notetaker \
    --env.max-concurrent-agents 4 --no-push "$@"
