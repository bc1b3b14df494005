"""`PortedInference`: a ported model for inference, with an executable of its own and the weights of the training."""

from __future__ import annotations

from typing import Any

from .runner import Runner

__all__ = ["PortedInference"]


class PortedInference:
    """A ported model for inference: call it with the model's arguments (and labels, to get the loss as well).

    It has the weights of the training step, whenever it is called, and runs in eval mode. One executable serves one
    shape of batches.
    """

    def __init__(self, ported: object, runner: Runner) -> None:
        """Call `runner`, and keep `ported`, the model that it belongs to, alive as long as this is."""
        self._ported = ported
        self._runner = runner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's output for one batch; the first call compiles. No weight or buffer changes.

        Raises BatchError for a batch unlike the one compiled for (B001-B003), CaptureError for a model that no static
        graph can hold.
        """
        return self._runner.run(args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> float:
        """Compile for batches like this one and return the seconds it took; 0.0 when it is compiled already."""
        return self._runner.compile(args, kwargs)

    def destroy(self) -> None:
        """Drop the executable; the next call compiles anew, for any batch."""
        self._runner.destroy()

    @property
    def device_executor(self) -> Any:
        """The backend's executor; None while nothing is compiled."""
        return self._runner.executor

    def __repr__(self) -> str:
        return f"PortedInference of {self._ported!r}"
