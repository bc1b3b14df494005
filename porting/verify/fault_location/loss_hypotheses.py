"""Explanations of another loss, tried out: plain PyTorch computes each, and the port's loss tells which it is."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch

from porting.module_attributes import keep_train_modes
from porting.structure import flatten_tensors, map_tensors
from porting.verify.fault_location.training_copies import kept_training
from porting.verify.plain_training import MicroBatch, PlainTraining
from porting.verify.reference_loss import make_loss_function

__all__ = ["LossCase", "LossExplanation", "explain_loss", "say_factor"]

_TOLERANCE = 1e-4


@dataclass(frozen=True)
class LossCase:
    """The losses of a step's micro-batches on both sides, what they were computed of, and the random stream before."""

    micro_batches: Sequence[MicroBatch]
    plain: Sequence[float]
    ported: Sequence[float]
    random_state: torch.Tensor

    @property
    def rows(self) -> int:
        """Samples of a micro-batch."""
        tensors = [tensor for tensor in flatten_tensors(self.micro_batches[0]) if tensor.dim()]
        return len(tensors[0]) if tensors else 1


class LossExplanation(NamedTuple):
    """What makes of the plain losses the port's, in words.

    `code` is what happens to `labels`, as an expression, where it is that; `is_data` says that samples are left out.
    """

    text: str
    code: str = ""
    is_data: bool = False


def explain_loss(training: PlainTraining, case: LossCase) -> Optional[LossExplanation]:
    """Return what makes of the plain losses the port's; None where nothing that was tried does.

    The model is as before afterwards.
    """
    found: Dict[str, LossExplanation] = {}
    for explanation, losses in _list_variants(training, case):
        # what leaves the losses as they are explains nothing
        if _are_close(losses, case.ported) and not _are_close(losses, case.plain):
            found.setdefault(explanation.text, explanation)
    if found:  # several where this batch cannot tell them apart
        return next(iter(found.values()))._replace(text=", or ".join(found))
    text = _explain_factor(training, case)
    return None if text is None else LossExplanation(text)


def _are_close(losses: Optional[Sequence[float]], others: Sequence[float]) -> bool:
    return losses is not None and all(
        math.isclose(one, other, rel_tol=_TOLERANCE, abs_tol=1e-9) for one, other in zip(losses, others)
    )


# -- a factor ----------------------------------------------------------------------------------------------------------


def _explain_factor(training: PlainTraining, case: LossCase) -> Optional[str]:
    ratios = [other / one for one, other in zip(case.plain, case.ported) if one]
    if not ratios or not all(math.isclose(ratio, ratios[0], rel_tol=10 * _TOLERANCE) for ratio in ratios):
        return None
    labels = _find_labels(training, case.micro_batches[0])
    meanings = {
        case.rows: "the number of samples of a micro-batch: one side takes the sum and the other the mean",
        len(case.micro_batches): "the number of micro-batches of a step: one side takes the sum and the other the mean",
        case.rows * len(case.micro_batches): "the number of samples of a step: sum and mean are mixed up",
    }
    if labels is not None:
        meanings.setdefault(labels.numel(), "the number of elements of the labels: sum and mean are mixed up")
    text = say_factor(ratios[0], meanings, tolerance=10 * _TOLERANCE)
    # of one loss any other is a multiple
    is_telling = (
        len(ratios) > 1 or "which is" in text or math.isclose(ratios[0], float(f"{ratios[0]:.2g}"), rel_tol=1e-5)
    )
    return f"the loss is {text}" if is_telling and not math.isclose(ratios[0], 1.0, rel_tol=_TOLERANCE) else None


def say_factor(factor: float, meanings: Dict[int, str], *, tolerance: float = 1e-3) -> str:
    """Say a factor between the port and plain PyTorch, and what it stands for where it is one of `meanings`.

    >>> say_factor(8.0, {8: "the batch"})
    "8 times plain PyTorch's, which is the batch"
    >>> say_factor(0.5, {})
    "0.5 times plain PyTorch's"
    """
    text = f"{factor:.5g} times plain PyTorch's"
    for count, meaning in meanings.items():
        if count > 1 and math.isclose(factor, count, rel_tol=tolerance):
            return f"{text}, which is {meaning}"
        if count > 1 and math.isclose(factor, 1 / count, rel_tol=tolerance):
            return f"{text}, which is 1 / {meaning}"
    return text


# -- other data, another mode ------------------------------------------------------------------------------------------

_Variant = Callable[[torch.Tensor], torch.Tensor]


def _list_variants(training: PlainTraining, case: LossCase) -> Iterator[Tuple[LossExplanation, Optional[List[float]]]]:
    """Yield what may have been changed, and the losses with it."""
    several = len(case.micro_batches) > 1
    for text, code, change in _LABEL_CHANGES:
        for where, whole in (("of each micro-batch", False), ("of the whole step", True)):
            if whole and not several:
                continue
            changed = _change_labels(training, case.micro_batches, change, whole)
            words = f"{text} {where}" if several else text
            yield LossExplanation(words, code), None if changed is None else _compute_losses(training, case, changed)
    for text, rows in (("last", slice(None, -1)), ("first", slice(1, None))):
        if case.rows > 1:
            changed = [map_tensors(partial(_cut_rows, rows), item) for item in case.micro_batches]
            words = f"the {text} sample of each micro-batch is left out"
            yield LossExplanation(words, is_data=True), _compute_losses(training, case, changed)
    with keep_train_modes(list(training.model.modules())):
        was_training = training.model.training
        training.model.train(not was_training)
        words = "eval mode (no dropout, running statistics)" if was_training else "train mode"
        losses = _compute_losses(training, case, case.micro_batches)
        yield LossExplanation(f"the port computes the loss in {words}"), losses


def _cut_rows(rows: slice, tensor: torch.Tensor) -> torch.Tensor:
    return tensor[rows] if tensor.dim() else tensor


_LABEL_CHANGES: Tuple[Tuple[str, str, _Variant], ...] = (
    ("the labels are shifted by one sample: each has that of the next", "labels.roll(-1, 0)", lambda y: y.roll(-1, 0)),
    ("the labels are shifted by one sample: each has that before it", "labels.roll(1, 0)", lambda y: y.roll(1, 0)),
    ("the labels are in reverse order of the samples", "labels.flip(0)", lambda y: y.flip(0)),
    ("the labels are one class too high", "labels + 1", lambda y: _shift_class(y, 1)),
    ("the labels are one class too low", "labels - 1", lambda y: _shift_class(y, -1)),
    ("the labels are shifted by one place in each sample", "labels.roll(1, -1)", lambda y: _roll_last(y, 1)),
    ("the labels are shifted by one place in each sample", "labels.roll(-1, -1)", lambda y: _roll_last(y, -1)),
    ("the labels are all zero", "torch.zeros_like(labels)", torch.zeros_like),
    ("the labels are exchanged, 0 for 1", "1 - labels", lambda y: _shift_class(1 - y, 0)),
    ("the labels have the other sign", "-labels", lambda y: -y),
)


def _shift_class(labels: torch.Tensor, shift: int) -> torch.Tensor:
    if labels.is_floating_point() and shift:
        raise ValueError("no classes")
    return labels + shift


def _roll_last(labels: torch.Tensor, shift: int) -> torch.Tensor:
    if labels.dim() < 2:
        raise ValueError("no second dimension")
    return labels.roll(shift, -1)


def _change_labels(
    training: PlainTraining, micro_batches: Sequence[MicroBatch], change: _Variant, whole: bool
) -> Optional[List[MicroBatch]]:
    labels = [_find_labels(training, micro_batch) for micro_batch in micro_batches]
    tensors = [label for label in labels if label is not None and label.dim()]
    if len(tensors) != len(micro_batches):
        return None
    with suppress(ValueError, RuntimeError):
        if whole:
            changed = list(change(torch.cat(tensors)).split([len(tensor) for tensor in tensors]))
        else:
            changed = [change(tensor) for tensor in tensors]
        return [_exchange_labels(item, old, new) for item, old, new in zip(micro_batches, tensors, changed)]
    return None


def _exchange_labels(micro_batch: MicroBatch, old: torch.Tensor, new: torch.Tensor) -> MicroBatch:
    exchanged: MicroBatch = map_tensors(lambda tensor: new if tensor is old else tensor, micro_batch)
    return exchanged


def _find_labels(training: PlainTraining, micro_batch: MicroBatch) -> Optional[torch.Tensor]:
    args, kwargs = micro_batch
    label: Any = training.label[0] if isinstance(training.label, tuple) and training.label else training.label
    if isinstance(label, str):
        value = kwargs.get(label)
    else:
        values = [*args] or [*kwargs.values()]
        value = values[label] if isinstance(label, int) and -len(values) <= label < len(values) else None
    return value if isinstance(value, torch.Tensor) else None


def _compute_losses(
    training: PlainTraining, case: LossCase, micro_batches: Sequence[MicroBatch]
) -> Optional[List[float]]:
    """Compute the losses of other micro-batches; None where the model or its loss cannot take them."""
    loss_of = make_loss_function(training)
    with kept_training(training), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.set_rng_state(case.random_state)
        # a trial may be one that the user's code refuses, in whatever way
        with suppress(Exception):
            return [float(loss_of(*args, **kwargs).sum()) for args, kwargs in micro_batches]
    return None
