"""Name how torch's compiler is told to leave a function alone, without loading it; public functions of ports use it."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from .parts import Parts

__all__ = ["PARTS", "leave_uncompiled", "probe"]

PARTS = Parts("`torch.compile` around a port looks into it")
probe = PARTS.probe

_HERE = "torch._C:_dynamo.eval_frame"
_choose: Any = PARTS.find(f"{_HERE}.set_code_exec_strategy", instead=None)
_strategy: Any = PARTS.find(f"{_HERE}._FrameExecStrategy", instead=None)
_skip: Any = PARTS.find(f"{_HERE}._FrameAction.SKIP", instead=None)


def leave_uncompiled(function: FunctionType, reason: str) -> None:
    """Let `torch.compile` neither look into a function nor into what it calls, and say `reason` to who asks it to.

    A torch without these marks, as 2.0, compiles as it likes.
    """
    if None in (_choose, _strategy, _skip):
        return
    # the first is for the function itself, the second for what it calls
    _choose(function.__code__, _strategy(_skip, _skip))
    # a caller that is compiled asks for these before it looks into the function
    vars(function).update(_torchdynamo_disable=True, _torchdynamo_disable_msg=reason)
