"""What tells a cause from the numbers of a case: a predicate returns what its words have in braces, or None."""

from __future__ import annotations

import math
from typing import Any, Callable, Mapping, Optional

import torch

from porting.diagnostics import list_names
from porting.verify.fault_location.cases import Case, Numbers, fit, is_steady
from porting.verify.fault_location.evidence import find_module

__all__ = [
    "Predicate",
    "find_arguments",
    "find_clipping",
    "find_more_of",
    "find_narrowed",
    "find_operator",
    "find_other_factor",
    "find_other_momentum",
    "find_rounding",
    "find_shares",
    "find_tied",
    "find_weights",
    "find_whole",
    "get_momentum",
    "get_rate",
    "gives",
    "is_constant",
    "is_multiple",
    "times",
    "when",
]

Fields = Optional[Mapping[str, Any]]
Predicate = Callable[[Case], Fields]


def when(holds: Callable[[Case], Any], find: Predicate = lambda case: {}) -> Predicate:
    """Ask a second predicate, of a case of which the first holds."""
    return lambda case: find(case) if holds(case) else None


def gives(make: Callable[[Case], Numbers]) -> Predicate:
    """Tell whether the port's numbers are those that `make` makes."""

    def find(case: Case) -> Fields:
        numbers = make(case)
        return {} if numbers is not None and case.is_explained_by(numbers) else None

    return find


def is_multiple(case: Case) -> bool:
    """Tell whether every tensor of the port's is the same factor times plain PyTorch's."""
    return fit(case, [case.plain]) is not None


def times(count: Callable[[Case], float]) -> Predicate:
    """Tell whether the port's numbers are a count times plain PyTorch's, or 1 / it, and no other steps deny it."""

    def find(case: Case) -> Fields:
        number = count(case)
        if number <= 1 or not is_multiple(case) or is_steady(case, "gradient") is False:
            return None
        parts = {"": number, "1 / ": 1 / number}
        found = [part for part, wanted in parts.items() if math.isclose(case.factor, wanted, rel_tol=1e-3)]
        return {"part": found[0]} if found else None

    return find


# -- gradients and updates ---------------------------------------------------------------------------------------------


def find_clipping(case: Case) -> Fields:
    """Tell whether the gradients are smaller than plain PyTorch's, and their norm a round number."""
    norm = float(case.sides[1].norm())
    is_round = math.isclose(norm, float(f"{norm:.2g}"), rel_tol=1e-4)
    return {"norm": norm} if is_round and 0 < case.factor < 1 and is_multiple(case) else None


def find_shares(case: Case) -> Fields:
    """Tell whether the port's gradients are a sum of the micro-batches', in which some count otherwise."""
    parts, replicas = case.evidence.step.own_gradients, int(case.evidence.ported.options.replicas)
    zeros = {name: torch.zeros_like(value) for name, value in case.plain.items()}
    shares = fit(case, [{**zeros, **own} for own in parts]) if len(parts) > 1 else None
    counts = {number: share * len(parts) for number, share in enumerate(shares or ())}
    odd = {number: count for number, count in counts.items() if abs(count - 1) > 0.02}
    lost = [number for number, count in odd.items() if abs(count) < 0.02]
    of_replicas = sorted({number % replicas for number in lost})
    if replicas > 1 and lost and len(of_replicas) * (len(parts) // replicas) == len(lost):
        return {"odd": ", ".join(f"replica {replica}" for replica in of_replicas) + " are lost"}
    words = [f"micro-batch {number + 1} of {len(parts)}" for number in lost or odd]
    if not lost:
        words = [f"{name} {count:.3g} times" for name, count in zip(words, odd.values())]
    return {"odd": ", ".join(words) + (" are lost" if lost else "")} if odd else None


def get_rate(case: Case) -> float:
    """Return the learning rate of the plain optimizer's first group."""
    return float(case.evidence.plain.optimizer.param_groups[0]["lr"]) or math.nan


def find_more_of(choose: Callable[[Case], Mapping[str, torch.Tensor]]) -> Predicate:
    """Tell whether the updates have more of something, or less, and differ in nothing else."""

    def find(case: Case) -> Fields:
        tensors = choose(case)
        shares = fit(case, [tensors], onto_plain=True)
        if not shares:
            return None
        is_alone = len(case.names) < len(case.plain) and all(tensors[name].dim() <= 1 for name in case.names)
        more = -shares[0] / get_rate(case)
        words = f"{abs(more):.3g} {'more' if more > 0 else 'less'} than in plain PyTorch"
        return {"more": words, "alone": ", biases and norms alone" if is_alone else ""}

    return find


# -- states and rates --------------------------------------------------------------------------------------------------


def find_whole(case: Case) -> Fields:
    """Tell whether a tensor of both sides has whole numbers, and the first that differs."""
    one, other = (side.get(case.names[0]) for side in (case.plain, case.ported))
    if one is None or other is None or one.is_floating_point() or one.shape != other.shape:
        return None
    place = int((one != other).flatten().int().argmax())
    return {"plain": one.flatten()[place].item(), "ported": other.flatten()[place].item()}


def find_narrowed(case: Case) -> Fields:
    """Tell whether whole numbers of the port's are what 32 bits make of plain PyTorch's, which they do not hold."""
    found = find_whole(case) if case.names else None
    sides = [side[case.names[0]].long() for side in (case.plain, case.ported)] if found else []
    is_it = found and torch.equal(sides[0].int(), sides[1].int()) and not torch.equal(*sides)
    return found if is_it else None


def get_momentum(case: Case) -> float:
    """Return the momentum of the running statistics of the case's module; NaN where it has none."""
    momentum = getattr(find_module(case.path, case.evidence.plain.model), "momentum", None)
    return momentum if isinstance(momentum, float) else math.nan


def find_other_momentum(case: Case) -> Fields:
    """Tell whether running statistics move as another momentum would move them."""
    momentum = get_momentum(case)
    is_it = not math.isnan(momentum) and is_multiple(case)
    return {"momentum": momentum, "found": case.factor * momentum} if is_it else None


def find_tied(case: Case) -> Fields:
    """Return another name of the same parameter, which is one of its own in the port."""
    models = case.evidence.plain.model, case.evidence.ported.model
    one, other = (dict(model.named_parameters(remove_duplicate=False)) for model in models)
    own = one.get(case.names[0])
    tied = next((name for name, value in one.items() if value is own and name != case.names[0]), "")
    return {"other": tied} if tied and other.get(tied) is not other.get(case.names[0]) else None


def is_constant(side: int) -> Callable[[Case], bool]:
    """Tell whether only this side's rates are one and the same."""
    return lambda case: [len(set(rates.tolist())) == 1 for rates in case.sides] == [side == 0, side == 1]


def find_other_factor(case: Case) -> Fields:
    """Tell where both sides change a rate for the first time by another factor."""
    plain, ported = (side.tolist() for side in case.sides)
    for number in range(1, len(plain)):
        pair = [side[number] / (side[number - 1] or math.nan) for side in (plain, ported)]
        if all(abs(ratio - 1) > 1e-5 for ratio in pair) and abs(pair[0] - pair[1]) > 1e-5:
            return {"plain": pair[0], "ported": pair[1]}
    return None


# -- operators ---------------------------------------------------------------------------------------------------------


def find_operator(case: Case) -> Fields:
    """Tell whether the sides run other operators, or one of them none."""
    words = []
    for side in (case.fault.plain, case.fault.ported):
        numbers = [] if side is None else [str(item) for item in side.args if type(item) in (int, float)]
        with_numbers = f" with {', '.join(numbers)}" if numbers else ""
        words.append("nothing" if side is None else f"`{side.name}`{with_numbers}")
    names = {None if side is None else side.name for side in (case.fault.plain, case.fault.ported)}
    return {"plain": words[0], "ported": words[1]} if len(names) > 1 else None


def find_arguments(case: Case) -> Fields:
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


def find_weights(case: Case) -> Fields:
    """Tell which tensors of the module had another value in the port before the step."""
    plain, ported = ({**one.parameters, **one.buffers} for one in (case.evidence.step.before, case.evidence.before))
    here = "" if find_module(case.path, case.evidence.plain.model) is case.evidence.plain.model else f"{case.path}."
    found = [
        name
        for name, one in plain.items()
        if name.startswith(here) and name in ported and one.is_floating_point()
        if not torch.allclose(one.double(), ported[name].double(), rtol=1e-3, atol=1e-7)
    ]
    return {"weights": list_names(found, most=4)} if found else None


def find_rounding(case: Case) -> Fields:
    """Say how far an operator's results are apart, of which nothing tells why."""
    apart = case.fault.apart
    is_factor = math.isclose(abs(apart.factor - 1) * apart.scale, apart.distance, rel_tol=1e-2)
    words = f"a distance of {apart.distance:.1e} for values of {apart.scale:.1e}, rounding explains {apart.band:.1e}"
    return {"how": f"{apart.factor:.5g} times plain PyTorch's" if is_factor else words}
