"""Build the documentation site: `python -m tests.docs.site [FOLDER]`, as `make docs` does.

It needs no network. A link that leads nowhere ends it with an error; without the extra `docs` nothing is built.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import List

from tests.docs.site_reference import ROOT

__all__ = ["build_site", "can_build", "run"]


def can_build() -> bool:
    """Tell whether what builds the site is installed."""
    return all(importlib.util.find_spec(name) is not None for name in ("griffe", "material", "mkdocs"))


def build_site(folder: str) -> int:
    """Build the site into a folder; return the status of MkDocs."""
    # it advertises otherwise
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--site-dir", folder]
    return subprocess.run(words, cwd=ROOT, env=environment).returncode


def run(words: List[str]) -> int:
    """Build the site into the folder that is named, or say why not; return the status of the program."""
    folder = os.path.abspath(words[0] if words else "site")
    if not can_build():
        print("the site is not built: `pip install -e '.[docs]'` installs what builds it")  # noqa: T201 - it is a command
        return 0
    status = build_site(folder)
    if status == 0:
        print(f"the site is in {folder}; `python -m http.server --directory {folder}` shows it")  # noqa: T201
    return status


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
