"""List the causes that a fault may have: the phase that each changes, and what tells it from the evidence.

`location` says those that explain a case.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, Callable, Iterator, Mapping, Sequence, Tuple

import torch

from porting.diagnostics import join_names
from porting.verify.fault_location.cases import (
    Case,
    Fields,
    Predicate,
    count_rows,
    find_clipping,
    find_labels,
    find_more_of,
    find_shares,
    find_steadiness,
    get_rate,
    gives,
    is_multiple,
    join_tensors,
    times,
    try_labels,
    try_mode,
    try_rows,
    try_settings,
    try_slots,
    when,
)
from porting.verify.fault_location.evidence import find_module

__all__ = ["CAUSES", "explain", "iter_causes"]


def iter_causes(phase: str, case: Case) -> Iterator[str]:
    """Say each cause of a phase that explains the case, in the order of the table."""
    for words, find in CAUSES[phase].items():
        fields = find(case)
        if fields is not None:
            yield words.format(**_describe_case(case), **fields)


def explain(phase: str, case: Case) -> str:
    """Say the first cause of a phase that explains the case; nothing where none does."""
    return next(iter_causes(phase, case), "")


def _describe_case(case: Case) -> Mapping[str, Any]:
    """Return what the words of any cause may have in braces."""
    if case.fault is not None:
        return {"name": case.fault.record.name, "owner": case.evidence.name_module(case.path)}
    names = "every parameter" if len(case.names) == len(case.plain) else join_names(case.names, most=4)
    has_numbers = case.plain.keys() >= set(case.names) <= case.ported.keys()
    return {"name": case.names[0], "names": names, "factor": case.factor if has_numbers else 0.0}


# -- states and rates --------------------------------------------------------------------------------------------------


def _find_whole(case: Case) -> Fields:
    """Tell whether a tensor of both sides has whole numbers, and the first that differs."""
    one, other = (side.get(case.names[0]) for side in (case.plain, case.ported))
    if one is None or other is None or one.is_floating_point() or one.shape != other.shape:
        return None
    place = int((one != other).flatten().int().argmax())
    return {"plain": one.flatten()[place].item(), "ported": other.flatten()[place].item()}


def _is_unwritten(case: Case) -> bool:
    before = {} if case.evidence is None else case.evidence.step.before.buffers
    name = next(iter(case.names), "")
    return name in before and name in case.ported and torch.equal(before[name], case.ported[name].to(before[name]))


def _find_narrowed(case: Case) -> Fields:
    """Tell whether whole numbers of the port's are what 32 bits make of plain PyTorch's, which they do not hold."""
    found = _find_whole(case) if case.names else None
    sides = [side[case.names[0]].long() for side in (case.plain, case.ported)] if found else []
    is_it = found and torch.equal(sides[0].int(), sides[1].int()) and not torch.equal(*sides)
    return found if is_it else None


def _get_momentum(case: Case) -> float:
    """Return the momentum of the running statistics of the case's module; NaN where it has none."""
    momentum = getattr(find_module(case.path, case.evidence.plain.model), "momentum", None)
    return momentum if isinstance(momentum, float) else math.nan


def _find_other_momentum(case: Case) -> Fields:
    """Tell whether running statistics move as another momentum would move them."""
    momentum = _get_momentum(case)
    is_it = not math.isnan(momentum) and is_multiple(case)
    return {"momentum": momentum, "found": case.factor * momentum} if is_it else None


def _find_tied(case: Case) -> Fields:
    """Return another name of the same parameter, which is one of its own in the port."""
    models = case.evidence.plain.model, case.evidence.ported.model
    one, other = (dict(model.named_parameters(remove_duplicate=False)) for model in models)
    own = one.get(case.names[0])
    tied = next((name for name, value in one.items() if value is own and name != case.names[0]), "")
    return {"other": tied} if tied and other.get(tied) is not other.get(case.names[0]) else None


def _ask_whether_constant(side: int) -> Callable[[Case], bool]:
    """Tell whether only this side's rates are one and the same."""
    return lambda case: [len(set(rates.tolist())) == 1 for rates in case.sides] == [side == 0, side == 1]


def _find_other_factor(case: Case) -> Fields:
    """Tell where both sides change a rate for the first time by another factor."""
    plain, ported = (side.tolist() for side in case.sides)
    for number in range(1, len(plain)):
        pair = [side[number] / (side[number - 1] or math.nan) for side in (plain, ported)]
        if all(abs(ratio - 1) > 1e-5 for ratio in pair) and abs(pair[0] - pair[1]) > 1e-5:
            return {"plain": pair[0], "ported": pair[1]}
    return None


# -- operators ---------------------------------------------------------------------------------------------------------


def _find_operator(case: Case) -> Fields:
    """Tell whether the sides run other operators, or one of them none."""
    words = []
    for side in (case.fault.plain, case.fault.ported):
        numbers = [] if side is None else [str(item) for item in side.args if type(item) in (int, float)]
        with_numbers = f" with {', '.join(numbers)}" if numbers else ""
        words.append("nothing" if side is None else f"`{side.name}`{with_numbers}")
    names = {None if side is None else side.name for side in (case.fault.plain, case.fault.ported)}
    return {"plain": words[0], "ported": words[1]} if len(names) > 1 else None


def _find_arguments(case: Case) -> Fields:
    """Tell which argument of an operator is another one; types differ in half precision, and say nothing."""
    one, other = case.fault.plain, case.fault.ported
    if one is None or other is None:
        return None
    for pair in [*zip(one.args, other.args), *((one.kwargs[key], other.kwargs.get(key)) for key in one.kwargs)]:
        shapes = [getattr(item, "shape", None) for item in pair]
        words = [f"`{item}`" if shape is None else f"a tensor of {list(shape)}" for item, shape in zip(pair, shapes)]
        if words[0] != words[1] and not any(isinstance(item, torch.dtype) for item in pair):
            return {"plain": words[0], "ported": words[1]}
    return None


def _find_weights(case: Case) -> Fields:
    """Tell which tensors of the module had another value in the port before the step."""
    plain, ported = ({**one.parameters, **one.buffers} for one in (case.evidence.step.before, case.evidence.before))
    here = "" if find_module(case.path, case.evidence.plain.model) is case.evidence.plain.model else f"{case.path}."
    found = [
        name
        for name, one in plain.items()
        if name.startswith(here) and name in ported and one.is_floating_point()
        if not torch.allclose(one.double(), ported[name].double(), rtol=1e-3, atol=1e-7)
    ]
    return {"weights": join_names(found, most=4)} if found else None


def _find_rounding(case: Case) -> Fields:
    """Say how far an operator's results are apart, of which nothing tells why."""
    apart = case.fault.apart
    is_factor = math.isclose(abs(apart.factor - 1) * apart.scale, apart.distance, rel_tol=1e-2)
    words = f"a distance of {apart.distance:.1e} for values of {apart.scale:.1e}, rounding explains {apart.band:.1e}"
    return {"how": f"{apart.factor:.5g} times plain PyTorch's" if is_factor else words}


def _make_nothing(case: Case) -> torch.Tensor:
    return torch.zeros_like(case.sides[0])


def _collect_momentum(case: Case) -> Mapping[str, torch.Tensor]:
    slots = case.evidence.step.before.slots
    return {name: own[key] for name, own in slots.items() for key in ("momentum_buffer", "exp_avg") if key in own}


def _make_late_momentum(case: Case) -> Any:
    momentum = _collect_momentum(case)
    is_known = "momentum" in case.evidence.plain.optimizer.defaults and all(name in momentum for name in case.names)
    return -get_rate(case) * join_tensors(momentum, case.names) if is_known else None


def _is_first_with_momentum(case: Case) -> bool:
    return "momentum" in case.evidence.plain.optimizer.defaults and not any(case.evidence.step.before.slots.values())


def _take_rates(find_step: Callable[[int], int], case: Case) -> torch.Tensor:
    steps = map(find_step, range(len(case.sides[0])))
    return case.sides[0][[step for step in steps if step < len(case.sides[0])]]


def _shift_count(shift: int, slot: str, value: torch.Tensor) -> torch.Tensor:
    return value + shift if slot == "step" else value


def _count_parts(case: Case) -> int:
    return len(case.evidence.micro_batches)


def _count_labels(case: Case) -> int:
    labels = find_labels(case.evidence.plain, case.evidence.micro_batches[0])
    return 0 if labels is None else labels.numel()


def _is_telling(case: Case) -> bool:
    # of one loss any other is a multiple
    is_round = abs(case.factor / float(f"{case.factor:.2g}") - 1) < 1e-5
    return is_multiple(case) and (_count_parts(case) > 1 or is_round)


# -- the table ---------------------------------------------------------------------------------------------------------

_RUNNING = ("running_mean", "running_var", "num_batches_tracked")
_COUNTS = ("one step", "2 steps", "3 steps")
_MIXED = "sum and mean are mixed up"
_JOINED = "one side joins their gradients as a sum, the other as a mean"
_LABELS: Sequence[Tuple[str, Any]] = (
    ("shifted by one sample: each has that of the next", lambda y: y.roll(-1, 0)),
    ("shifted by one sample: each has that before it", lambda y: y.roll(1, 0)),
    ("in reverse order of the samples", lambda y: y.flip(0)),
    ("one class too high", lambda y: y + int(not y.is_floating_point())),
    ("one class too low", lambda y: y - int(not y.is_floating_point())),
    ("shifted by one place in each sample", lambda y: y.roll((0, 1), (0, 1))),
    ("shifted by one place in each sample, to the front", lambda y: y.roll((0, -1), (0, 1))),
    ("all zero", torch.zeros_like),
    ("exchanged, 0 for 1", lambda y: 1 - y),
    ("of the other sign", lambda y: -y),
)
_SETTINGS: Sequence[Tuple[str, Mapping[str, Any]]] = (
    ("out momentum", {"momentum": 0.0, "nesterov": False}),
    (" Nesterov's momentum", {"nesterov": True}),
    ("out Nesterov's momentum", {"nesterov": False}),
    ("out dampening", {"dampening": 0.0}),
    ("out weight decay", {"weight_decay": 0.0}),
    *((f" momentum {value}", {"momentum": value}) for value in (0.5, 0.8, 0.9, 0.95, 0.99)),
    *((f" eps {value:g}", {"eps": value}) for value in (1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)),
    *((f" weight decay {value:g}", {"weight_decay": value}) for value in (1e-5, 1e-4, 5e-4, 1e-3, 1e-2, 0.1)),
    *((f" betas[0] {value}", {"betas": (value, None)}) for value in (0.0, 0.5, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)),
    *((f" betas[1] {value}", {"betas": (None, value)}) for value in (0.9, 0.95, 0.98, 0.99, 0.995, 0.999)),
)
_RATES: Sequence[Tuple[str, Any]] = (
    *((f"{count} behind", lambda step, by=by: max(0, step - by)) for by, count in enumerate(_COUNTS, 1)),
    *((f"{count} ahead", lambda step, by=by: step + by) for by, count in enumerate(_COUNTS, 1)),
    *((f"stepped {often} times in a step", lambda step, by=often: step * by) for often in (2, 3, 4, 8)),
    *((f"stepped only once in {often} steps", lambda step, by=often: step // by) for often in (2, 3, 4, 8)),
)
_always: Predicate = lambda case: {}  # noqa: E731

CAUSES: Mapping[str, Mapping[str, Predicate]] = {
    "labels": {
        **{f"the labels are {words}": gives(partial(try_labels, make, True)) for words, make in _LABELS},
        **{
            f"each micro-batch's labels are {words}": gives(partial(try_labels, make, False)) for words, make in _LABELS
        },
        "the port computes the loss in eval mode (no dropout, running statistics)": gives(partial(try_mode, False)),
        "the port computes the loss in train mode": gives(partial(try_mode, True)),
    },
    "samples": {
        "the last sample of each micro-batch is left out": gives(partial(try_rows, slice(None, -1))),
        "the first sample of each micro-batch is left out": gives(partial(try_rows, slice(1, None))),
    },
    "loss": {
        **{
            f"the loss is {{factor:.5g}} times plain PyTorch's, which is {{part}}the number of {words}": times(count)
            for words, count in (
                (f"samples of a micro-batch: {_MIXED}", count_rows),
                (f"micro-batches of a step: {_MIXED}", _count_parts),
                (f"samples of a step: {_MIXED}", lambda case: count_rows(case) * _count_parts(case)),
                (f"elements of the labels: {_MIXED}", _count_labels),
            )
        },
        "the loss is {factor:.5g} times plain PyTorch's": when(_is_telling),
    },
    "gradient": {
        "every gradient is zero in the port": gives(_make_nothing),
        **{
            f"every gradient is {{factor:.5g}} times plain PyTorch's, which is {{part}}the {words}": times(count)
            for words, count in (
                (f"number of micro-batches of a step: {_JOINED}", _count_parts),
                (f"number of replicas: {_JOINED}", lambda case: case.evidence.replicas),
                (f"number of accumulated parts: {_JOINED}", lambda case: _count_parts(case) / case.evidence.replicas),
                ("loss scaling, which one side does not take out again", lambda case: case.evidence.loss_scaling),
            )
        },
        "every gradient is {factor:.5g} times plain PyTorch's; the norm is {norm:.2g}, as clipped": find_clipping,
        "every gradient is {factor:.5g} times plain PyTorch's in this step": when(is_multiple),
        "micro-batches do not count alike in the gradients: {odd}": find_shares,
    },
    "update": {
        "the port does not update {names}: in a first step the momentum of the step before is zero": when(
            _is_first_with_momentum, gives(_make_nothing)
        ),
        "the port does not update {names}": gives(_make_nothing),
        "the update is made with the momentum of the step before: it is off by one step": gives(_make_late_momentum),
        "the optimizer's state (momentum) is lost or not used: the update is that of a first step": gives(
            partial(try_slots, lambda slot, value: None)
        ),
        **{
            f"the update is that of plain PyTorch's settings with{words}": gives(partial(try_settings, changes))
            for words, changes in _SETTINGS
        },
        **{
            f"the optimizer's count of steps is one {words}: its bias correction is another step's": gives(
                partial(try_slots, partial(_shift_count, shift))
            )
            for words, shift in (("ahead", 1), ("behind", -1))
        },
        "plain PyTorch does not update {names}, the port does": when(lambda case: not bool(case.sides[0].any())),
        "the update of {names} is {factor:.5g} times plain PyTorch's: it goes the other way": when(
            lambda case: case.factor < 0 and is_multiple(case)
        ),
        "the update of {names} is {factor:.5g} times plain PyTorch's, as another learning rate would make it": when(
            lambda case: bool(find_steadiness(case, "update")) and is_multiple(case)
        ),
        "the update of {names} is {factor:.5g} times plain PyTorch's in this step": when(is_multiple),
        "a weight decay of {more} acts on {names}{alone}": find_more_of(
            lambda case: case.evidence.step.before.parameters
        ),
        "the momentum of {names} counts by {more}": find_more_of(_collect_momentum),
        "the gradient of {names} counts by {more}": find_more_of(lambda case: case.evidence.step.gradients),
    },
    "whole": {
        "`{name}` is written in plain PyTorch alone: a device has no variables of 64-bit integers (C019)": when(
            _is_unwritten, _find_whole
        ),
        "`{name}` is {plain}, which 32 bits do not hold: a device has no more, and makes it {ported}": (_find_narrowed),
        "`{name}` is {ported} in the port and {plain} in plain PyTorch, and no whole number is rounded": (_find_whole),
    },
    "buffer": {
        "`{name}` is stale in the port: no step writes it, as in eval mode": gives(_make_nothing),
        "`{name}` is written in the port alone: train mode, where it should be eval mode": when(
            lambda case: not bool(case.sides[0].any())
        ),
        "`{name}` is updated twice in a step of the port": gives(
            lambda case: (2 - _get_momentum(case)) * case.sides[0]
        ),
        "`{name}` moves {factor:.4g} times as far as in plain PyTorch, as with a momentum of {found:.3g} in the place "
        "of {momentum:.3g}": _find_other_momentum,
        "`{name}` takes in statistics of other values, or of another number of micro-batches": _always,
    },
    "schedule": {
        "the schedule is ignored, the rate stays": when(_ask_whether_constant(1)),
        "the port has a schedule, plain PyTorch has none": when(_ask_whether_constant(0)),
        "every rate is {factor:g} times plain PyTorch's, as of an optimizer with another one": when(
            lambda case: len(case.sides[0]) > 1 and is_multiple(case)
        ),
        **{f"the port's schedule is {words}": gives(partial(_take_rates, find_step)) for words, find_step in _RATES},
        "the port's schedule multiplies it by {ported:.4g}, plain PyTorch's by {plain:.4g}": _find_other_factor,
        "the port has another schedule": _always,
    },
    "structure": {
        "`{name}` makes {plain}, which 32 bits do not hold: a device has no more, and makes it {ported}": (
            _find_narrowed
        ),
        "the port runs {ported} where plain PyTorch runs {plain}": _find_operator,
        "`{name}` gets {ported} in the port and {plain} in plain PyTorch": _find_arguments,
    },
    "operator": {
        "{weights} had another value in the port before the step": _find_weights,
        "the port draws other random numbers: the settings agree, and so do the values that go in": when(
            lambda case: case.fault.record.name.startswith(("aten.bernoulli", "aten.rand"))
        ),
        "the settings of `{owner}` agree and so does what goes in, but `{name}` gives other values: {how}": (
            _find_rounding
        ),
    },
    "derivative": {"from `{name}` of `{owner}` on the gradients are others: {how}": _find_rounding},
    "start": {
        "`{name}` is tied to `{other}` in plain PyTorch, and a parameter of its own in the port": _find_tied,
        "only plain PyTorch has `{name}`": when(lambda case: case.names[0] not in case.ported),
        "only the port has `{name}`": when(lambda case: case.names[0] not in case.plain),
        "`{name}` has another value in the port before the first step: it is no copy": _always,
    },
    "checkpoint": {
        "running statistics are saved or loaded wrongly: {names}": when(
            lambda case: all(name.rpartition(".")[2] in _RUNNING for name in case.names)
        ),
        "the optimizer's state is not in the file, or is not loaded: {names}": when(
            lambda case: all(" of " in name for name in case.names)
        ),
        "{names} is another after it was saved and loaded": _always,
    },
}
