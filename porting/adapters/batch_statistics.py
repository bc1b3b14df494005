"""Findings about layers whose statistics are of the batch: padding enters them, and replicas do not exchange them."""

from __future__ import annotations

from typing import Optional, Tuple

from torch import nn

from porting.diagnostics import Finding, caller_place
from porting.options import PortOptions

__all__ = ["note_batchnorm", "note_statistics_of_one_replica"]


def note_batchnorm(model: nn.Module) -> Optional[Finding]:
    """Find the BatchNorm layers in training mode that padding would enter: a warning (B008), or None.

    The padding repeats sample 0, so batches with padding have other means and variances than their real samples, and
    the running statistics follow.
    """
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
    found = [name for name, module in model.named_modules() if isinstance(module, kinds) and module.training]
    names = [name or "the model itself" for name in found]
    if not names:
        return None
    shown = ", ".join(f"`{name}`" for name in names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return Finding(
        "B008",
        f"padded samples enter the batch statistics of {shown}",
        place=caller_place(),
        notes="the padding repeats sample 0: the loss ignores it, a mean over the batch does not",
        help=(
            "avoid padding: sizes that divide the dataset, or `drop_last=True`",
            "or use layers that look at one sample at a time, such as GroupNorm",
        ),
    )


def note_statistics_of_one_replica(model: nn.Module, options: PortOptions) -> Tuple[Finding, ...]:
    """Return the finding P011 if replicas of `model` update running statistics and the options do not allow that.

    Gradients are exchanged between replicas, statistics are not. `broadcast_buffers=False` says that this is meant.
    """
    if options.replicas == 1 or not options.broadcast_buffers:
        return ()
    norms = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.modules.batchnorm._NormBase) and module.track_running_stats and module.training
    ]
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
