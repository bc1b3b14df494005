"""Running statistics of replicas: each has its own, and the host gets those of one."""

from __future__ import annotations

from typing import Tuple

from torch import nn

from porting.diagnostics import Finding, caller_place
from porting.options import PortOptions

__all__ = ["note_statistics_of_one_replica"]


def note_statistics_of_one_replica(model: nn.Module, options: PortOptions) -> Tuple[Finding, ...]:
    """Return the finding P011 if replicas of `model` update running statistics and nobody has said that they may.

    Gradients are exchanged between replicas, statistics are not. `broadcast_buffers=False` says that this is meant.
    """
    if options.replicas == 1 or not options.broadcast_buffers:
        return ()
    norms = [name for name, module in model.named_modules() if _updates_statistics(module)]
    if not norms:
        return ()
    others = f" and {len(norms) - 1} more" if len(norms) > 1 else ""
    finding = Finding(
        "P011",
        place=caller_place(),
        label="this port",
        notes=(
            f"`{norms[0]}`{others}: each of the {options.replicas} replicas has statistics of its own micro-batches",
            "those of the first come to the host: into `state_dict()`, and to the port's inference",
        ),
        help="say that this is meant: `PortOptions(broadcast_buffers=False)`",
    )
    return (finding,)


def _updates_statistics(module: nn.Module) -> bool:
    return isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats and module.training
