"""A learning rate that is not plain PyTorch's: of another optimizer, or of a schedule that is shifted or ignored."""

from __future__ import annotations

import math
from typing import Any, Optional, Sequence

from porting.verify.certificate import Curves, Location, Measured
from porting.verify.fault_location.reproduction import reproduce_schedule
from porting.verify.plain_training import PlainTraining

__all__ = ["locate_schedule"]


def locate_schedule(plain: PlainTraining, ported: Any, first: Measured, curves: Curves) -> Location:
    """Return how the learning rates of the port differ from plain PyTorch's, from the curves of both.

    Where neither side has a schedule, it is the update that differs.
    """
    rates, others = list(curves.plain_rates), list(curves.ported_rates)
    cause = _explain_rates(rates, others, first.step) or _say_present(plain, ported)
    schedule = type(plain.scheduler).__name__ if plain.scheduler is not None else ""
    is_constant = plain.scheduler is None and len(set(others)) == 1
    return Location(
        "update" if is_constant else "schedule",
        first.step,
        operator=schedule or type(plain.optimizer).__name__,
        cause=cause,
        reproduction=reproduce_schedule(plain, rates, others),
    )


def _explain_rates(rates: Sequence[float], others: Sequence[float], step: int) -> Optional[str]:
    count = min(len(rates), len(others))
    rates, others = rates[:count], others[:count]
    number = next((i for i in range(count) if not _is_same(rates[i], others[i])), None)
    if number is None:
        return None
    begin = f"in step {number + 1} the device's learning rate is {others[number]:g}, plain PyTorch's {rates[number]:g}"
    if len(set(rates)) > 1 and _are_same(others, [others[0]] * count):
        return f"{begin}: the schedule is ignored, the rate stays {others[0]:g}"
    if len(set(rates)) == 1 and len(set(others)) > 1:
        return f"{begin}: the port has a schedule, plain PyTorch has none"
    factor = others[number] / rates[number] if rates[number] else math.inf
    if _are_same(others, [factor * rate for rate in rates]):
        return f"{begin}: every rate is {factor:g} times plain PyTorch's, as of an optimizer with another one"
    return f"{begin}: {_explain_steps(rates, others) or _explain_factor(rates, others)}"


def _explain_factor(rates: Sequence[float], others: Sequence[float]) -> str:
    """Say how the port's schedule changes the rate where both change it."""
    for number in range(1, len(rates)):
        pair = [values[number] / values[number - 1] for values in (rates, others) if values[number - 1]]
        if len(pair) == 2 and all(not _is_same(ratio, 1.0) for ratio in pair) and not _is_same(*pair):
            return f"the port's schedule multiplies it by {pair[1]:.4g} there, plain PyTorch's by {pair[0]:.4g}"
    return "the port has another schedule"


def _explain_steps(rates: Sequence[float], others: Sequence[float]) -> Optional[str]:
    """Return how often, or when, the port's schedule is stepped."""
    count = len(rates)
    for shift in (1, 2, 3):
        if count > shift and _are_same(others[shift:], rates[:-shift]):
            return f"the port's schedule is {_say_steps(shift)} behind"
        if count > shift and _are_same(others[:-shift], rates[shift:]):
            return f"the port's schedule is {_say_steps(shift)} ahead"
    for times in (2, 3, 4, 8):
        known = -(-count // times)
        tells = len(set(others[:known])) > 1
        if tells and _are_same(others[:known], rates[::times][:known]):
            return f"the port's schedule is stepped {times} times in a step"
        if _are_same(others, [rates[index // times] for index in range(count)]):
            return f"the port's schedule is stepped only once in {times} steps"
    return None


def _say_steps(count: int) -> str:
    return "one step" if count == 1 else f"{count} steps"


def _is_same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-12)


def _are_same(ones: Sequence[float], others: Sequence[float]) -> bool:
    return len(ones) == len(others) and all(map(_is_same, ones, others))


def _say_present(plain: PlainTraining, ported: Any) -> str:
    own = [float(group["lr"]) for group in plain.optimizer.param_groups]
    other = [float(group["lr"]) for group in ported.optimizer.param_groups]
    return f"the device's learning rates are {other}, those of plain PyTorch {own}"
