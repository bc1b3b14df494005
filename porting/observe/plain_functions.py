"""Tell a watcher of each function of torch as plain PyTorch runs, with its module and the user's line."""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, TypeVar

from torch import nn
from torch.overrides import TorchFunctionMode, resolve_name

from porting.diagnostics import caller_place
from porting.observe.watcher import NamedValue, OperatorCall, WatchedOperator, Watcher
from porting.structure import flatten_tensors
from porting.support.module_hooks import follow_modules

__all__ = ["FindPath", "KnownTensors", "watch_functions"]

_Result = TypeVar("_Result")

FindPath = Callable[[nn.Module, str, Tuple[Any, ...]], str]
"""Returns the path of a module that begins, from the path of the one around it and its arguments."""


class KnownTensors:
    """Tensors by the names that the user knows; each other argument of a function is called by its number."""

    names_infinity = False

    def __init__(self, named: Iterable[NamedValue] = ()) -> None:
        """Keep the tensors alive, so that no other has the same identity."""
        self._named: Dict[int, NamedValue] = {id(value.tensor): value for value in named}

    def name_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> List[NamedValue]:
        """Return the tensors among the arguments of a function."""
        tensors = enumerate(flatten_tensors((args, kwargs)))
        return [self._named.get(id(one), NamedValue(f"argument {index}", one)) for index, one in tensors]


def watch_functions(
    run: Callable[[], _Result], watcher: Watcher, *, find_path: FindPath, known: Optional[KnownTensors] = None
) -> _Result:
    """Return what `run` returns; `watcher` runs each function of torch that is called in it."""
    functions = _Functions(watcher, find_path, known or KnownTensors())
    with follow_modules(functions.enter_module, functions.leave_module), functions:
        return run()


class _Functions(TorchFunctionMode):
    """Catches the functions of torch, and keeps the paths of the modules that are being run."""

    def __init__(self, watcher: Watcher, find_path: FindPath, known: KnownTensors) -> None:
        super().__init__()
        self._watcher, self._find_path, self._known = watcher, find_path, known
        self._paths = [""]

    def enter_module(self, module: nn.Module, args: Tuple[Any, ...]) -> None:
        """Note that a module begins."""
        self._paths.append(self._find_path(module, self._paths[-1], args))

    def leave_module(self, _module: nn.Module, _args: object, _result: object) -> None:
        """Note that it has ended."""
        self._paths.pop()

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Optional[Mapping[str, Any]] = None,
    ) -> Any:
        """Let the watcher run one function."""
        title = str(resolve_name(func) or getattr(func, "__name__", func))
        operator = WatchedOperator(title, self._paths[-1], caller_place())
        return self._watcher.run_operator(OperatorCall(operator, title, self._known, func, args, kwargs or {}))
