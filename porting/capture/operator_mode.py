"""The mode that sees operators as they are called, before autograd takes them apart."""

from __future__ import annotations

from typing import Any, List

import torch
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.utils._python_dispatch import TorchDispatchMode

from ..support.compiler_loading import load_compiler_late

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
        TorchDispatchMode.__init__(self, torch._C.DispatchKey.PreDispatch)
        self.pre_dispatch = True
        self._mode_key = torch._C._TorchDispatchModeKey.PROXY
        self.enter_stack: List[Any] = []
