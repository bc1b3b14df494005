"""Judge half precision by what it cannot hold, and by whether it explains a distance.

A certificate names the loss scale that would fit.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from porting.adapters.half_ranges import watch_ranges
from porting.analysis.half_precision import MeasuredModule, advise_loss_scaling
from porting.comparison import largest_difference
from porting.comparison.tensors import distance_of
from porting.diagnostics import join_names
from porting.model_copies import keep_buffers

from .certificate import Curves, KindVerdict, PrecisionVerdict, Verdict
from .half_rounding import HalfRule, half_rounding
from .plain_runs import copy_training
from .plain_training import MicroBatch, PlainTraining
from .reference_loss import make_loss_function

__all__ = ["judge_half_precision", "measure_lost_gradients"]

# A gradient that is off by this part of its length has lost what it should say; all of a model's together steer it.
_LOST, _LOST_TOGETHER = 0.5, 0.25
_MANY_VALUES = 0.01
_MOST_NAMES = 3


def judge_half_precision(
    training: PlainTraining,
    batches: Sequence[MicroBatch],
    rule: HalfRule,
    *,
    kinds: Sequence[KindVerdict] = (),
    curves: Optional[Curves] = None,
) -> PrecisionVerdict:
    """Judge a port in half precision whose differences from plain PyTorch, rounded to half, are in `kinds`.

    `training` is the plain one in float32 where the run began; it is not changed. `batches` are micro-batches that
    were trained with. `rule` is the port's. `curves` hold the losses of plain PyTorch in half precision (`plain`), of
    the port and, as `reference`, of float32. Half precision explains the distance from float32 if every kind is inside
    the noise band of half precision, nothing overflows, and the loss scaling brings the gradients through: one that
    vanishes in float16 and would not with a scaling that fits is a fault of the port, although rounding has done it.

    >>> from torch import nn
    >>> from porting import PlainTraining
    >>> model = nn.Linear(2, 1)
    >>> plain = PlainTraining(model, nn.MSELoss(), torch.optim.SGD(model.parameters(), lr=0.1))
    >>> batch = (torch.ones(3, 2), torch.zeros(3, 1)), {}
    >>> judge_half_precision(plain, [batch], HalfRule("mixed")).explains
    True
    """
    own = copy_training(training)
    measured, gradients = _measure_ranges(own, batches, rule)
    is_float16 = rule.dtype is torch.float16
    scale = advise_loss_scaling(measured) if is_float16 else None
    lost = measure_lost_gradients(own, batches, rule, gradients) if is_float16 else {}
    reasons = _tell_lost(lost, measured, rule, scale)
    is_told = bool(reasons)
    reasons += [_tell_outside(kind, rule) for kind in kinds if kind.verdict is Verdict.FAIL]
    parts = reasons or [f"what was compared is as near to plain PyTorch as rounding to {_name_type(rule)} leaves it"]
    parts += [] if curves is None else _tell_curves(curves, rule)
    if scale not in (None, rule.loss_scaling) and not is_told and any(module.lost_gradients for module in measured):
        parts.append(
            f"a loss scaling of {scale:,.0f} fits the gradients, and the port multiplies by {rule.loss_scaling:,.0f}"
        )
    vanishing = _name_innermost([module for module in measured if module.lost_values > _MANY_VALUES], measured)
    if is_float16 and vanishing:
        parts.append(f"many outputs of {join_names(vanishing, most=_MOST_NAMES)} are below what float16 can hold")
    numbers = {module.name: asdict(module) for module in measured}
    layers = {name: {key: value for key, value in own.items() if key != "name"} for name, own in numbers.items()}
    return PrecisionVerdict(rule.precision, not reasons, "; ".join(parts), scale, layers)


def measure_lost_gradients(
    training: PlainTraining, batches: Sequence[MicroBatch], rule: HalfRule, gradients: Mapping[str, torch.Tensor]
) -> Dict[str, float]:
    """Return how far off each parameter's gradient is in half precision, as a part of its length, and "" for all.

    `gradients` are those in float32. What a scaling that fits does not change is no loss: it is taken from the
    distance. A number is infinite where a gradient is finite in float32 alone.
    """
    fitting = replace(rule, loss_scaling=_find_fitting(gradients, rule))
    with_own = _add_gradients(training, batches, rule)
    found = {
        name: math.inf
        for name, value in with_own.items()
        if not _is_finite(value) and name in gradients and _is_finite(gradients[name])
    }
    if fitting.loss_scaling == rule.loss_scaling:
        return found
    total = together = 0.0
    for name, wanted in _add_gradients(training, batches, fitting).items():
        if name in found or not _is_finite(wanted):
            continue
        length, distance = float(wanted.double().norm()), distance_of(with_own[name], wanted)
        total, together = total + length**2, together + distance**2
        found[name] = distance / length if length else 0.0
    found[""] = math.sqrt(together / total) if total else 0.0
    return found


def _is_finite(tensor: torch.Tensor) -> bool:
    return bool(tensor.isfinite().all())


def _find_fitting(gradients: Mapping[str, torch.Tensor], rule: HalfRule) -> float:
    modules = [
        MeasuredModule(name, 0.0, float(value.abs().max())) for name, value in gradients.items() if value.numel()
    ]
    return max(advise_loss_scaling(modules) or 1.0, 1.0) if rule.loss_scaling else 1.0


def _add_gradients(training: PlainTraining, batches: Sequence[MicroBatch], rule: HalfRule) -> Dict[str, torch.Tensor]:
    """Return the sums of the gradients of `batches` at the weights as they are."""
    model = training.model
    with keep_buffers(model), torch.random.fork_rng(devices=[]), half_rounding(training, rule) as rounded:
        loss_of = make_loss_function(rounded)
        for args, kwargs in batches:
            loss_of(*args, **kwargs).backward()
    found = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    for weight in model.parameters():
        weight.grad = None
    return found


def _measure_ranges(
    training: PlainTraining, batches: Sequence[MicroBatch], rule: HalfRule
) -> Tuple[List[MeasuredModule], Dict[str, torch.Tensor]]:
    """Return what the modules hold in float32, and the gradients."""
    with watch_ranges(training.model, loss_scaling=rule.loss_scaling) as watch:
        gradients = _add_gradients(training, batches, HalfRule("float32"))
        watch.take_gradients(gradients)
    return watch.summarise(), gradients


def _tell_lost(
    lost: Mapping[str, float], measured: Sequence[MeasuredModule], rule: HalfRule, scale: Optional[float]
) -> List[str]:
    scaled = f"multiplied by {rule.loss_scaling:,.0f}"
    remedy = "" if scale in (None, rule.loss_scaling) else f": a loss scaling of {scale:,.0f} would fit"
    infinite = [name for name, part in lost.items() if math.isinf(part)]
    if infinite:
        values = _name_innermost([module for module in measured if module.overflowing_values], measured)
        if values:
            return [f"the output of {join_names(values, most=_MOST_NAMES)} is beyond the end of float16, 65,504"]
        names = _name_innermost([module for module in measured if module.overflowing_gradients], measured) or infinite
        return [f"the gradients at {join_names(names, most=_MOST_NAMES)} overflow, {scaled}{remedy}"]
    together = lost.get("", 0.0)
    if together <= _LOST_TOGETHER:
        return []
    names = [name for name, part in lost.items() if name and part > _LOST]
    where = f", most of those of {join_names(names, most=_MOST_NAMES)}" if names else ""
    return [f"float16 loses {min(together, 1.0):.0%} of the gradients{where}, {scaled}{remedy}"]


def _name_innermost(found: Sequence[MeasuredModule], measured: Sequence[MeasuredModule]) -> List[str]:
    """Name the modules, but for those whose parts are among them; the first of `measured` is the whole model."""
    inner = [module.name for module in found if module is not measured[0]]
    names = [name for name in inner if not any(other.startswith(f"{name}.") for other in inner)]
    return names or [module.name for module in found]


def _tell_outside(kind: KindVerdict, rule: HalfRule) -> str:
    found = kind.first or kind.worst
    if found is None:
        return f"{kind.kind}: outside of what {_name_type(rule)} explains"
    name = f" of `{found.name}`" if found.name else ""
    factor = f" by {found.factor:,.1f} times" if math.isfinite(found.factor) else ""
    return f"{kind.kind}{name} in step {found.step} is outside of what {_name_type(rule)} explains{factor}"


def _tell_curves(curves: Curves, rule: HalfRule) -> List[str]:
    """Say how far the losses are from those in float32, beside plain PyTorch rounded to half."""
    if not curves.reference:
        return []
    own, rounded = (
        largest_difference(curve, curves.reference, scale_of=lambda _one, _other: 1.0)[0]
        for curve in (curves.ported, curves.plain)
    )
    return [
        f"the losses are up to {own:.2g} from those in float32, and those of plain PyTorch rounded to "
        f"{_name_type(rule)} up to {rounded:.2g}"
    ]


def _name_type(rule: HalfRule) -> str:
    return "bfloat16" if rule.precision == "bfloat16" else "float16"
