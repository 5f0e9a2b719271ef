#!/usr/bin/env sh
# Sourced by the other scripts: finds or installs uv, and syncs the workspace into .venv.
set -eu
cd "$(dirname "$0")/.."

# A pip configuration with local wheels serves uv as well.
if [ -n "${PIP_FIND_LINKS:-}" ] && [ -z "${UV_FIND_LINKS:-}" ]; then
    UV_FIND_LINKS=$(printf '%s' "$PIP_FIND_LINKS" | tr ' ' ',')
    export UV_FIND_LINKS
fi

if command -v uv >/dev/null 2>&1; then
    UV=uv
else
    UV=.tools/bin/uv
    if [ ! -x "$UV" ]; then
        for python in python3 python3.13 python3.12 python3.11; do
            if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
                "$python" -m venv .tools
                .tools/bin/python -m pip install --quiet uv
                break
            fi
        done
        [ -x "$UV" ] || { echo "setup: Python 3.11 or later with pip is needed" >&2; exit 2; }
    fi
fi

PATH="$PWD/.tools/bin:$PATH"
export PATH

# The interpreter that is there; nothing is downloaded but packages.
UV_PYTHON_DOWNLOADS=never "$UV" sync --quiet
