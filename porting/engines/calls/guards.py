"""Keep the caller's modes, threads and random stream apart from the device's while a call runs.

Executables put these guards around each call.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, ContextManager, Iterator, Optional

import torch

from .device_state import DeviceState

__all__ = ["draw_from_stream_of", "make_recordable", "shut_out_host_modes"]

# shared: it has no state, and most calls need no other
_NOTHING: ContextManager[Any] = nullcontext()


def shut_out_host_modes(num_threads: Optional[int] = None) -> ContextManager[Any]:
    """Return a context without the caller's inference mode and autocast, with `num_threads` threads if given.

    A device knows neither mode. Inside, operators compute in the types that were captured, and tensors that outlive the
    call can be written to and differentiated later. This is the one place that says which modes those are; whoever runs
    a graph enters it, and entering it twice costs two looks at a flag.
    """
    changes_threads = num_threads is not None and num_threads != torch.get_num_threads()
    is_inference, is_autocast = torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu")
    if not (changes_threads or is_inference or is_autocast):
        return _NOTHING
    contexts = ExitStack()
    if changes_threads and num_threads is not None:
        contexts.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(num_threads)
    # only where it is on: entering the mode, even to turn it off, takes longer than looking
    if is_inference:
        contexts.enter_context(torch.inference_mode(False))
    if is_autocast:
        contexts.enter_context(torch.autocast("cpu", enabled=False))
    return contexts


def make_recordable(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor`, or a copy that gradients can be computed with if it was made in inference mode."""
    return tensor.clone() if tensor.is_inference() else tensor


# Torch has one generator for all threads; re-entrant for a callback that runs another model.
_one_stream_at_a_time = threading.RLock()


@contextmanager
def draw_from_stream_of(state: DeviceState) -> Iterator[None]:
    """Let random operators draw from the device's stream; without a seed it starts where the host's stands."""
    with _one_stream_at_a_time:
        # Operators draw from torch's global generator, so the device's stream has to be put there for the call.
        host = torch.get_rng_state()
        if state.rng_state is not None:
            torch.set_rng_state(state.rng_state)
        try:
            yield
            # only after a whole call: one that failed leaves the stream where it was
            state.rng_state = torch.get_rng_state()
        finally:
            torch.set_rng_state(host)
