"""Record the scopes that `forward` opens for its operators: block, name scope, attributes and `MultiConv`.

The record is kept during a trace and written to the `meta` of every node, where checks, planners and tools read it:
`block` (id; empty for what precedes the first block, None outside all blocks), `stage`, `phase` and `ipu` (None outside
all blocks), `name_scope` (the prefix of the operator's name), `attributes` (only if there are any), `multi_conv` (the
number and the settings of the open `MultiConv`, only if there is one) and `source_location` (the user's line as text).
"""

from __future__ import annotations

import functools
import sys
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Protocol, Sequence, Tuple

from torch import nn

from ...support.module_hooks import follow_modules
from .._operators.op_library import define_operator, do_nothing
from .._options_impl import require
from ..tracing_state import tracing

__all__ = ["Attribute", "GraphScopes", "NameScope", "change_scopes", "find_source_location", "trace_in_scopes"]


class GraphScopes:
    """The scopes of one trace.

    `multi_convs` holds number and settings of each `MultiConv` in the order they were opened, `has_nested_multi_conv`
    tells whether one was opened inside another.
    """

    def __init__(self, *, source_excludes: Sequence[str] = ()) -> None:
        """Start a trace; lines of files whose path contains one of `source_excludes` are not the user's."""
        self.multi_convs: List[Dict[str, Any]] = []
        self.has_nested_multi_conv = False
        self._source_excludes = tuple(source_excludes)
        # the first block begins before any is named, on the first IPU
        self._place: Dict[str, Any] = {"block": "", "stage": 0, "phase": 0, "ipu": 0}
        self._names: List[Tuple[Optional[nn.Module], str]] = []
        self._attributes: Dict[str, Dict[str, Any]] = {}
        self._open_multi_conv: Optional[Dict[str, Any]] = None

    def begin_block(self, stage: int, phase: int, ipu: int, block_id: str = "") -> None:
        """Put the operators that follow into a block."""
        self._place = {"block": block_id, "stage": stage, "phase": phase, "ipu": ipu}

    def end_block(self) -> None:
        """Leave the active block."""
        # also that around it: blocks do not nest, an inner one ends the outer one too
        self._place = dict.fromkeys(self._place)

    def begin_multi_conv(self) -> None:
        """Open a `MultiConv`."""
        # refused when the graph is checked, because PopTorch says so at compilation
        self.has_nested_multi_conv = self.has_nested_multi_conv or self._open_multi_conv is not None
        self._open_multi_conv = {"number": len(self.multi_convs)}
        self.multi_convs.append(self._open_multi_conv)

    def end_multi_conv(self, *values: Any, **settings: Any) -> None:
        """Close the `MultiConv` that was opened last, with the arguments of the operator that does so."""
        if self._open_multi_conv is not None:
            settings.update(zip(_MULTI_CONV_SETTINGS, values))
            given = {_MULTI_CONV_SETTINGS[name]: value for name, value in settings.items() if value is not None}
            # into the dictionary that the nodes recorded inside refer to
            self._open_multi_conv.update(given)
        self._open_multi_conv = None

    def push_name_scope(self, name: str, owner: Optional[nn.Module] = None) -> None:
        """Open a name scope, that of the call of a module if it has an owner."""
        self._names.append((owner, name))

    def pop_name_scope(self, owner: Optional[nn.Module] = None) -> None:
        """Close the name scope of this owner that was opened last."""
        # calls that were left by an exception which `forward` caught are still on top
        while self._names and self._names.pop()[0] is not owner:
            pass

    def set_attribute(self, attribute: str, key: str, value: object) -> None:
        """Give the operators that follow an entry of an attribute."""
        # new dictionaries: nodes that were recorded before refer to the old ones
        self._attributes = {**self._attributes, attribute: {**self._attributes.get(attribute, {}), key: value}}

    def clear_attribute(self, attribute: str, key: str) -> None:
        """Remove an entry of an attribute from the operators that follow."""
        left = {name: value for name, value in self._attributes.get(attribute, {}).items() if name != key}
        self._attributes = {name: entries for name, entries in self._attributes.items() if name != attribute}
        if left:
            self._attributes[attribute] = left

    def read_node_facts(self) -> Dict[str, Any]:
        """Return the facts to write to the node of the operator that is being recorded."""
        facts = {
            **self._place,
            "name_scope": "".join(f"{name}/" for _owner, name in self._names),
            "source_location": find_source_location(self._source_excludes),
        }
        if self._attributes:
            facts["attributes"] = self._attributes
        if self._open_multi_conv is not None:
            facts["multi_conv"] = self._open_multi_conv
        return facts


_open: Optional[GraphScopes] = None


def change_scopes(change: Callable[..., None], *values: Any, **settings: Any) -> None:
    """Apply a method of `GraphScopes` to the scopes of the present trace; without a trace nothing happens."""
    if _open is not None:
        change(_open, *values, **settings)


class NameScope:
    """Put `name/` in front of the names of the operators inside the context; AssertionError for another type.

    >>> with NameScope("encoder"):
    ...     pass
    """

    def __init__(self, name: str) -> None:
        require(isinstance(name, str), "Parameter to NameScope must be a string")
        self.name = name

    def __enter__(self) -> None:
        change_scopes(GraphScopes.push_name_scope, self.name)

    def __exit__(self, *_exception: object) -> None:
        change_scopes(GraphScopes.pop_name_scope)


class Attribute:
    """Give the operators inside the context attributes; those of contexts around it hold too.

    >>> with Attribute(__outline={"layer": "embedding"}):
    ...     Attribute._current_attrs
    {'__outline': {'layer': 'embedding'}}
    >>> Attribute._current_attrs
    {}
    """

    # The attributes of the operators that come next.
    _current_attrs: Dict[str, Dict[str, Any]] = {}

    def __init__(self, **attributes: Dict[str, Any]) -> None:
        self._attributes = attributes
        # a list, because one object may be entered again inside itself
        self._before: List[Dict[str, Dict[str, Any]]] = []

    def __enter__(self) -> None:
        before = Attribute._current_attrs
        merged = {name: dict(entries) for name, entries in before.items()}
        for name, entries in self._attributes.items():
            merged.setdefault(name, {}).update(entries)
        self._before.append(before)
        _exchange_attributes(before, merged)

    def __exit__(self, *_exception: object) -> None:
        _exchange_attributes(Attribute._current_attrs, self._before.pop())


def _exchange_attributes(before: Dict[str, Dict[str, Any]], after: Dict[str, Dict[str, Any]]) -> None:
    """Make `after` the present attributes, and pass the changes to the present trace."""
    Attribute._current_attrs = after
    for name, entries in before.items():
        for key in entries:
            if key not in after.get(name, {}):
                change_scopes(GraphScopes.clear_attribute, name, key)
    for name, entries in after.items():
        for key, value in entries.items():
            if before.get(name, {}).get(key) != value:
                change_scopes(GraphScopes.set_attribute, name, key, value)


class TracedStrategy(Protocol):
    """The methods of an execution strategy that a trace calls."""

    def onStartTracing(self) -> None:
        """Let blocks begin stages from now on."""

    def onEndTracing(self) -> None:
        """Let blocks have no effect again."""


@contextmanager
def trace_in_scopes(
    scopes: GraphScopes, model: nn.Module, strategy: TracedStrategy, *, names_modules: bool
) -> Iterator[None]:
    """Trace the `forward` of `model`, which changes `scopes`; afterwards none are open, also after an error.

    Blocks begin stages of the execution `strategy`; with `names_modules`, calls of sub-modules are name scopes.
    """
    global _open
    hooks = ExitStack()
    before, _open = _open, scopes
    # everything that may fail is inside, also the strategy's own start
    try:
        strategy.onStartTracing()
        if names_modules:
            hooks = _follow_modules(scopes, model)
        with tracing():
            yield
    finally:
        _open = before
        strategy.onEndTracing()
        hooks.close()


def _follow_modules(scopes: GraphScopes, model: nn.Module) -> ExitStack:
    """Make calls of sub-modules name scopes, until the returned handle is closed."""
    names = {id(module): path.rsplit(".", 1)[-1] for path, module in model.named_modules() if path}

    def enter(module: nn.Module, _args: object) -> None:
        if id(module) in names:
            scopes.push_name_scope(names[id(module)], module)

    def leave(module: nn.Module, _args: object, _output: object) -> None:
        if id(module) in names:
            scopes.pop_name_scope(module)

    return follow_modules(enter, leave)


_PACKAGE = str(Path(__file__).parents[2])
# calls `forward`, so that nothing above it in the stack belongs to the model
_TRACER = str(Path(_PACKAGE, "capture", "tracing.py"))
# The code that runs between the call of an operator and its recording, besides this package.
_DISPATCH = tuple(
    f"torch/{name}" for name in ("_ops.py", "overrides.py", "_tensor.py", "_compile.py", "_dynamo/", "_library/")
)


def find_source_location(excludes: Tuple[str, ...]) -> Optional[str]:
    """Return `file:line` of the innermost frame that calls an operator, with none of `excludes` in its path, if any."""
    frame = sys._getframe(1)
    is_machinery = True
    while frame is not None:
        path = frame.f_code.co_filename
        if path == _TRACER and not is_machinery:
            return None
        is_ours, is_dispatch = _classify_file(path)
        is_machinery = is_machinery and (is_ours or is_dispatch)
        if not is_machinery and not is_ours and not _is_excluded(path, excludes):
            return f"{path}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None


@functools.lru_cache(maxsize=1024)
def _classify_file(path: str) -> Tuple[bool, bool]:
    """Tell whether a file is of this package, and whether it runs between the call of an operator and its recording."""
    return path.startswith(_PACKAGE), any(file in path for file in _DISPATCH)


@functools.lru_cache(maxsize=1024)
def _is_excluded(path: str, excludes: Tuple[str, ...]) -> bool:
    return any(fragment in path for fragment in excludes)


# the operator's arguments, and their names in the compiled graph
_MULTI_CONV_SETTINGS = {
    "available_memory_proportions": "availableMemoryProportions",
    "partials_types": "partialsTypes",
    "plan_type": "planType",
    "per_conv_reserved_tiles": "perConvReservedTiles",
    "cycle_back_off": "cycleBackOff",
    "enable_conv_dithering": "enableConvDithering",
}


# The effects of the operators that begin and end scopes while a model is traced; on the CPU they have none.
_CHANGES: Dict[str, Callable[..., None]] = {
    "begin_ipu_block(int stage, int phase, int ipu) -> ()": GraphScopes.begin_block,
    "end_ipu_block() -> ()": GraphScopes.end_block,
    "begin_multi_conv() -> ()": GraphScopes.begin_multi_conv,
    "end_multi_conv(float[]? available_memory_proportions=None, int[]? partials_types=None, int? plan_type=None, "
    "int? per_conv_reserved_tiles=None, float? cycle_back_off=None, int[]? enable_conv_dithering=None) -> ()": (
        GraphScopes.end_multi_conv
    ),
    "push_name_scope(str name) -> ()": GraphScopes.push_name_scope,
    "pop_name_scope() -> ()": GraphScopes.pop_name_scope,
    "set_attribute(str attribute, str key, str value) -> ()": GraphScopes.set_attribute,
    "clear_attribute(str attribute, str key) -> ()": GraphScopes.clear_attribute,
    # parameters belong to the groups of the optimizer, whatever their attributes are
    "optimizer_group(int group, Tensor[] inputs) -> ()": lambda *_arguments: None,
}


def _record_change(change: Callable[..., None], _recorder: object, *args: Any, **kwargs: Any) -> None:
    change_scopes(change, *args, **kwargs)


for _schema, _change in _CHANGES.items():
    define_operator(_schema, do_nothing, record=partial(_record_change, _change))
