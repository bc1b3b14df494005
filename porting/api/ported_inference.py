"""`PortedInference`: a ported model for inference, with an executable of its own and the weights of the training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .executor_handle import ExecutorHandle

if TYPE_CHECKING:
    from .ported_model import PortedModel

__all__ = ["PortedInference"]


class PortedInference:
    """A ported model for inference: call it with the model's arguments (and labels, to get the loss as well).

    It has the weights of the training step, whenever it is called, and runs in eval mode. One executable serves one
    shape of batches.
    """

    def __init__(self, ported: PortedModel, handle: ExecutorHandle) -> None:
        """Run `handle`, and keep `ported` alive as long as this is."""
        self._ported = ported
        self._handle = handle

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's output for one batch; the first call compiles. No weight or buffer changes.

        Raises BatchError for a batch unlike the one compiled for (B001-B003), CaptureError for a model that no static
        graph can hold.
        """
        return self._handle.run(args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> float:
        """Compile for batches like this one and return the seconds it took; 0.0 when it is compiled already."""
        return self._handle.compile(args, kwargs)

    def destroy(self) -> None:
        """Drop the executable; the next call compiles anew, for any batch."""
        self._handle.destroy()

    def __repr__(self) -> str:
        return f"PortedInference of {self._ported!r}"
