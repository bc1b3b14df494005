"""The tensor that `forward` sees while it is captured: it has a shape, a type and a device, but no value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..diagnostics import CaptureError, caller_place

if TYPE_CHECKING:
    from .recorder import Recorder

__all__ = ["IPU", "DeviceTensor", "is_device"]

IPU = torch.device("ipu:0")


class DeviceTensor(torch.Tensor):
    """A handle on a node of the graph under capture.

    To torch's C++ side it is a CPU tensor without storage, because no torch build has kernels or guards for `ipu`;
    Python code reads `device` from here. `inner` is the fake tensor that shape rules run on, `node` its graph node.
    """

    inner: torch.Tensor
    node: torch.fx.Node
    recorder: Recorder

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor, node: torch.fx.Node, recorder: Recorder) -> DeviceTensor:
        """Wrap the fake tensor `inner`, the value of `node` in `recorder`'s graph."""
        self = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=torch.device("cpu")
        )
        self.inner, self.node, self.recorder = inner, node, recorder
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The simulated device, `ipu:0`."""
        return IPU

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        """False: the tensor lives on the device."""
        return False

    @property
    def is_ipu(self) -> bool:  # type: ignore[override]
        """True: the tensor lives on the device."""
        return True

    @property
    def requires_grad(self) -> bool:  # type: ignore[override]
        """Whether a gradient path from a trainable parameter leads here."""
        return self.recorder.tracks_gradient(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        self.recorder.on_print(self)
        return f"tensor(<unavailable>, device='{IPU}', size={tuple(self.shape)}, dtype={self.dtype})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Refuse operators that reach the tensor outside its capture.

        While it lasts the recorder gets every operator first, save one: torch's factories take a shallow copy of what
        the recorder gave them when it holds on to it.
        """
        if func is torch.ops.aten.detach.default and args[0].recorder.is_active:
            return args[0].recorder.shallow_copy(args[0])
        raise CaptureError.of(
            "C014",
            message=f"`{func}` got a device tensor that belongs to a finished capture",
            place=caller_place(),
            notes=("device tensors have no value and live only while `forward` is captured",),
            help="return the tensor from `forward` instead of storing it on the module or in a list",
        )


def is_device(device: Any) -> bool:
    """Tell whether `device` (a string, a torch.device or None) names the IPU."""
    if isinstance(device, torch.device):
        return device.type == "ipu"
    return isinstance(device, str) and device.split(":")[0] == "ipu"
