"""List the values that a choice may have for a step: memory formats, kinds of update and numbers of threads.

Replay is tried with them, and an engine's `list_choices` may offer the same.
"""

from __future__ import annotations

from contextlib import suppress
from typing import List, Optional

import torch

from ...capture import StepGraph
from ..calls.executable import BuildRequest
from ..calls.memory_format import LayoutError, put_channels_last
from ..replay.batched_micro_batches import count_value_bytes
from ..update.updates import has_fused_arithmetic

__all__ = ["choose_fewer_threads", "list_layouts", "list_updates"]

# A step of so few bytes is done before a second thread has begun.
_TINY_BYTES = 1 << 20


def list_layouts(graph: StepGraph) -> List[bool]:
    """Return the values that `channels_last` may have."""
    with suppress(LayoutError):
        put_channels_last(graph)
        return [False, True]
    return [False]


def list_updates(request: BuildRequest) -> List[bool]:
    """Return the values that `fused_update` may have."""
    return [False, True] if any(map(has_fused_arithmetic, request.groups)) else [False]


def choose_fewer_threads(graph: StepGraph) -> Optional[int]:
    """Return the number of threads that a tiny step may be faster with; None where that is torch's number."""
    is_tiny = count_value_bytes(list(graph.graph.nodes)) < _TINY_BYTES
    return 1 if is_tiny and torch.get_num_threads() > 1 else None
