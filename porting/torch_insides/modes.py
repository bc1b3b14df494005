"""Name the private parts of torch that switch its modes and dispatch off and on; capture and engines use them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple

import torch

from .parts import Parts

__all__ = [
    "DISABLED_TORCH_FUNCTION",
    "PARTS",
    "PRE_DISPATCH",
    "PROXY_MODE",
    "DisablePythonDispatcher",
    "DisableTorchDispatch",
    "DisableTorchFunction",
    "DisableTorchFunctionSubclass",
    "EnableTorchFunction",
    "TorchDispatchMode",
    "count_function_modes",
    "disable_current_modes",
    "find_top_function_mode",
    "is_torch_function_disabled",
    "probe",
]

PARTS = Parts("no step can be captured")
probe = PARTS.probe

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
else:
    TorchDispatchMode = PARTS.find("torch.utils._python_dispatch:TorchDispatchMode")

_OLDER: Any = getattr(torch._C, "DisableTorchFunction", None)
DisableTorchFunctionSubclass: Any = PARTS.find(
    "torch._C:DisableTorchFunctionSubclass",
    instead=_OLDER,
    loses="function modes of the program do not see operators that this package calls",
)
DisableTorchFunction: Any = PARTS.find(
    "torch._C:DisableTorchFunction",
    instead=DisableTorchFunctionSubclass,
    loses="function modes of the program see what the device computes",
)
EnableTorchFunction: Any = PARTS.find(
    "torch._C:_EnableTorchFunction",
    instead=nullcontext,
    loses="function modes do not see what a custom operator computes on the host",
)


def _call_below_functions(
    _kind: object,
    func: Callable[..., Any],
    _types: object,
    args: Tuple[Any, ...] = (),
    kwargs: Optional[Dict[str, Any]] = None,
) -> Any:
    with DisableTorchFunctionSubclass():
        return func(*args, **(kwargs or {}))


DISABLED_TORCH_FUNCTION: Any = PARTS.find(
    "torch._C:_disabled_torch_function_impl",
    instead=classmethod(_call_below_functions),
    loses="each function of a tensor under capture takes some microseconds more",
)
"""The `__torch_function__` of a class of tensors that has none of its own."""

DisablePythonDispatcher: Any = PARTS.find("torch._C:_DisablePythonDispatcher")
DisableTorchDispatch: Any = PARTS.find(
    "torch._C:_DisableTorchDispatch", loses="operators that give a tensor another shape in place are refused"
)
disable_current_modes: Any = PARTS.find("torch.utils._python_dispatch:_disable_current_modes")

is_torch_function_disabled: Callable[[], bool] = PARTS.find(
    "torch._C:_is_torch_function_all_disabled",
    instead=lambda: False,
    loses="`torch.range` in a function of the host that `forward` calls is recorded",
)

PRE_DISPATCH: Any = PARTS.find("torch._C:DispatchKey.PreDispatch")
"""The key of the modes that see operators before autograd does."""

PROXY_MODE: Any = PARTS.find("torch._C:_TorchDispatchModeKey.PROXY")
"""By this torch tells its own tracing mode, the only one that it admits before autograd."""

count_function_modes: Callable[[], int] = PARTS.find(
    "torch._C:_len_torch_function_stack",
    instead=lambda: 0,
    loses="function modes of the program are not looked for, and those of this package are not joined",
)
"""Return how many function modes are in force."""

_get_function_mode: Callable[[int], Any] = PARTS.find(
    "torch._C:_get_function_stack_at",
    instead=lambda _position: None,
    loses="function modes of this package are not joined, and each function passes them one by one",
)


def find_top_function_mode() -> Any:
    """Return the function mode that torch asks first; None where there is none."""
    depth = count_function_modes()
    return _get_function_mode(depth - 1) if depth else None
