"""Records what a user may change until the next run: the program's files, its arguments, its environment."""

from __future__ import annotations

import functools
import linecache
import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping

from ..diagnostics import is_user_file

__all__ = ["list_user_files", "record_sources"]

# Limits of what is kept with an executable.
_MAX_FILE_BYTES = 256 << 10
_MAX_TOTAL_BYTES = 1 << 20
_MAX_FILES = 400
_MAX_WORDS = 1000
_MAX_WORD = 4096

_SUFFIXES = (".py", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt", ".conf", ".gin")
_SECRET = re.compile(r"token|password|passwd|secret|api[-_]?key|credential", re.IGNORECASE)
_HIDDEN = "***"
_VARIABLES = re.compile(
    r"(PORTING|POPTORCH|TORCHINDUCTOR|OMP|MKL|GOMP)_\w+|CXX|CXXFLAGS|ATEN_CPU_CAPABILITY|WORLD_SIZE|LOCAL_WORLD_SIZE"
)
_PACKAGES = re.compile(r"[\\/](site|dist)-packages[\\/]")
_LIBRARY_FOLDERS = tuple(
    os.path.join(os.path.abspath(folder), "")
    for name, folder in sysconfig.get_paths().items()
    if name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")
)


def record_sources(first: Iterable[str] = ()) -> Dict[str, Any]:
    """Record the files that the running program is made of, its command line and its environment, as plain values.

    Files are those of loaded modules that belong to no library, small files that the command line names, and `first`,
    which come first where not everything can be kept. What looks like a secret on the command line is left out.
    """
    modules, main = list_user_files(sys.modules), _find_main_file()
    words = [word.partition("=")[2] or word for word in sys.argv[1:_MAX_WORDS]]
    named = [os.path.abspath(word) for word in words if word.endswith(_SUFFIXES) and os.path.isfile(word)]
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""  # it was removed under the running program
    variables = {
        name: value[:_MAX_WORD]
        for name, value in sorted(os.environ.items())
        if _VARIABLES.fullmatch(name) and not _SECRET.search(name)
    }
    return {
        "program": main,
        "folder": folder,
        "arguments": _hide_secrets(sys.argv),
        "environment": variables,
        "files": _read_texts([*modules[:1], *filter(_is_own, first), *modules[1:], *named]),
    }


def list_user_files(modules: Mapping[str, Any]) -> List[str]:
    """Return the files of those modules that belong to no library, the main program's first, then in order of names."""
    main = _find_main_file()
    found = {}
    for name, module in list(modules.items()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or name == "__main__":
            continue
        # some modules that torch makes up call themselves a file of no folder
        if (os.path.isabs(file) or os.path.isfile(file)) and _is_own(file):
            found[os.path.abspath(file)] = name
    found.pop(main, None)
    others = sorted(found, key=lambda path: (found[path], path))
    return [main, *others] if main else others


def _find_main_file() -> str:
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(file) if isinstance(file, str) and _is_own(file) else ""


@functools.lru_cache(maxsize=8192)
def _is_own(file: str) -> bool:
    """Tell a file that a user wrote from those of libraries."""
    path = os.path.abspath(file)
    return not (_PACKAGES.search(path) or path.startswith(_LIBRARY_FOLDERS)) and is_user_file(file)


def _read_texts(paths: Iterable[str]) -> Dict[str, str]:
    """Read the files that there is room for; the lines of what was typed in are where tracebacks find them."""
    texts: Dict[str, str] = {}
    room = _MAX_TOTAL_BYTES
    for path in dict.fromkeys(paths):
        if len(texts) >= _MAX_FILES:
            break
        is_file = os.path.isfile(path)
        try:
            if is_file and os.path.getsize(path) > _MAX_FILE_BYTES:
                continue
            text = Path(path).read_text(encoding="utf-8") if is_file else "".join(linecache.getlines(path))
        except (OSError, ValueError):
            continue
        if (text or is_file) and len(text) <= min(room, _MAX_FILE_BYTES):
            texts[path] = text
            room -= len(text)
    return texts


def _hide_secrets(words: List[str]) -> List[str]:
    """Return the command line, without what looks like a secret."""
    shown = []
    hides_next = False
    for word in words[:_MAX_WORDS]:
        name, has_value, _value = word.partition("=")
        if hides_next and not word.startswith("-"):
            word = _HIDDEN
        elif has_value and _SECRET.search(name):
            word = f"{name}={_HIDDEN}"
        hides_next = word.startswith("-") and not has_value and _SECRET.search(word) is not None
        shown.append(word[:_MAX_WORD])
    return shown
