"""The mode that sees operators as they are called, before autograd takes them apart."""

from __future__ import annotations

from typing import Any, List

from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode

from ..support.compiler_loading import load_compiler_late
from ..torch_insides.modes import PRE_DISPATCH, PROXY_MODE, TorchDispatchMode

__all__ = ["OperatorMode"]


class OperatorMode(ProxyTorchDispatchMode):
    """Calls `__torch_dispatch__` of a derived class with each operator.

    torch admits only its own modes before autograd, hence the base class; nothing of its tracing is used, nor its
    constructor, which loads torch's compiler.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        load_compiler_late(cls.__dict__.get("__torch_dispatch__"))

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self, PRE_DISPATCH)
        self.pre_dispatch = True
        self._mode_key = PROXY_MODE
        self.enter_stack: List[Any] = []
