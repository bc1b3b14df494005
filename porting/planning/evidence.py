"""This module says what of a step the published evidence does not cover, so that a plan claims nothing of it.

The memory model was compared with some 80 released configurations of BERT, GPT-2, ViT, ResNet and their like, on 1 to
16 IPUs of a replica, and with three measured profiles.
"""

from __future__ import annotations

from typing import Iterator

from ..machines import Machine, collect_chips
from .memory_model import Layout
from .step_memory import StepMemory

__all__ = ["iter_reasons_outside"]

_MOST_IPUS = 16
_MOST_REPLICAS = 64
_MOST_PRODUCTS = 400
_RARE = ("lstm", "gru", "rnn", "fft", "scatter", "index_add", "segment", "sort", "topk", "ctc", "grid_sample")


def iter_reasons_outside(step: StepMemory, layout: Layout, machine: Machine) -> Iterator[str]:
    """List the reasons for which the evidence does not cover this layout of a step on this machine."""
    if machine.chip.name not in collect_chips():
        yield f"no configuration of `{machine.chip.name}` is known"
    if layout.num_ipus > _MOST_IPUS:
        yield f"a replica of {layout.num_ipus} IPUs; the largest known has {_MOST_IPUS}"
    if machine.num_chips // layout.num_ipus > _MOST_REPLICAS:
        yield f"{machine.num_chips // layout.num_ipus} replicas; the most known are {_MOST_REPLICAS}"
    names = sorted({name for name in step.operators if any(rare in name for rare in _RARE)})
    if names:
        yield f"operators of which no configuration is known: {', '.join(names)}"
    most = max(
        sum(operation.is_product for operation in step.operations[first:end])
        for _ipu, first, end in layout.iter_stages(len(step.operations))
    )
    if most > _MOST_PRODUCTS:
        yield f"{most} products of matrices on one IPU, whose code may not be alike"
