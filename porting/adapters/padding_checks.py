"""Check for what enters a training unseen: padding in the loss, and statistics of a batch or of a single replica.

`to_ipu` and `ported.dataloader` call the checks.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable, Optional, Set, Tuple

from torch import nn

from porting.adapters.labels import IGNORE_LABEL
from porting.diagnostics import BatchError, Finding, Severity, caller_place, join_names
from porting.options import PortOptions
from porting.torch_insides.modules import BATCH_NORMS, NORMS_WITH_STATE

__all__ = ["check_ignore_label", "note_batchnorm", "note_statistics_of_one_replica"]


def check_ignore_label(loss: Callable[..., Any], ignore_label: int = IGNORE_LABEL) -> Optional[Finding]:
    """Check that the loss ignores the padding's label.

    A loss that ignores another label, or one of torch's losses that ignores none (such as `MSELoss`), is a BatchError
    (B007). The number is looked for in `ignore_index`: an attribute of the loss or of the losses inside it, an
    argument given by `functools.partial`, or the default of a function's parameter. Where that does not tell, in code
    that is not torch's or in a loss that has other losses inside, the answer is a Finding, a warning; otherwise it is
    None.

    >>> check_ignore_label(nn.CrossEntropyLoss(ignore_index=255), ignore_label=255) is None
    True
    """
    found, name = _collect_ignore_indices(loss), _name_loss(loss)
    others = sorted(found - {ignore_label})
    if others:
        raise BatchError.at_caller(
            "B007",
            message=f"the padding's label is {ignore_label}, but the loss ignores {', '.join(map(str, others))}",
            help=(
                f"give the loss `ignore_index={ignore_label}`",
                f"or pad with the label it ignores: `FixedBatchDataset(dataset, batch_size, ignore_label={others[0]})`",
            ),
        )
    if found:
        modules = loss.modules() if isinstance(loss, nn.Module) else ()
        inside = sorted({f"`{_name_loss(module)}`" for module in modules if _never_ignores(module)})
        if not inside:
            return None
        return _make_warning(
            f"the padding enters a part of the loss: {', '.join(inside)} ignores no label",
            help="make sure that the loss leaves samples with the padding's label out of that part",
        )
    if _never_ignores(loss):
        raise BatchError.at_caller(
            "B007",
            message=f"`{name}` ignores no label, so the padding would enter the loss",
            notes=f"the padding's label is {ignore_label}",
            help=(
                "use a loss with `ignore_index`, such as `CrossEntropyLoss`",
                "or avoid padding: sizes that divide the dataset, or `drop_last=True`",
            ),
        )
    return _make_warning(
        f"whether `{name}` ignores the padding's label {ignore_label} cannot be seen from outside",
        notes=("a loss says so by an attribute or a parameter `ignore_index`",),
        help=f"make sure that samples with the label {ignore_label} do not enter the loss",
    )


def note_batchnorm(model: nn.Module) -> Optional[Finding]:
    """Find the BatchNorm layers in training mode that padding would enter: a warning (B008), or None.

    The padding repeats sample 0, so batches with padding have other means and variances than their real samples, and
    the running statistics follow.
    """
    modules = model.named_modules()
    names = [name or "the model itself" for name, each in modules if isinstance(each, BATCH_NORMS) and each.training]
    if not names:
        return None
    return Finding(
        "B008",
        f"padded samples enter the batch statistics of {join_names(names, most=3)}",
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
        if isinstance(module, NORMS_WITH_STATE) and module.track_running_stats and module.training
    ]
    if not norms:
        return ()
    finding = Finding(
        "P011",
        place=caller_place(),
        label="this port",
        notes=(
            f"{join_names(norms, most=1)}: each of the {options.replicas} replicas has statistics of its own "
            "micro-batches",
            "those of the first come to the host: into `state_dict()`, and to the port's inference",
        ),
        help="say that this is meant: `PortOptions(broadcast_buffers=False)`",
    )
    return (finding,)


def _make_warning(message: str, *, notes: Tuple[str, ...] = (), help: str) -> Finding:
    return Finding("B007", message, place=caller_place(), notes=notes, help=help, severity=Severity.WARNING)


def _collect_ignore_indices(loss: Callable[..., Any]) -> Set[int]:
    """Collect the labels that a loss says it ignores."""
    if isinstance(loss, functools.partial):
        given = loss.keywords.get("ignore_index")
        return _collect_ignore_indices(loss.func) if given is None else {given}
    own = getattr(loss, "ignore_index", None)
    if own is not None:
        return {own}
    if isinstance(loss, nn.Module):
        inside = (getattr(module, "ignore_index", None) for module in loss.modules())
        return {index for index in inside if index is not None}
    try:
        parameter = inspect.signature(loss).parameters.get("ignore_index")
    except (TypeError, ValueError):  # not callable, or built in and without a signature
        return set()
    return {parameter.default} if parameter is not None and isinstance(parameter.default, int) else set()


def _never_ignores(loss: Callable[..., Any]) -> bool:
    """Tell torch's own losses without `ignore_index`: none of them ignores a label."""
    function = loss.func if isinstance(loss, functools.partial) else loss
    if _collect_ignore_indices(function):
        return False
    return (
        type(function).__module__ == "torch.nn.modules.loss"
        or getattr(function, "__module__", None) == "torch.nn.functional"
    )


def _name_loss(loss: Callable[..., Any]) -> str:
    function = loss.func if isinstance(loss, functools.partial) else loss
    return getattr(function, "__name__", type(function).__name__)
