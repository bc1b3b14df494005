"""What Python code may do with device tensors during capture: devices, factories, and reads that cannot work."""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, Tuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name everybody uses
from torch.overrides import TorchFunctionMode

from ..diagnostics import CaptureError, Finding, caller_place
from .device_tensor import IPU, DeviceTensor, is_device
from .recorder import Recorder, host_read_error, host_tensor_error
from .structure import flatten_tensors

__all__ = ["DeviceFunctions"]

# Factories that make a device tensor when no device is named: the list PopTorch patches while it traces.
_FACTORIES: FrozenSet[Any] = frozenset(
    getattr(torch, name)
    for name in "arange empty full full_like linspace logspace ones rand randint randn randperm range tensor zeros "
    "zeros_like".split()
)

_FROM_DATA = frozenset([torch.tensor, torch.as_tensor, torch.asarray])

_HOST_READS: Dict[Any, str] = {
    torch.Tensor.item: "`.item()`",
    torch.Tensor.numpy: "`.numpy()`",
    torch.Tensor.tolist: "`.tolist()`",
    torch.Tensor.__bool__: "`bool(tensor)` (an `if`, `while`, `and` or `assert` on a tensor)",
    torch.Tensor.__int__: "`int(tensor)`",
    torch.Tensor.__float__: "`float(tensor)`",
    torch.Tensor.__index__: "using a tensor as an index of a Python sequence",
    torch.Tensor.__array__: "converting a tensor to a numpy array",
    torch.Tensor.__contains__: "`in` on a tensor",
    torch.Tensor.data_ptr: "`.data_ptr()`",
    torch.Tensor.untyped_storage: "`.untyped_storage()`",
}

_PRINTS = frozenset([torch.Tensor.__format__])

_AUTOGRAD_CALLS = frozenset(
    [torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward, torch.Tensor.register_hook]
)

# Losses that torch writes in Python, so that no single ATen operator stands for them.
_PYTHON_LOSSES = frozenset([F.multilabel_soft_margin_loss])


class DeviceFunctions(TorchFunctionMode):
    """The function mode that gives Python code the device's view while `recorder` writes down the operators."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self._handlers: Dict[Any, Callable[..., Any]] = {
            torch.Tensor.to: self._to,
            torch.Tensor.cpu: lambda tensor, *_args, **_kw: self._to(tensor, "cpu"),
            torch.Tensor.cuda: lambda tensor, *_args, **_kw: self._to(tensor, "cuda"),
            torch.Tensor.type: self._type,
            torch.Tensor.data.__get__: lambda tensor: tensor.detach(),  # type: ignore[attr-defined]
            torch.Tensor.__deepcopy__: lambda tensor, _memo: tensor.clone(),
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Apply the device's rules to one call of a torch function."""
        kwargs = dict(kwargs or {})
        subject = args[0] if args else None
        if isinstance(subject, DeviceTensor):
            self._refuse(func, subject)
            if func in self._handlers:
                return self._handlers[func](*args, **kwargs)
            if func is torch.Tensor.__getitem__ or func is torch.Tensor.__setitem__:
                self._check_indices(args[1])
        elif func is torch.Tensor.to and isinstance(subject, torch.Tensor):
            return self._to(subject, *args[1:], **kwargs)
        if func in _AUTOGRAD_CALLS:
            raise _autograd_error(func)
        is_factory = func in _FACTORIES or (func is torch.normal and not flatten_tensors((args, kwargs)))
        if is_factory or is_device(kwargs.get("device")):
            return self._make(func, args, kwargs)
        result = func(*args, **kwargs)
        if func in _PYTHON_LOSSES and isinstance(result, DeviceTensor):
            result.node.meta["is_loss"] = True
        return result

    def _refuse(self, func: Any, subject: DeviceTensor) -> None:
        if func in _HOST_READS:
            raise host_read_error(_HOST_READS[func])
        if func in _PRINTS:
            self.recorder.on_print(subject)

    def _check_indices(self, indices: Any) -> None:
        """Host tensors as indices are refused here: lists become tensors too, and those are constants."""
        for index in indices if isinstance(indices, tuple) else (indices,):
            if isinstance(index, torch.Tensor) and not isinstance(index, DeviceTensor) and index.dim() > 0:
                raise host_tensor_error(index)

    def _make(self, func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Any:
        """Run a factory: on the device when it is named there or nowhere."""
        if "device" in kwargs and not is_device(kwargs["device"]):
            return func(*args, **kwargs)
        if "device" not in kwargs:
            self._note_forced(func)
        kwargs["device"] = IPU
        if func not in _FROM_DATA:
            return func(*args, **kwargs)
        del kwargs["device"]
        if args and isinstance(args[0], DeviceTensor):
            return args[0].to(kwargs["dtype"]) if kwargs.get("dtype") else args[0].clone()
        kwargs.pop("requires_grad", None)
        return self.recorder.constant(func(*args, **kwargs))

    def _note_forced(self, func: Any) -> None:
        self.recorder.findings.append(
            Finding(
                "C011",
                message=f"No device set in torch.{func.__name__}(): forcing to IPU",
                place=caller_place(),
                help="name the device: `device=x.device`",
            )
        )

    def _to(self, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Move and cast: to the device makes a constant of a host tensor, back to the host cannot be captured."""
        device = kwargs.pop("device", None)
        rest = []
        for argument in args:
            if isinstance(argument, (str, torch.device)):
                device = argument
            elif isinstance(argument, torch.Tensor):
                device = argument.device
                rest.append(argument.dtype)
            elif argument is not None:
                rest.append(argument)
        if isinstance(tensor, DeviceTensor):
            if device is not None and not is_device(device):
                raise _move_error(device)
            return torch.Tensor.to(tensor, *rest, **kwargs) if rest or kwargs else tensor
        if device is not None and is_device(device):
            constant = self.recorder.constant(tensor)
            return torch.Tensor.to(constant, *rest, **kwargs) if rest or kwargs else constant
        return torch.Tensor.to(tensor, *args, **({"device": device} if device is not None and not args else {}), **kwargs)

    def _type(self, tensor: DeviceTensor, dtype: Any = None, **_kwargs: Any) -> Any:
        if dtype is None:
            return f"torch.ipu.{str(tensor.dtype).replace('torch.', '')}"
        if not isinstance(dtype, torch.dtype):
            name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
            dtype = torch.tensor([], device="cpu").type(name.replace("torch.cuda.", "torch.")).dtype
        return tensor.to(dtype)


def _move_error(device: Any) -> CaptureError:
    return CaptureError.of(
        "C004",
        message=f"`forward` moves a device tensor to `{device}`",
        place=caller_place(),
        label="a static graph cannot leave the device half way",
        help="return this tensor from `forward` as an output",
    )


def _autograd_error(func: Any) -> CaptureError:
    return CaptureError.of(
        "C007",
        message=f"`{getattr(func, '__qualname__', func)}` is called inside `forward`",
        place=caller_place(),
        label="the device differentiates the final loss itself, once, after `forward`",
        help="return the loss and let the training model differentiate it",
    )
