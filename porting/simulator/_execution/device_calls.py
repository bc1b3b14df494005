"""One call of an executor: its arguments checked and handed to the executable, its results handed back."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, List, Sequence

import torch

from ...capture.dtypes import NARROWED
from ...engines.calls.guards import make_recordable, shut_out_host_modes
from .. import trouble
from .._args_parser import BoundArguments
from .._logging import cpp_log, logger
from ..errors import createPoptorchError, native_error
from .call_results import hand_back
from .compiler import CompiledModel

if TYPE_CHECKING:
    from .._poplar_executor import PoplarExecutor

__all__ = ["run_call"]


def run_call(executor: PoplarExecutor, bound: BoundArguments) -> Any:
    """Run the micro-batches of one call on an attached device; return the outputs nested as `forward` returned them.

    Raises `poptorch.Error` for arguments other than those that the model was compiled for.
    """
    compiled, signature = executor._require_compiled(), executor._signature
    assert signature is not None
    entered = perf_counter()
    signature.check(bound)
    hosts = bound.tensors(like=signature.arguments)
    inputs = [_device_input(executor, tensor) for tensor in hosts]
    if executor._training:
        executor._upload_optimizer_state()
    if trouble.injections:
        trouble.strike(trouble.Moment.CALL, training=executor._training, subject=executor)
    optimizer, anchors = executor._device_optimizer, compiled.anchors
    if anchors is not None:
        anchors.begin(compiled.plan)
    started = perf_counter()
    results = _execute(executor, compiled, inputs)
    ended = perf_counter()
    if anchors is not None:
        executor._anchor_memory = anchors.take(results, optimizer.hyper_parameters(), compiled.plan)
    if trouble.injections:
        trouble.strike(trouble.Moment.RESULT, training=executor._training, subject=executor, results=results)
    outputs = hand_back(compiled.graph, hosts, results)
    executor._call_times = (entered, started, ended, perf_counter())
    if executor._logs_cycles:
        cpp_log("info", f"Total number of IPU cycles: {executor.cycleCount()}")
    return outputs


def _execute(executor: PoplarExecutor, compiled: CompiledModel, inputs: Sequence[torch.Tensor]) -> List[torch.Tensor]:
    """Run the program, and note what is newer on the device then."""
    optimizer = executor._device_optimizer
    try:
        with shut_out_host_modes():
            results: List[torch.Tensor] = compiled.executable.run(
                compiled.state,
                [make_recordable(tensor) for tensor in inputs],
                compiled.plan,
                groups=optimizer.groups,
                group_names=optimizer.group_names,
            )
            return results
    except FloatingPointError as error:
        raise native_error(f"Floating-point exception: {error}", kind="poplar_unknown_runtime_error") from error
    finally:
        # A run that fails half way has done its first iterations.
        executor._host_rng_state_is_dirty = True
        if executor._training:
            executor._dirty_host_weights = True
            optimizer.mark_trained()


def _device_input(executor: PoplarExecutor, tensor: torch.Tensor) -> torch.Tensor:
    """Return an input in the device's type and layout."""
    if tensor.device.type != "cpu":
        raise createPoptorchError(f"Inputs must be on the CPU, got a tensor on {tensor.device}")
    if not tensor.is_contiguous():
        if not executor._warned_not_contiguous:
            executor._warned_not_contiguous = True
            logger.warning("At least one input tensor is not contiguous: non-contiguous tensors will be converted.")
        tensor = tensor.contiguous()
    tensor = tensor.detach() if tensor.requires_grad else tensor
    return tensor.to(NARROWED[tensor.dtype]) if tensor.dtype in NARROWED else tensor
