"""Explanations of other gradients: a common factor, micro-batches that are missing or count twice, clipping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from porting.diagnostics import list_names
from porting.verify.fault_location.loss_hypotheses import say_factor

__all__ = ["GradientCase", "GradientExplanation", "explain_gradients"]

Tensors = Mapping[str, torch.Tensor]

_TOLERANCE = 1e-3


@dataclass(frozen=True)
class GradientCase:
    """The gradients of a step on both sides, those of each micro-batch's loss alone in plain PyTorch, and the layout.

    Micro-batches lie as [accumulation][replica].
    """

    plain: Tensors
    ported: Tensors
    own: Sequence[Tensors]
    replicas: int = 1
    loss_scaling: float = 1.0


class GradientExplanation(NamedTuple):
    """What makes of the plain gradients the port's, in words, and how much each micro-batch counts in it."""

    text: str
    shares: Tuple[float, ...] = ()


def explain_gradients(case: GradientCase) -> Optional[GradientExplanation]:
    """Return what makes of the plain gradients the port's where one thing explains all of them; None otherwise."""
    names = [name for name in case.plain if name in case.ported and bool(case.plain[name].any())]
    if not names:
        return None
    plain, ported = (torch.cat([of[name].double().flatten() for name in names]) for of in (case.plain, case.ported))
    if not bool(torch.isfinite(plain).all() and torch.isfinite(ported).all()):
        return None
    if not bool(ported.any()):
        return GradientExplanation("every gradient is zero in the port", (0.0,) * len(case.own))
    factor = float(plain @ ported / (plain @ plain))
    rest = float((ported - factor * plain).norm())
    # it has to explain most of the difference
    if rest <= min(_TOLERANCE * float(ported.norm()), 0.05 * float((ported - plain).norm())):
        return _say_common_factor(case, factor, float(ported.norm()))
    return _explain_micro_batches(case, names, ported)


def _say_common_factor(case: GradientCase, factor: float, norm: float) -> Optional[GradientExplanation]:
    if factor == 1.0:
        return None
    count = len(case.own)
    joined = "one side joins their gradients as a sum, the other as a mean"
    meanings = {count: f"the number of micro-batches of a step: {joined}"}
    meanings.setdefault(case.replicas, f"the number of replicas: {joined}")
    meanings.setdefault(count // case.replicas, f"the number of accumulated micro-batches: {joined}")
    if case.loss_scaling != 1.0:
        meanings.setdefault(int(case.loss_scaling), "the loss scaling, which one side does not take out again")
    text = f"every gradient is {say_factor(factor, meanings)}"
    rounded = float(f"{norm:.2g}")
    if 0 < factor < 1 and "which is" not in text and math.isclose(norm, rounded, rel_tol=1e-4):
        text += f"; their norm is {rounded:g}, as if they were clipped to it"
    return GradientExplanation(text, (factor,) * count)


def _explain_micro_batches(
    case: GradientCase, names: Sequence[str], ported: torch.Tensor
) -> Optional[GradientExplanation]:
    """Return which micro-batches count how much, where the port's gradients are a sum of theirs."""
    if len(case.own) < 2:
        return None
    columns = []
    for own in case.own:
        parts = [own[name] if name in own else torch.zeros_like(case.plain[name]) for name in names]
        columns.append(torch.cat([part.double().flatten() for part in parts]))
    matrix = torch.stack(columns, 1)
    weights = torch.linalg.lstsq(matrix, ported.unsqueeze(1)).solution.squeeze(1)
    if float((matrix @ weights - ported).norm()) > 10 * _TOLERANCE * float(ported.norm()):
        return None
    shares: List[float] = [float(weight) * len(case.own) for weight in weights]
    odd = {number: share for number, share in enumerate(shares) if abs(share - 1) > 0.02}
    if not odd:
        return None
    lost = [number for number, share in odd.items() if abs(share) < 0.02]
    if lost and len(lost) < len(shares):
        words = f"the gradients of {_name_micro_batches(case, lost)} are lost: they count for nothing in the step"
        return GradientExplanation(words, tuple(shares))
    words = ", ".join(f"{_name_micro_batches(case, [number])} {share:.3g} times" for number, share in odd.items())
    return GradientExplanation(f"the micro-batches do not count alike in the gradient: {words}", tuple(shares))


def _name_micro_batches(case: GradientCase, numbers: Sequence[int]) -> str:
    by_replica: Dict[int, List[int]] = {}
    for number in numbers:
        by_replica.setdefault(number % case.replicas, []).append(number)
    accumulation = len(case.own) // case.replicas
    if case.replicas > 1 and all(len(own) == accumulation for own in by_replica.values()):
        return list_names([f"replica {replica}" for replica in by_replica], most=4).replace("`", "")
    return list_names([f"micro-batch {number + 1} of {len(case.own)}" for number in numbers], most=4).replace("`", "")
