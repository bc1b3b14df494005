"""An executor's weights on their way between host and device, and those that it takes over from a training executor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence

from ...engines.calls.device_state import DeviceState
from .._logging import logger
from ..errors import createPoptorchError
from .host_weights import download_weights, fetch_other_owners, upload_weights, weights_version

if TYPE_CHECKING:
    from .._poplar_executor import PoplarExecutor

__all__ = [
    "copy_named_buffers_to_device",
    "copy_weights_to_device",
    "copy_weights_to_host",
    "copy_weights_to_host_if_needed",
    "follow_training_model",
    "send_weights",
]


def copy_weights_to_host(executor: PoplarExecutor) -> None:
    """Fetch all parameters and buffers; raises `poptorch.Error` without an executable and without the device."""
    state = _require_device(executor)
    # First, because looking at a wrapped tensor fetches what is out of date.
    executor._dirty_host_weights = False
    if not executor._training:
        # Or the next look would replace what is fetched now by what was trained before.
        fetch_other_owners(executor._user_model, executor)
    download_weights(executor._user_model, state)
    if executor._owner is not None:
        executor._owner.version += 1
        executor._host_weights_version = executor._owner.version


def copy_weights_to_device(executor: PoplarExecutor) -> None:
    """Send all parameters and buffers; what was trained and not fetched is lost."""
    _require_device(executor)
    executor._dirty_host_weights = False
    executor._device_optimizer.read_state()
    send_weights(executor)


def copy_weights_to_host_if_needed(executor: PoplarExecutor) -> bool:
    """Fetch the weights, through the executor's own method, if the host's are out of date; tell whether they were."""
    # Asked without the lock: an executor that waits for another one has nothing to fetch, so none wait for each other.
    if not executor._dirty_host_weights:
        return False
    with executor._lock:
        is_needed = executor._dirty_host_weights
        if is_needed:
            logger.debug("Implicit copyWeightsToHost()")
            executor.copyWeightsToHost()
    return is_needed


def copy_named_buffers_to_device(executor: PoplarExecutor) -> None:
    """Send the buffers that `Options.updatableNamedBuffers` lists; `poptorch.Error` if it lists none."""
    state = _require_device(executor)
    names: Optional[Sequence[str]] = executor._options._Popart.options.get("updatableNamedBuffers")
    if not names:
        raise createPoptorchError("No named buffers marked as updatable via updatableNamedBuffers option")
    upload_weights(executor._user_model, state, names=names)


def _require_device(executor: PoplarExecutor) -> DeviceState:
    """Return the state of the executor's device; a device that was given free has nothing that may be copied."""
    compiled = executor._require_compiled()
    if not executor._is_attached:
        raise createPoptorchError("Device is not attached")
    return compiled.state


def send_weights(executor: PoplarExecutor) -> None:
    """Send the host's weights as they are, once the other executors that own some of them have brought theirs."""
    fetch_other_owners(executor._user_model, executor)
    upload_weights(executor._user_model, executor._require_compiled().state)


def follow_training_model(executor: PoplarExecutor) -> None:
    """Bring an inference executor's weights up to date with the training executor that owns its model's."""
    fetch = getattr(executor._model, "copyWeightsToHostIfNeeded", None)
    if not callable(fetch):
        return
    fetch()
    version = weights_version(executor._model)
    if version is not None and version != executor._host_weights_version:
        logger.debug("Implicit copyWeightsToDevice()")
        executor.copyWeightsToDevice()
        executor._host_weights_version = version
