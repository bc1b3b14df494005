"""The table of hypotheses: the phase that a cause changes, what tells it from the evidence, and how it is said."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Iterator, Mapping, Sequence, Tuple

import torch

from porting.diagnostics import list_names
from porting.verify.fault_location import predicates as tell
from porting.verify.fault_location.cases import (
    Case,
    count_rows,
    find_labels,
    is_steady,
    join_tensors,
    try_labels,
    try_mode,
    try_rows,
    try_settings,
    try_slots,
)
from porting.verify.fault_location.predicates import Predicate, get_rate, gives, is_multiple, times, when

__all__ = ["CAUSES", "explain", "list_causes"]


def list_causes(phase: str, case: Case) -> Iterator[str]:
    """Say each cause of a phase that explains the case, in the order of the table."""
    for words, find in CAUSES[phase].items():
        fields = find(case)
        if fields is not None:
            yield words.format(**_describe_case(case), **fields)


def explain(phase: str, case: Case) -> str:
    """Say the first cause of a phase that explains the case; nothing where none does."""
    return next(list_causes(phase, case), "")


def _describe_case(case: Case) -> Mapping[str, Any]:
    """Return what the words of any cause may have in braces."""
    if case.fault is not None:
        return {"name": case.fault.record.name, "owner": case.evidence.name_module(case.path)}
    names = "every parameter" if len(case.names) == len(case.plain) else list_names(case.names, most=4)
    has_numbers = case.plain.keys() >= set(case.names) <= case.ported.keys()
    return {"name": case.names[0], "names": names, "factor": case.factor if has_numbers else 0.0}


def _make_nothing(case: Case) -> torch.Tensor:
    return torch.zeros_like(case.sides[0])


def _list_momentum(case: Case) -> Mapping[str, torch.Tensor]:
    slots = case.evidence.step.before.slots
    return {name: own[key] for name, own in slots.items() for key in ("momentum_buffer", "exp_avg") if key in own}


def _make_late_momentum(case: Case) -> Any:
    momentum = _list_momentum(case)
    is_known = "momentum" in case.evidence.plain.optimizer.defaults and all(name in momentum for name in case.names)
    return -get_rate(case) * join_tensors(momentum, case.names) if is_known else None


def _is_first_with_momentum(case: Case) -> bool:
    return "momentum" in case.evidence.plain.optimizer.defaults and not any(case.evidence.step.before.slots.values())


def _make_late_rates(count: int, case: Case) -> Any:
    plain, ported = case.sides
    return torch.cat([ported[:count], plain[:-count]]) if len(plain) > count else None


def _make_early_rates(count: int, case: Case) -> torch.Tensor:
    return case.sides[0][count:]


def _make_fast_rates(count: int, case: Case) -> torch.Tensor:
    return case.sides[0][::count]


def _make_slow_rates(count: int, case: Case) -> torch.Tensor:
    return case.sides[0].repeat_interleave(count)[: len(case.sides[0])]


def _shift_count(shift: int, slot: str, value: torch.Tensor) -> torch.Tensor:
    return value + shift if slot == "step" else value


def _count_parts(case: Case) -> int:
    return len(case.evidence.micro_batches)


def _count_labels(case: Case) -> int:
    labels = find_labels(case.evidence.plain, case.evidence.micro_batches[0])
    return 0 if labels is None else labels.numel()


def _get_replicas(case: Case) -> int:
    return int(case.evidence.ported.options.replicas)


def _get_loss_scaling(case: Case) -> float:
    return float(getattr(case.evidence.ported.optimizer, "loss_scaling", 1.0))


def _is_telling(case: Case) -> bool:
    # of one loss any other is a multiple
    is_round = abs(case.factor / float(f"{case.factor:.2g}") - 1) < 1e-5
    return is_multiple(case) and (_count_parts(case) > 1 or is_round)


def _is_random(case: Case) -> bool:
    return str(case.fault.record.name).startswith(("aten.bernoulli", "aten.rand"))


def _is_running(case: Case) -> bool:
    return all(name.rpartition(".")[2] in _RUNNING for name in case.names)


# -- the table ---------------------------------------------------------------------------------------------------------

_RUNNING = ("running_mean", "running_var", "num_batches_tracked")
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
_RATES: Sequence[Tuple[str, Callable[[int, Case], Any], int]] = (
    *(
        (f"{words} behind", _make_late_rates, count)
        for words, count in (("one step", 1), ("2 steps", 2), ("3 steps", 3))
    ),
    *(
        (f"{words} ahead", _make_early_rates, count)
        for words, count in (("one step", 1), ("2 steps", 2), ("3 steps", 3))
    ),
    *((f"stepped {count} times in a step", _make_fast_rates, count) for count in (2, 3, 4, 8)),
    *((f"stepped only once in {count} steps", _make_slow_rates, count) for count in (2, 3, 4, 8)),
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
                (f"number of replicas: {_JOINED}", _get_replicas),
                (f"number of accumulated parts: {_JOINED}", lambda case: _count_parts(case) / _get_replicas(case)),
                ("loss scaling, which one side does not take out again", _get_loss_scaling),
            )
        },
        "every gradient is {factor:.5g} times plain PyTorch's; the norm is {norm:.2g}, as clipped": tell.find_clipping,
        "every gradient is {factor:.5g} times plain PyTorch's in this step": when(is_multiple),
        "micro-batches do not count alike in the gradients: {odd}": tell.find_shares,
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
            lambda case: bool(is_steady(case, "update")) and is_multiple(case)
        ),
        "the update of {names} is {factor:.5g} times plain PyTorch's in this step": when(is_multiple),
        "a weight decay of {more} acts on {names}{alone}": tell.find_more_of(
            lambda case: case.evidence.step.before.parameters
        ),
        "the momentum of {names} counts by {more}": tell.find_more_of(_list_momentum),
        "the gradient of {names} counts by {more}": tell.find_more_of(lambda case: case.evidence.step.gradients),
    },
    "whole": {
        "`{name}` is {plain}, which 32 bits do not hold: a device has no more, and makes it {ported}": (
            tell.find_narrowed
        ),
        "`{name}` is {ported} in the port and {plain} in plain PyTorch, and no whole number is rounded": (
            tell.find_whole
        ),
    },
    "buffer": {
        "`{name}` is stale in the port: no step writes it, as in eval mode": gives(_make_nothing),
        "`{name}` is written in the port alone: train mode, where it should be eval mode": when(
            lambda case: not bool(case.sides[0].any())
        ),
        "`{name}` is updated twice in a step of the port": gives(
            lambda case: (2 - tell.get_momentum(case)) * case.sides[0]
        ),
        "`{name}` moves {factor:.4g} times as far as in plain PyTorch, as with a momentum of {found:.3g} in the place "
        "of {momentum:.3g}": tell.find_other_momentum,
        "`{name}` takes in statistics of other values, or of another number of micro-batches": _always,
    },
    "schedule": {
        "the schedule is ignored, the rate stays": when(tell.is_constant(1)),
        "the port has a schedule, plain PyTorch has none": when(tell.is_constant(0)),
        "every rate is {factor:g} times plain PyTorch's, as of an optimizer with another one": when(
            lambda case: len(case.sides[0]) > 1 and is_multiple(case)
        ),
        **{f"the port's schedule is {words}": gives(partial(make, count)) for words, make, count in _RATES},
        "the port's schedule multiplies it by {ported:.4g}, plain PyTorch's by {plain:.4g}": tell.find_other_factor,
        "the port has another schedule": _always,
    },
    "structure": {
        "`{name}` makes {plain}, which 32 bits do not hold: a device has no more, and makes it {ported}": (
            tell.find_narrowed
        ),
        "the port runs {ported} where plain PyTorch runs {plain}": tell.find_operator,
        "`{name}` gets {ported} in the port and {plain} in plain PyTorch": tell.find_arguments,
    },
    "operator": {
        "{weights} had another value in the port before the step": tell.find_weights,
        "the port draws other random numbers: the settings agree, and so do the values that go in": when(_is_random),
        "the settings of `{owner}` agree and so does what goes in, but `{name}` gives other values: {how}": (
            tell.find_rounding
        ),
    },
    "derivative": {
        "from `{name}` of `{owner}` on the gradients are others: {how}": tell.find_rounding,
    },
    "start": {
        "`{name}` is tied to `{other}` in plain PyTorch, and a parameter of its own in the port": tell.find_tied,
        "only plain PyTorch has `{name}`": when(lambda case: case.names[0] not in case.ported),
        "only the port has `{name}`": when(lambda case: case.names[0] not in case.plain),
        "`{name}` has another value in the port before the first step: it is no copy": _always,
    },
    "checkpoint": {
        "running statistics are saved or loaded wrongly: {names}": when(_is_running),
        "{names} is another after it was saved and loaded": _always,
    },
}
