"""The tensor that `forward` sees while it is captured: it has a shape, a type and a device, but no value."""

from __future__ import annotations

from typing import Any, Optional, Protocol, Sequence

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from ..diagnostics import CaptureError
from ..support.function_modes import Args, Kwargs
from ..torch_insides.modes import DISABLED_TORCH_FUNCTION
from ..torch_insides.operators import OpOverload
from ..torch_insides.tensors import make_wrapper
from ..torch_insides.trees import tree_leaves
from .errors import Refusal, add_note

__all__ = ["IPU", "DeviceTensor", "is_device", "is_host_tensor"]

IPU = torch.device("ipu:0")


class _GradientFacts(Protocol):
    def tracks_gradient(self, tensor: DeviceTensor) -> bool:
        """Tell whether a gradient path from a trainable parameter leads to `tensor`."""


class _Recording(Protocol):
    """The capture that a device tensor belongs to, as far as the tensor itself needs it."""

    is_active: bool

    @property
    def facts(self) -> _GradientFacts:
        """What is known of its tensors."""

    def shallow_copy(self, tensor: DeviceTensor) -> DeviceTensor:
        """Return another handle on the same node."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
    ) -> Any:
        """Record an operator."""


class DeviceTensor(torch.Tensor):
    """A handle on a node of the graph under capture.

    To torch's C++ side it is a CPU tensor without storage, because no torch build has kernels or guards for `ipu`;
    Python code reads `device` from here. `fake` is the tensor that shape rules run on, `node` its graph node.
    """

    fake: torch.Tensor
    node: torch.fx.Node
    recorder: _Recording

    # the capture decides what becomes of the backward of a custom autograd function
    keeps_backward = True

    # the function mode sees every call already, and each look at the tensor is one more
    __torch_function__ = DISABLED_TORCH_FUNCTION

    @staticmethod
    def __new__(cls, fake: torch.Tensor, node: torch.fx.Node, recorder: _Recording) -> DeviceTensor:
        """Wrap the fake tensor `fake`, the value of `node` in `recorder`'s graph."""
        self = make_wrapper(cls, fake.shape, strides=fake.stride(), dtype=fake.dtype, device=torch.device("cpu"))
        self.fake, self.node, self.recorder = fake, node, recorder
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
    def requires_grad(self) -> bool:
        """Whether a gradient path from a trainable parameter leads here."""
        return self.recorder.facts.tracks_gradient(self)

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        if has_torch_function_unary(self):
            # modes see that the tensor is printed: the recorder's own, and those of adapters that forbid it
            to_text: Any = torch.Tensor.__repr__
            return str(handle_torch_function(to_text, (self,), self))
        return self.describe()

    def describe(self) -> str:
        """Return what can be said of the tensor in place of its value."""
        return f"tensor(<unavailable>, device='{IPU}', size={tuple(self.shape)}, dtype={self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: OpOverload,
        types: Sequence[type],
        args: Args = (),
        kwargs: Optional[Kwargs] = None,
    ) -> Any:
        """Record operators that come past the recorder: those inside `torch.func`'s transforms, taken apart.

        Raises CaptureError C014 once the capture is over.
        """
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, DeviceTensor)]
        # the operator has come past the mode, so that the tensors themselves must know their capture
        recorder = tensors[0].recorder
        if not recorder.is_active:
            raise Refusal.FINISHED_CAPTURE.error(operator=func)
        if func is torch.ops.aten.detach.default and not recorder.facts.tracks_gradient(tensors[0]):
            return recorder.shallow_copy(tensors[0])  # torch's factories do so with what they are to return
        try:
            return recorder.__torch_dispatch__(func, types, args, kwargs)
        except CaptureError as error:
            add_note(error, "a transform of `torch.func` (`vmap`, `grad`, ...) put this operator there")
            raise


# torch names the types of arguments in its errors, and on the device these are plain tensors
DeviceTensor.__name__ = DeviceTensor.__qualname__ = "Tensor"


def is_device(device: object) -> bool:
    """Tell whether `device` (a string, a torch.device or None) names the IPU."""
    if isinstance(device, torch.device):
        return device.type == "ipu"
    return isinstance(device, str) and device.split(":")[0] == "ipu"


def is_host_tensor(value: object) -> bool:
    """Tell whether `value` is a tensor of the host, which has values."""
    return isinstance(value, torch.Tensor) and not isinstance(value, DeviceTensor)
