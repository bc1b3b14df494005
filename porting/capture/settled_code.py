"""The code of a `forward`, read for what could decide anything anew in its next run: a clock, a counter, a draw.

The code is read, not run. What is ruled out here need not be tried out by a second capture; anything that is not known
to compute the same each time is left to that. A `forward` is settled if it stores nothing outside of its own variables,
and all names in it are those of operators, of parts and plain settings of the model, of settled methods and functions,
and of a few functions of Python that depend on their arguments alone.
"""

from __future__ import annotations

import builtins
import dis
import functools
import math
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any, Callable, Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

import torch
from torch import nn

__all__ = ["are_settled", "is_plain"]

_PLAIN = frozenset([bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.memory_format])
_BUILTINS = frozenset(
    "abs all any bool dict enumerate float int isinstance len list max min range reversed round slice sorted str sum "
    "super tuple zip AssertionError NotImplementedError RuntimeError TypeError ValueError".split()
)
# what Python's containers and text have besides the methods that change them
_READS = frozenset("count endswith format get index items join keys split startswith values".split())
_CHANGES = frozenset("append extend insert".split())
# operators that draw on the host where they get a tensor of the host, and those that make such a tensor
_DRAWS = tuple(
    "rand bernoulli normal uniform nomial poisson dropout exponential cauchy geometric rrelu gumbel fractional empty "
    "window indices sparse from eye scalar_tensor asarray as_tensor complex polar seed cpu numpy apply map".split()
)
_TORCH = ("nn", "functional", "no_grad", "enable_grad", "float", "half", "int", "long", "float32", "float16", "int32")
# whatever leaves something behind, is a generator, or brings names that are not there yet
_STORES = tuple(
    "STORE_ATTR STORE_GLOBAL STORE_NAME STORE_SUBSCR STORE_SLICE DELETE_ATTR DELETE_GLOBAL DELETE_NAME DELETE_SUBSCR "
    "IMPORT_ LOAD_BUILD_CLASS GET_A SEND ASYNC BEFORE_ASYNC".split()
)
_YIELDS = ("YIELD_", "RETURN_GENERATOR")
_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR")
_GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME")
_FIRST_IN_PLACE = 13  # of the numbers that Python 3.11 and later give to operators
_CONTAINERS = (nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict, nn.Sequential)
# a class of the user's may have these of its own; with any other method of modules it is not looked into
_OVERRIDABLE = frozenset("__init__ __module__ __doc__ __annotations__ __firstlineno__ __static_attributes__".split())
_OVERRIDABLE |= frozenset(["forward", "extra_repr", "__repr__"])
# of torch's generators, whatever else in a model bears such a name
_NEVER = frozenset(["seed", "initial_seed", "random", "random_", "rand", "randn", "randint", "randperm", "Generator"])


def are_settled(
    own: Sequence[nn.Module], functions: Sequence[Callable[..., Any]], modules: Iterable[nn.Module]
) -> bool:
    """Tell whether the `forward` of `own`, modules of the user's classes, and `functions` compute the same each time.

    `modules` are all of the model, whose parts and settings code may read.
    """
    everything = list(modules)
    if not all(map(_has_settled_state, own)):
        return False
    classes = {kind for module in own for kind in _list_own_classes(type(module))}
    names = _Names(everything, classes)
    waiting: List[Any] = [*(type(module).forward for module in own), *functions]
    # a layer of torch calls methods of its own, which a class derived from it may have in another form
    waiting += [f for kind in classes if _is_derived_layer(kind) for f in _list_methods(kind)]
    seen: Set[Any] = set()
    while waiting:
        function = waiting.pop()
        if not isinstance(function, FunctionType):
            return False
        if _is_torchs(function):
            continue
        if function.__code__ not in seen:
            seen.add(function.__code__)
            called = _list_called(function, names)
            if called is None:
                return False
            waiting += called
    return True


def is_plain(value: Any) -> bool:
    """Tell whether a value stays what it is, and what it holds too; the name of the host's device is none."""
    # a class derived from one of these may do anything
    if type(value) in (tuple, torch.Size):
        return all(map(is_plain, value))
    return type(value) in _PLAIN and not (type(value) is str and value.startswith("cpu"))


def _list_own_classes(kind: type) -> Iterator[type]:
    return (base for base in kind.__mro__ if base is not object and not _is_torchs(base))


def _is_torchs(value: Any) -> bool:
    return str(value.__module__).startswith("torch.")


def _is_derived_layer(kind: type) -> bool:
    return any(_is_torchs(base) and base is not nn.Module for base in kind.__mro__)


def _list_methods(kind: type) -> Iterator[FunctionType]:
    for name, value in vars(kind).items():
        function = _find_function(value)
        if isinstance(function, FunctionType) and name not in _OVERRIDABLE:
            yield function


def _find_function(value: Any) -> Any:
    """Return what a static method, a class method or a property calls."""
    return getattr(value, "__func__", getattr(value, "fget", value))


def _has_settled_state(module: nn.Module) -> bool:
    """Tell whether a module of the user's has plain settings and the methods of modules as they are."""
    attributes, usual = vars(module), _USUAL_ATTRIBUTES
    # modules that torch makes of others have code of their own
    if _is_torchs(type(module)) or "forward" in attributes:
        return False
    if attributes.get("_forward_hooks") or attributes.get("_forward_pre_hooks"):
        return False
    overridden = {name for kind in _list_own_classes(type(module)) for name in vars(kind)}
    if (overridden & _MODULE_METHODS) - _OVERRIDABLE or any(name.startswith("__get") for name in overridden):
        return False
    return all(name in usual or is_plain(value) for name, value in attributes.items())


_USUAL_ATTRIBUTES = frozenset(vars(nn.Module()))
_MODULE_METHODS = frozenset(vars(nn.Module)) | frozenset(["__getattribute__", "__call__"])


class _Names:
    """What attributes that code names can be: operators, parts of a model, its settings, and methods of `classes`."""

    def __init__(self, modules: Sequence[nn.Module], classes: Set[type]) -> None:
        self.functions: Dict[str, List[Any]] = {}
        known: Set[str] = {"training", "forward"}
        unknown: Set[str] = set()
        for module in modules:
            attributes = vars(module)
            known.update(attributes, attributes["_parameters"], attributes["_buffers"], attributes["_modules"])
        for kind in classes:
            for name, value in vars(kind).items():
                function = _find_function(value)
                if isinstance(function, FunctionType):
                    self.functions.setdefault(name, []).append(function)
                elif not is_plain(value):
                    unknown.add(name)
                else:
                    known.add(name)
        self.has_containers = any(map(_has_container, modules))
        reads = _READS if self.has_containers else _READS | _CHANGES
        unknown |= _NEVER | _USUAL_ATTRIBUTES.difference(["training"])
        self.known = (known | reads | _list_operators()) - unknown


def _has_container(module: nn.Module) -> bool:
    """Tell whether a module is a list of others, or has a list or the like among its settings."""
    settings = (value for name, value in vars(module).items() if name not in _USUAL_ATTRIBUTES)
    return isinstance(module, _CONTAINERS) or any(isinstance(value, (list, dict, set)) for value in settings)


@functools.lru_cache(maxsize=None)
def _list_operators() -> FrozenSet[str]:
    """List names of torch's operators, as functions and as methods, but of those that draw or make host tensors."""
    functional = [name for name, value in vars(nn.functional).items() if isinstance(value, _FUNCTIONS)]
    names = {*dir(torch._C._VariableFunctions), *dir(torch.Tensor), *functional, *vars(math), *_TORCH}
    return frozenset(
        name for name in names if not name.startswith("_") and not any(part in name for part in _DRAWS)
    ) | frozenset(["device", "layout", "T", "mT"])


_FUNCTIONS = (FunctionType, BuiltinFunctionType)


def _list_called(function: FunctionType, names: _Names) -> Optional[List[Any]]:
    """List the functions of the user's that `function` may call; None if it is not settled itself."""
    defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    if not is_plain(defaults) or set(function.__code__.co_freevars) - {"__class__"}:
        return None
    called: List[Any] = []
    for code in _list_codes(function.__code__):
        for operation, name in _list_instructions(code):
            if _is_unsettled(operation, name, code, has_containers=names.has_containers):
                return None
            found: Optional[Sequence[Any]] = ()
            if operation.startswith(_ATTRIBUTES):
                found = names.functions.get(name, () if name in names.known else None)
            elif operation.startswith(_GLOBALS):
                found = _look_up(function.__globals__, name)
            if found is None:
                return None
            called += found
    return called


@functools.lru_cache(maxsize=1024)
def _list_instructions(code: CodeType) -> Tuple[Tuple[str, Any], ...]:
    return tuple((instruction.opname, instruction.argval) for instruction in dis.get_instructions(code))


def _is_unsettled(operation: str, value: Any, code: CodeType, *, has_containers: bool) -> bool:
    """Tell whether an instruction leaves something behind, brings new names, or names the host as a device."""
    if operation.startswith(_YIELDS):
        return code.co_name != "<genexpr>"
    if operation.startswith(("INPLACE_", "BINARY_OP")):
        # a container of modules may be added to in this way
        return has_containers and (operation.startswith("INPLACE_") or value >= _FIRST_IN_PLACE)
    return operation.startswith(_STORES) or (isinstance(value, str) and value.startswith("cpu"))


def _list_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function and of what is defined inside of it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_codes(constant)


def _look_up(space: Mapping[str, Any], name: str) -> Optional[Sequence[Any]]:
    """Return the function of the user's that a global name stands for, or nothing; None for what is not settled."""
    value = space[name] if name in space else getattr(builtins, name, None)
    if isinstance(value, FunctionType) and not _is_torchs(value):
        return [value]
    is_torchs = str(getattr(value, "__module__", None)).partition(".")[0] == "torch"
    is_known = (
        any(value is module for module in (math, torch, nn, nn.functional))
        or value is torch.Tensor
        or (value is getattr(builtins, name, None) and name in _BUILTINS)
        # an operator under a name of its own: `from torch import relu`
        or (is_torchs and isinstance(value, _FUNCTIONS) and value.__name__ in _list_operators())
    )
    return () if is_known or (name in space and is_plain(value)) else None
