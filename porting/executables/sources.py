"""Records what a user may change until the next run: the program's files, its arguments, its environment."""

from __future__ import annotations

import functools
import linecache
import os
import re
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from ..diagnostics import is_user_file

__all__ = ["record_sources", "user_files"]

# Limits of what is kept with an executable.
_MAX_FILE_BYTES = 256 << 10
_MAX_TOTAL_BYTES = 1 << 20
_MAX_FILES = 400
_MAX_WORDS = 1000
_MAX_WORD = 4096

_SECRET = re.compile(r"token|password|passwd|secret|api[-_]?key|credential", re.IGNORECASE)
_HIDDEN = "***"
_VARIABLES = re.compile(
    r"(PORTING|POPTORCH|TORCHINDUCTOR|OMP|MKL|GOMP)_\w+|CXX|CXXFLAGS|ATEN_CPU_CAPABILITY|WORLD_SIZE|LOCAL_WORLD_SIZE"
)


def record_sources(first: Iterable[str] = ()) -> Dict[str, Any]:
    """Record the files that the running program is made of, its command line and its environment, as plain values.

    Files are those of loaded modules that belong to no library, small files that the command line names, and `first`,
    which come first where not everything can be kept. What looks like a secret on the command line is left out.
    """
    words = _hide_secrets(sys.argv)
    modules = user_files(sys.modules)
    paths = [path for path in first if _is_own(path)]
    texts = _read_texts([*modules[:1], *paths, *modules[1:], *_find_named_files(sys.argv)])
    return {
        "program": modules[0] if modules and _find_main_file() == modules[0] else "",
        "folder": _find_folder(),
        "arguments": words,
        "environment": _select_variables(os.environ),
        "files": texts,
    }


def _find_folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it was removed under the running program


def user_files(modules: Mapping[str, Any]) -> List[str]:
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


@functools.lru_cache(maxsize=1)
def _list_library_folders() -> Tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts") if name in paths]
    folders += [site.getusersitepackages()] if hasattr(site, "getusersitepackages") else []
    folders += site.getsitepackages() if hasattr(site, "getsitepackages") else []
    return tuple({os.path.join(os.path.abspath(folder), "") for folder in folders})


@functools.lru_cache(maxsize=8192)
def _is_own(file: str) -> bool:
    """Tell a file that a user wrote from those of libraries."""
    path = os.path.abspath(file)
    if path.startswith(_list_library_folders()) or not is_user_file(file):
        return False
    return f"{os.sep}site-packages{os.sep}" not in path and f"{os.sep}dist-packages{os.sep}" not in path


def _read_texts(paths: Iterable[str]) -> Dict[str, str]:
    texts: Dict[str, str] = {}
    room = _MAX_TOTAL_BYTES
    for path in paths:
        if path in texts or len(texts) >= _MAX_FILES:
            continue
        text = _read_text(path)
        if text is not None and len(text) <= min(room, _MAX_FILE_BYTES):
            texts[path] = text
            room -= len(text)
    return texts


def _read_text(path: str) -> Optional[str]:
    """Read a file; what was typed in has no file, and its lines are where tracebacks find them."""
    try:
        if os.path.isfile(path):
            if os.path.getsize(path) > _MAX_FILE_BYTES:
                return None
            return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None
    return "".join(linecache.getlines(path)) or None


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


def _find_named_files(words: List[str]) -> List[str]:
    """Return the files that the command line names, such as a configuration."""
    names = [word.partition("=")[2] or word for word in words[1:_MAX_WORDS]]
    suffixes = (".py", ".json", ".yaml", ".yml", ".toml", ".cfg", ".ini", ".txt", ".conf", ".gin")
    return [os.path.abspath(name) for name in names if name.endswith(suffixes) and os.path.isfile(name)]


def _select_variables(variables: Mapping[str, str]) -> Dict[str, str]:
    return {
        name: value[:_MAX_WORD]
        for name, value in sorted(variables.items())
        if _VARIABLES.fullmatch(name) and not _SECRET.search(name)
    }
