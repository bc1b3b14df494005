"""One run of `forward` with a recorder in force, while torch and the model are as the device would have them."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Callable, ContextManager, Iterator, Optional, Sequence, Tuple

import torch
from torch import nn

from ..diagnostics import Finding
from ..structure import Structure, flatten_tensors, rebuild
from ..support.module_hooks import follow_modules
from ..torch_insides.autograd import optimized_execution
from ..torch_insides.operators import enable_python_dispatcher
from .autocast import enter_autocast
from .device_tensor import DeviceTensor
from .errors import Refusal
from .module_state import replace_state
from .recording.recorder import Recorder
from .torch_functions import DeviceFunctions
from .torch_patches import patch_torch

__all__ = ["ONE_AT_A_TIME", "ForwardRun", "Loss"]

Loss = Callable[[Any, Any], torch.Tensor]

ONE_AT_A_TIME = threading.RLock()
"""Held while `forward` runs so: parts of torch are exchanged for the whole process."""


@dataclass(frozen=True)
class ForwardRun:
    """What a run of `forward` is made of, as in `capture_step`; `arguments` are nested as the call's, with tensors."""

    model: nn.Module
    arguments: Tuple[Any, Any]
    loss: Optional[Loss] = None
    around: Callable[[], ContextManager[Any]] = nullcontext

    @contextmanager
    def begin(self, recorder: Recorder, report: Callable[[Finding], None], *, notes_paths: bool) -> Iterator[None]:
        """Exchange what `forward` is not to meet while the context lasts; `report` gets what it leaves behind.

        With `notes_paths` the nodes learn the paths of their modules.
        """
        with ExitStack() as contexts:
            contexts.enter_context(replace_state(self.model, recorder.device_of, report))
            contexts.enter_context(_record_operators(recorder))
            if notes_paths:
                contexts.enter_context(_note_paths(recorder, self.model))
            if recorder.casts.autocast is not None:
                contexts.enter_context(enter_autocast(recorder.casts.autocast))
            # innermost, so that the caller's context sees the model and torch as `forward` does
            contexts.enter_context(self.around())
            yield

    def call(self, inputs: Sequence[DeviceTensor]) -> Tuple[Any, Optional[DeviceTensor]]:
        """Run `forward` on `inputs`, and the loss if there is one; return the output, in which the loss is, and it."""
        # `forward` may change the lists and dictionaries that it gets
        args, kwargs = rebuild(self.arguments, inputs)
        output = self.model(*(args if self.loss is None else args[:-1]), **kwargs)
        if self.loss is None:
            return output, None
        loss = self.loss(output, args[-1])
        if not isinstance(loss, DeviceTensor):
            raise Refusal.LOSS_WITHOUT_TENSOR.error(kind=type(loss).__name__)
        return (output, loss), loss


@contextmanager
def _record_operators(recorder: Recorder) -> Iterator[None]:
    """Record operators and the Python surface of torch while the context lasts."""
    try:
        # scripted modules call their operators one by one without optimizations, so that each is seen
        with patch_torch(recorder), optimized_execution(False), enable_python_dispatcher():
            with recorder, DeviceFunctions(recorder):
                yield
    finally:
        # device tensors that `forward` has stored somewhere say from now on that they are of no use
        recorder.is_active = False


@contextmanager
def _note_paths(recorder: Recorder, model: nn.Module) -> Iterator[None]:
    """Tell the recorder whose `forward` is running while the context lasts."""
    paths = {id(module): name for name, module in model.named_modules()}

    def enter(module: nn.Module, _args: object) -> None:
        recorder.module_stack.append((paths.get(id(module), type(module).__name__), module))

    def leave(module: nn.Module, _args: object, output: Structure) -> None:
        path = paths.get(id(module))
        for tensor in flatten_tensors(output) if path else ():
            if isinstance(tensor, DeviceTensor):
                # who looks at the memory of a step asks which values a module ends with
                tensor.node.meta["ends"] = (*tensor.node.meta.get("ends", ()), path)
        # modules that were left by an exception which `forward` caught are still on top
        while recorder.module_stack and recorder.module_stack.pop()[1] is not module:
            pass

    with follow_modules(enter, leave):
        yield
