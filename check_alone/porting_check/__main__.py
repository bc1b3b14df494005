#!/usr/bin/env python3
"""Runs `porting check`, or `porting explain`, of the parts of porting that lie beside this file.

They are found before an installed porting, which stays as it is; nothing else of the two distributions has one name.
"""

from __future__ import annotations

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

from porting.cli.main import main as run_command  # noqa: E402


def main() -> int:
    """Run the command on the words that it was given."""
    words = sys.argv[1:]
    return run_command(words if words[:1] == ["explain"] else ["check", *words])


if __name__ == "__main__":
    sys.exit(main())
