"""Implement `CPU`, a Python function that the host runs in the middle of a graph."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from ...capture.device_tensor import DeviceTensor
from ...capture.recording.recorder import Recorder
from ...structure import flatten_tensors, rebuild
from ...torch_insides.modes import DisableTorchFunction, EnableTorchFunction, disable_current_modes
from .._logging import logger
from ..custom_ops import make_list
from ..errors import createPoptorchError, native_error
from .op_library import copy_list, define_operator, do_nothing

__all__ = ["CPU"]

# What a layer is called with: positional and named arguments.
_Arguments = Tuple[Sequence[Any], Mapping[str, Any]]


class CPU:
    """Calls `layer_to_call` on the host, wherever it is called in `forward`; for inference, since no gradient passes.

    The layer is called once while the model is compiled, with zeros, to learn what it returns, and then with the real
    values for each micro-batch. It always gets CPU tensors. If it is a module its parameters become frozen.
    """

    def __init__(self, layer_to_call: Callable[..., Any], ID: str) -> None:
        """Prepare calls of `layer_to_call`, known as `ID`."""
        self._layer_to_call = layer_to_call
        self._ID = ID
        self.in_shapes: List[Sequence[int]] = []
        self.out_shapes: List[Sequence[int]] = []
        self.inputs: List[torch.Tensor] = []
        self.outputs: List[torch.Tensor] = []
        self._arguments: Optional[_Arguments] = None
        if isinstance(layer_to_call, nn.Module):
            # no gradient comes back to it from the device
            for parameter in layer_to_call.parameters():
                parameter.requires_grad_(False)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Put the call into the graph, or make it without one; return a tensor if the layer does, else a list."""
        _check_none_is_open()
        arguments = (args, kwargs)
        tensors = flatten_tensors(arguments)
        if not any(isinstance(tensor, DeviceTensor) for tensor in tensors):
            return self._layer_to_call(*args, **kwargs)
        try:
            torch.ops.poptorch.call_cpu_op(tensors, self._ID)
            result = self._learn_outputs(arguments, tensors)
            # beside the operator, whose schema has no place for a Python object
            _open_call.call = _HostCall(self, arguments)
            outputs = torch.ops.poptorch.end_cpu_op(self.outputs)
        finally:
            _open_call.inputs = _open_call.call = None
        return outputs[0] if isinstance(result, torch.Tensor) else list(outputs)

    def registerPersistentData(self) -> None:
        """Make the tensors that each call reads from and writes to: zeros of `in_shapes` and `out_shapes`."""
        self.inputs = [torch.zeros(tuple(shape)) for shape in self.in_shapes]
        self.outputs = [torch.zeros(tuple(shape)) for shape in self.out_shapes]

    def execute(self) -> None:
        """Call the layer on `inputs` and copy its results into `outputs`."""
        args, kwargs = (self.inputs, {}) if self._arguments is None else self._arguments
        for buffer, value in zip(self.outputs, make_list(self._layer_to_call(*args, **kwargs))):
            buffer.copy_(value)

    def _learn_outputs(self, arguments: _Arguments, tensors: Sequence[torch.Tensor]) -> Any:
        """Call the layer on zeros, and prepare the tensors for the real calls."""
        recorder: Any = next(tensor.recorder for tensor in tensors if isinstance(tensor, DeviceTensor))
        with _run_on_host(recorder, self._layer_to_call):
            zeros = [torch.zeros(tensor.shape, dtype=tensor.dtype) for tensor in tensors]
            args, kwargs = rebuild(arguments, zeros)
            result = self._layer_to_call(*args, **kwargs)
            values = make_list(result)
            for value in values:
                if not isinstance(value, torch.Tensor) or isinstance(value, DeviceTensor):
                    raise createPoptorchError(f"A CPU op must return tensors of the CPU, got {type(value).__name__}.")
            self.in_shapes = [tuple(tensor.shape) for tensor in tensors]
            self.out_shapes = [tuple(value.shape) for value in values]
            self.registerPersistentData()
            # float32 until here: the layer gets, and writes, tensors of the types that there are on the device
            self.inputs = [buffer.to(zero.dtype) for buffer, zero in zip(self.inputs, zeros)]
            types = [recorder.make_fake((), value.dtype).dtype for value in values]
            self.outputs = [buffer.to(dtype) for buffer, dtype in zip(self.outputs, types)]
        return result


@contextmanager
def _run_on_host(recorder: Any, layer: Any) -> Iterator[None]:
    """Let Python code run as if no model were traced: modules have their own weights, factories make CPU tensors."""
    roots = [module for _path, module in recorder.module_stack[:1]]
    roots += [layer] if isinstance(layer, nn.Module) else []
    modules = {id(module): module for root in roots for module in root.modules()}.values()
    # the layer, or a module that it calls, may be part of the model, whose tensors are the device's during the trace
    with ExitStack() as restored:
        for registry in (tensors for module in modules for tensors in (module._parameters, module._buffers)):
            device_values = {name: value for name, value in registry.items() if isinstance(value, DeviceTensor)}
            restored.callback(registry.update, device_values)
            registry.update({name: recorder.host_of(value) for name, value in device_values.items()})
        with disable_current_modes(), DisableTorchFunction(), torch.no_grad():
            yield


def _check_none_is_open() -> None:
    if _open_call.inputs is not None:
        raise native_error("Trying to enter CPU from another CPU op! CPU ops must not overlap.")


# -- on the device -----------------------------------------------------------------------------------------------------


class _OpenCall(threading.local):
    """The call that this thread is recording: its inputs, and what will run."""

    inputs: Optional[List[torch.Tensor]] = None
    call: Optional[_HostCall] = None


_open_call = _OpenCall()


class _HostCall:
    """One place in a graph where a `CPU` is called, with the tensors for its data."""

    def __init__(self, cpu: CPU, arguments: _Arguments) -> None:
        self.cpu = cpu
        self.data = {name: getattr(cpu, name) for name in ("in_shapes", "out_shapes", "inputs", "outputs")}
        self.data["_arguments"] = rebuild(arguments, cpu.inputs)


def call_cpu_op(call: _HostCall, inputs: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Call the layer of one place in a graph, in the tensors made for it; return copies of its results."""
    cpu = call.cpu
    # one `CPU` may be called at several places of a graph: it shows the data of the latest call
    vars(cpu).update(call.data)
    for buffer, value in zip(cpu.inputs, inputs):
        buffer.copy_(value)
    # engines switch torch functions off while they run a graph; the layer is ordinary code of the user's
    with EnableTorchFunction(), torch.no_grad():
        cpu.execute()
    # copies: the next call writes into the same buffers
    return [output.clone() for output in cpu.outputs]


def _begin_call(_recorder: object, inputs: Sequence[torch.Tensor], _identifier: str) -> None:
    _check_none_is_open()
    _open_call.inputs = list(inputs)


def _end_call(recorder: Recorder, outputs: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    if _open_call.inputs is None or _open_call.call is None:
        raise native_error("poptorch::end_cpu_op ends what nothing began, is the IR malformed?")
    if recorder.is_training:
        logger.warning("poptorch.CPU is for inference: what comes before it in forward gets no gradient through it.")
    inputs = [
        tensor if isinstance(tensor, DeviceTensor) else recorder.add_constant(tensor) for tensor in _open_call.inputs
    ]
    fakes = [recorder.make_fake(output.shape, output.dtype) for output in outputs]
    return list(recorder.call_function(call_cpu_op, (_open_call.call, inputs), fakes))


define_operator("call_cpu_op(Tensor[] inputs, str id) -> ()", do_nothing, record=_begin_call)
define_operator("end_cpu_op(Tensor[] outputs) -> Tensor[]", copy_list, record=_end_call)
