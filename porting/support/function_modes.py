"""Define function modes that change few of torch's functions, and cost little for all the others.

torch calls each mode on its stack for each function, and restarts functions that are written in Python for each of
them. Adjacent modes of this kind are one mode for torch, which passes on the functions that concern none of them.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from torch.overrides import TorchFunctionMode

from ..torch_insides.modes import find_top_function_mode

__all__ = ["Args", "Kwargs", "SelectiveMode"]

Args = Tuple[Any, ...]
"""What a call is given by position."""

Kwargs = Dict[str, Any]
"""What a call is given by name."""


class SelectiveMode(TorchFunctionMode):
    """A function mode whose `__torch_function__` gets the calls that concern it, and perhaps others."""

    def concerns(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> bool:
        """Tell whether this mode does anything but pass the call on."""
        raise NotImplementedError

    def __enter__(self) -> Any:
        """Enter the mode above the present ones."""
        top = find_top_function_mode()
        if not isinstance(top, _JoinedModes):
            top = _JoinedModes()
            top.__enter__()
        top.modes.append(self)
        vars(self).setdefault("_joined", []).append(top)
        return self

    def __exit__(self, *exception: Any) -> None:
        """Leave the mode, which must be the last one entered."""
        top = vars(self)["_joined"].pop()
        assert find_top_function_mode() in (top, None), "modes end in another order than they began"
        top.modes.remove(self)
        if not top.modes:
            top.__exit__(*exception)


class _JoinedModes(TorchFunctionMode):
    """The one mode on torch's stack for `modes`, the innermost of which is the last."""

    def __init__(self) -> None:
        super().__init__()
        self.modes: List[SelectiveMode] = []

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
    ) -> Any:
        kwargs = kwargs or {}
        for mode in self.modes:
            if mode.concerns(func, args, kwargs):
                return self._call_each(func, args, kwargs)
        return func(*args, **kwargs)

    def _call_each(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
        """Call `func` with all modes on torch's stack, where each of them sees what the inner ones call."""
        with ExitStack() as stack:
            for mode in self.modes:
                TorchFunctionMode.__enter__(mode)
                stack.callback(TorchFunctionMode.__exit__, mode, None, None, None)
            return func(*args, **kwargs)
