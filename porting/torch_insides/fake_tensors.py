"""Name torch's tensors without values, which are not public; capture, planning and compiled engines use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .parts import Parts

__all__ = [
    "PARTS",
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "probe",
    "unset_fake_temporarily",
]

PARTS = Parts("no step can be captured")
probe = PARTS.probe

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import DataDependentOutputException as DataDependentOutputException
    from torch._subclasses.fake_tensor import DynamicOutputShapeException as DynamicOutputShapeException
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
else:
    _HOME = "torch._subclasses.fake_tensor"
    FakeTensor = PARTS.find(f"{_HOME}:FakeTensor")
    FakeTensorMode = PARTS.find(f"{_HOME}:FakeTensorMode")

    class _NeverRaised(Exception):  # noqa: N818 - it is no error
        """Stands for an exception of torch's that is gone."""

    _LOSS = "an operator whose result depends on values is refused in torch's words"
    DataDependentOutputException = PARTS.find(
        f"{_HOME}:DataDependentOutputException", instead=_NeverRaised, loses=_LOSS
    )
    DynamicOutputShapeException = PARTS.find(f"{_HOME}:DynamicOutputShapeException", instead=_NeverRaised, loses=_LOSS)

unset_fake_temporarily: Any = PARTS.find(
    "torch._subclasses.fake_tensor:unset_fake_temporarily", loses="steps that draw random numbers are replayed"
)
