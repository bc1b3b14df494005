"""An executor takes its device, gives it free, and lets go of its executable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...host_tensors import host_tensors
from .. import trouble
from .._optimizer.device_optimizer import parameter_names
from .._weights.host_weights import owner_of, unwrap_model
from .._weights.weight_transfer import send_weights
from ..errors import createPoptorchError, native_error
from ..options import Options
from .device_pool import claim_device, release_device
from .device_target import counts_as_hardware, is_offline
from .random_stream import send_random_state

if TYPE_CHECKING:
    from .._poplar_executor import PoplarExecutor

__all__ = [
    "attach",
    "attach_again",
    "destroy",
    "detach",
    "leave_weights_behind",
    "refuse_to_run",
]


def refuse_to_run(options: Options) -> None:
    """Raise AssertionError for an offline device, and `poptorch.Error` for counting cycles without hardware."""
    if is_offline(options):
        raise AssertionError(
            "Trying to run a model on an offline device (ConnectionType.Never): use model.compile(inputs) instead of "
            "model(inputs)"
        )
    if options._Popart.options.get("instrumentWithHardwareCycleCounter") and not counts_as_hardware(options):
        raise native_error("Cycle count logging is only supported on actual IPU hardware.")


def attach_again(executor: PoplarExecutor) -> None:
    """Take the device after `detach`; AssertionError for an offline device, `poptorch.Error` if it is attached."""
    executor._require_compiled()
    if is_offline(executor._options):
        raise AssertionError("Trying to attach to an offline device (ConnectionType.Never)")
    if executor._is_attached:
        raise createPoptorchError("Device is already attached")
    attach(executor)


def attach(executor: PoplarExecutor) -> None:
    """Take the device, and send it the weights, the optimizer and the random state."""
    compiled = executor._require_compiled()
    if trouble.injections:
        trouble.strike(trouble.Moment.ATTACH, training=executor._training, subject=executor)
    if executor._claim is None:
        executor._claim = claim_device(executor._options, compiled.num_ipus)
    try:
        executor._dirty_host_weights = False
        send_weights(executor)
        if executor._training:
            executor._device_optimizer.attach(parameter_names(executor._user_model), compiled.state)
        executor._is_attached = True
        send_random_state(executor)
    except BaseException:
        release_device(executor)
        raise


def detach(executor: PoplarExecutor) -> None:
    """Fetch what is on the device and give it free; `poptorch.Error` if it is not attached."""
    executor._require_compiled()
    if not executor._is_attached:
        raise createPoptorchError("Device is not attached")
    executor._cached_rng_state = executor.rng_state
    if executor._training:
        executor.copyWeightsToHostIfNeeded()
        executor._device_optimizer.detach()
    release_device(executor)


def destroy(executor: PoplarExecutor) -> None:
    """Drop the executable; in training, fetch weights and optimizer state and give the model its own classes back."""
    if executor._compiled is None:
        return
    if executor._training:
        executor.copyWeightsToHostIfNeeded()
        executor._device_optimizer.destroy()
        if owner_of(executor._user_model) is executor:
            unwrap_model(executor._user_model)
    executor._compiled = None
    executor._signature = None
    executor._call_times = None
    release_device(executor)


def leave_weights_behind(executor: PoplarExecutor) -> None:
    """Keep what a forgotten executor trained: no tensor may be touched while garbage is collected."""
    owner, compiled = executor.__dict__.get("_owner"), executor.__dict__.get("_compiled")
    if owner is not None and "_device_optimizer" in executor.__dict__:
        executor._device_optimizer.leave_device()
    if owner is not None and compiled is not None and executor._dirty_host_weights:
        owner.leave_behind(compiled.state, {host.name: host.tensor for host in host_tensors(executor._user_model)})
