"""Name the private parts of autograd and of torch's function transforms; capture and replay use them."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from types import FunctionType
from typing import Any, Callable, Iterator, List, Optional, Sequence, Type

import torch

from .exchanged import exchanged
from .parts import Parts, look_up

__all__ = [
    "PARTS",
    "clear_transforms",
    "current_transform",
    "find_saved_tensor_hooks",
    "has_own_setup_context",
    "has_own_vjp",
    "intercept_custom_functions",
    "is_mapped_gradient",
    "is_transforming",
    "only_mapped_operators",
    "optimized_execution",
    "probe",
    "run_backward",
]

PARTS = Parts("no step can be trained")
probe = PARTS.probe


def _run_backward_with_checks(
    tensors: Sequence[torch.Tensor],
    gradients: Optional[Sequence[torch.Tensor]],
    keeps_graph: bool,
    creates_graph: bool,
    _inputs: object,
    **_settings: bool,
) -> None:
    torch.autograd.backward(tensors, gradients, retain_graph=keeps_graph, create_graph=creates_graph)


run_backward: Callable[..., None] = PARTS.find(
    "torch.autograd:Variable._execution_engine.run_backward",
    instead=_run_backward_with_checks,
    loses="each backward pass checks its arguments again",
)
"""Run a backward pass, as `torch.autograd.backward` does once it has checked its arguments."""

find_saved_tensor_hooks: Callable[[bool], Any] = PARTS.find(
    # of nested hooks autograd calls the innermost, and torch has no public way to find the rest
    "torch._C:_autograd._top_saved_tensors_default_hooks",
    instead=lambda _ignores_tracing: None,
    loses="`saved_tensors_hooks` around a step do not see what half-precision operators save",
)
"""Return the innermost hooks of saved tensors; None where there are none."""

_FUNCTION: Any = PARTS.find(
    "torch.autograd.function:_SingleLevelFunction",
    instead=torch.autograd.Function,
    loses="custom functions whose `apply` was bound to another name are differentiated as their `forward`",
)


def has_own_setup_context(function: Type[torch.autograd.Function]) -> bool:
    """Tell whether a custom autograd function is of the newer style, in which `setup_context` stands by itself."""
    return function.setup_context is not _FUNCTION.setup_context


def has_own_vjp(function: Type[torch.autograd.Function]) -> bool:
    """Tell whether a custom autograd function calls its backward `vjp`, as the class allows."""
    return function.vjp is not _FUNCTION.vjp


_StandIn = Callable[[Callable[..., Any], Any, Any, Any], Any]
_TRANSFORMED = "torch.autograd.function:custom_function_call"
PARTS.find(_TRANSFORMED, instead=None, loses="a custom function under `torch.func` in `forward` fails without a line")


@contextmanager
def intercept_custom_functions(stand_in: _StandIn) -> Iterator[None]:
    """Let custom autograd functions be applied by `stand_in(apply, function, args, kwargs)` while the context lasts.

    `apply` is what torch would have called. By what name a program calls it does not matter, nor when it has taken it.
    """

    def make_method(original: FunctionType) -> Any:
        def apply(function: Type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
            return stand_in(original.__get__(None, function), function, args, kwargs)

        return classmethod(apply)

    def make_call(original: Callable[..., Any]) -> Any:
        return lambda function, *args, **kwargs: stand_in(partial(original, function), function, args, kwargs)

    with ExitStack() as exchanges:
        if _TRANSFORMED not in PARTS.losses:
            exchanges.enter_context(exchanged(look_up("torch.autograd.function:"), "custom_function_call", make_call))
        if hasattr(vars(torch.autograd.Function).get("apply"), "__func__"):
            # `Function.apply`, which programs bind beforehand, ends in `super().apply`, or in a transform in the other
            exchanges.enter_context(exchanged(_FUNCTION, "apply", make_method))
        else:
            exchanges.enter_context(_INSIDE_APPLY.intercept(stand_in))
        yield


class _InsideApply(threading.local):
    """Stands in for custom functions whose `apply` is C++ alone, as it is since torch 2.15.

    No exchange of that reaches a program that has bound it. But each call makes the context of its class, and then
    takes the class's `forward`, in whose place it gets a stand-in.
    """

    def __init__(self) -> None:
        """Stand in for nothing in this thread."""
        self._awaited: Any = None
        self._was_grad_enabled = True
        self._set_up: Any = None

    @contextmanager
    def intercept(self, stand_in: _StandIn) -> Iterator[None]:
        """Let `stand_in` apply custom functions while the context lasts, in all threads."""
        _STAND_INS.append(stand_in)
        try:
            with exchanged(_CONTEXT, "__init__", self._await_forward):
                with exchanged(_FUNCTION_TYPE, "__getattribute__", self._give_forward):
                    yield
        finally:
            _STAND_INS.remove(stand_in)

    def _await_forward(self, original: Callable[..., Any]) -> Any:
        if hasattr(original, "stands_in"):
            return original

        def begin(context: Any, *args: Any, **kwargs: Any) -> None:
            original(context, *args, **kwargs)
            # `forward` is called without gradients
            self._awaited, self._was_grad_enabled = type(context)._forward_cls, torch.is_grad_enabled()

        begin.stands_in = True  # type: ignore[attr-defined]
        return begin

    def _give_forward(self, original: Callable[..., Any]) -> Any:
        if hasattr(original, "stands_in"):
            return original

        def get(function: Type[torch.autograd.Function], name: str) -> Any:
            if name == "forward" and self._awaited is function:
                self._awaited = None
                return partial(self._run_stand_ins, function, original(function, name))
            if name == "setup_context" and self._set_up is function:
                self._set_up = None
                return lambda *_context: None
            return original(function, name)

        get.stands_in = True  # type: ignore[attr-defined]
        return get

    def _run_stand_ins(self, function: Type[torch.autograd.Function], forward: Callable[..., Any], *given: Any) -> Any:
        """Let the stand-ins apply a function, the last one outermost; after all of them torch goes on by itself."""
        is_new = has_own_setup_context(function)
        context, args = ((), given) if is_new else (given[:1], given[1:])
        goes_on = []

        def go_on(*args: Any, **kwargs: Any) -> Any:
            goes_on.append(True)
            with torch.no_grad():
                return forward(*context, *args, **kwargs)

        apply = go_on
        for stand_in in _STAND_INS:
            apply = partial(_apply_by, stand_in, apply, function)
        with torch.set_grad_enabled(self._was_grad_enabled):
            returned = apply(*args)
            if goes_on:
                return returned
            self._set_up = function if is_new else None
            # torch would cut an argument that is returned off from its gradient
            values = returned if isinstance(returned, tuple) else (returned,)
            values = tuple(value.view_as(value) if any(value is arg for arg in args) else value for value in values)
        return values if isinstance(returned, tuple) else values[0]


def _apply_by(
    stand_in: _StandIn, apply: Callable[..., Any], function: Type[torch.autograd.Function], *args: Any, **kwargs: Any
) -> Any:
    return stand_in(apply, function, args, kwargs)


_LOST = "custom functions are differentiated as their `forward`"
_CONTEXT: Any = PARTS.find("torch.autograd.function:BackwardCFunction", instead=object, loses=_LOST)
_FUNCTION_TYPE: Any = PARTS.find("torch.autograd.function:FunctionMeta", instead=type, loses=_LOST)
_STAND_INS: List[_StandIn] = []
_INSIDE_APPLY = _InsideApply()


current_transform: Callable[[], Optional[int]] = PARTS.find(
    "torch._C:_functorch.maybe_current_level",
    instead=lambda: None,
    loses="functions under `torch.func` in `forward` are not told apart from others",
)
"""Return the level of the innermost transform of `torch.func`; None outside of all."""

is_transforming: Callable[[], bool] = PARTS.find(
    "torch._C:_are_functorch_transforms_active",
    instead=lambda: False,
    loses="a ported call under `torch.func` fails without a word of the remedy",
)
"""Tell whether a transform of `torch.func` is in force; other than `current_transform`, torch 2.0 has it."""

_MAPPED = "`torch.autograd.grad(is_grads_batched=True)` of a ported call fails without a word of the remedy"
_read_keys: Any = PARTS.find("torch._C:_dispatch_keys", instead=None, loses=_MAPPED)
_parse_key: Any = PARTS.find("torch._C:_dispatch_key_parse", instead=None, loses=_MAPPED)


def is_mapped_gradient(gradient: torch.Tensor) -> bool:
    """Tell whether a backward pass computes many gradients at once, of which this is one."""
    return None not in (_read_keys, _parse_key) and bool(_read_keys(gradient).has(_parse_key("Batched")))


clear_transforms: Any = PARTS.find(
    "torch._functorch.pyfunctorch:temporarily_clear_interpreter_stack",
    instead=nullcontext,
    loses="operators under `torch.func` in `forward` may be refused",
)
"""A context in which no transform of `torch.func` is in force."""

optimized_execution: Any = PARTS.find(
    "torch.jit._fuser:optimized_execution",
    instead=lambda _is_optimized: nullcontext(),
    loses="scripted parts of a model may be recorded with operators that torch has joined",
)

# functions that a capture exchanges
PARTS.find("torch.utils.hooks:BackwardHook._apply_on_tensors", instead=None, loses="backward hooks are not ignored")
PARTS.find(
    "torch.utils.checkpoint:_checkpoint_without_reentrant_generator",
    instead=None,
    loses="`checkpoint(..., use_reentrant=False)` in `forward` is refused",
)

_LOOPS = "operators that cannot be mapped over micro-batches run one by one"
_is_looping: Callable[[], bool] = PARTS.find(
    "torch._C:_functorch._is_vmap_fallback_enabled", instead=lambda: True, loses=_LOOPS
)
_let_loop: Callable[[bool], None] = PARTS.find(
    "torch._C:_functorch._set_vmap_fallback_enabled", instead=lambda _is_enabled: None, loses=_LOOPS
)


@contextmanager
def only_mapped_operators() -> Iterator[None]:
    """Make operators that torch could only map one by one an error."""
    before = _is_looping()
    # Torch would warn and loop. A loop over micro-batches gains nothing, and replay has a faster one.
    _let_loop(False)
    try:
        yield
    finally:
        _let_loop(before)
