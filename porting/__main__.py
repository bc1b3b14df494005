# PYTHON_ARGCOMPLETE_OK
"""Run the `porting` command as `python -m porting`."""

from __future__ import annotations

from porting.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
