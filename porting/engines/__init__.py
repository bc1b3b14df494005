"""Ways to run a `StepGraph` on this machine: a table of names, each loaded when it is first asked for.

Other packages add theirs by an entry point of the group `porting.engines`: a function
`build(graph, request) -> Executable`. One that also has `compile` and `load` (see `CompilingEngine`) makes executables
that are kept on disk. The compilers of this package, and what chooses for "auto", lie in rooms that an installation may
lack; they are found by their names here.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Dict, List, Mapping

from ..diagnostics import OptionError, suggest_name
from ..support.entry_points import read_entry_points

__all__ = [
    "ENGINES",
    "ENTRY_POINTS",
    "MODES",
    "REINSTALL",
    "engine_names",
    "list_choices",
    "load_engine",
    "require_engine",
    "why_not_installed",
]

ENGINES: Mapping[str, str] = MappingProxyType(
    {
        "aot": "porting.engines.aot.engine:AOT",
        "recurrence": "porting.engines.recurrence.engine:RECURRENCE",
        "replay": "porting.engines.replay.replay:build_replay",
    }
)
"""The engines of this package."""

MODES = ("ready", "auto")
"""What may stand for an engine: a compiled executable if there is one already, or the fastest, found by measuring."""

ENTRY_POINTS = "porting.engines"
"""The group in which other packages name their engines."""

# Which rooms an engine or a mode needs, if any.
_ROOMS = {"aot": ("aot", "compiled"), "auto": ("tuning",), "recurrence": ("aot", "compiled", "recurrence")}

REINSTALL = "install the whole package again, as its README says, or let replay run the step: `engine='replay'`"
"""What helps where rooms are missing."""


def engine_names() -> List[str]:
    """Return the names of all engines that can be used, this package's and others'; none is imported.

    >>> {"aot", "replay"} <= set(engine_names())
    True
    """
    return sorted(name for name in {*ENGINES, *_collect_foreign()} if not why_not_installed(name))


def list_choices() -> List[str]:
    """Return all that may be given for an engine: modes and engines.

    >>> list_choices()[:2]
    ['ready', 'auto']
    """
    return [*MODES, *engine_names()]


def why_not_installed(name: str) -> str:
    """Return why an engine or a mode cannot be used in this installation; empty where it can, and nothing is imported.

    >>> why_not_installed("aot")
    ''
    """
    missing = [f"`{__name__}.{room}`" for room in _ROOMS.get(name, ()) if not _is_there(room)]
    return f"the compilers are not installed: {', '.join(missing)}" if missing else ""


def _is_there(room: str) -> bool:
    # an empty folder, or one of caches alone, has no origin
    spec = find_spec(f"{__name__}.{room}")
    return spec is not None and spec.origin is not None


def require_engine(name: str, *, source: str = "") -> None:
    """Raise OptionError P004 for a name that is no engine of this installation, nor a mode; nothing is imported.

    `source` says where the name comes from, for the message.
    """
    origin = f" ({source})" if source else ""
    if name not in MODES and name not in ENGINES and name not in _collect_foreign():
        known = list_choices()
        raise OptionError.of(
            "P004",
            message=f"there is no engine called `{name}`{origin}",
            help=suggest_name(name, known, otherwise=f"use one of: {', '.join(known)}"),
        )
    reason = "" if name in MODES else why_not_installed(name)
    if reason:
        raise OptionError.of("P004", message=f"the engine `{name}` cannot be used{origin}: {reason}", help=REINSTALL)


def load_engine(name: str) -> Any:
    """Return the function `build(graph, request)` of the engine called `name`.

    Raises OptionError P004 for a name that no engine has, and for one whose package cannot be imported.

    >>> load_engine("replay").__name__
    'build_replay'
    """
    require_engine(name)
    if name in MODES:
        raise ValueError(f"`{name}` is no engine, but a way to choose one")
    if name in ENGINES:
        module, _, attribute = ENGINES[name].partition(":")
        return getattr(import_module(module), attribute)
    entry = _collect_foreign()[name]
    try:
        return entry.load()
    except Exception as error:
        raise OptionError.of(
            "P004",
            message=f"the engine `{name}` cannot be loaded from `{entry.value}`: {type(error).__name__}: {error}",
            help=f"repair or remove the package that brings it, or use one of: {', '.join((*MODES, *sorted(ENGINES)))}",
        ) from error


def _collect_foreign() -> Dict[str, Any]:
    """Return the entry points of other packages by name; this package's own names are not to be taken."""
    found = read_entry_points(ENTRY_POINTS)
    return {name: entry for name, entry in found.items() if name not in ENGINES and name not in MODES}
