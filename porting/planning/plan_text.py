"""This module writes a plan as text: its table of memory, the verdict, the stages, the speed and what would help."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import TYPE_CHECKING, Iterator, List, Tuple

from ..diagnostics import align_columns, join_names

if TYPE_CHECKING:
    from .plan_record import Plan

__all__ = ["NAMES", "format_change", "format_fitting", "format_mb", "format_plan", "format_scaling"]

_MEBI = 1 << 20
_MOST_IPUS = 5

NAMES = {
    "weight_bytes": "weights",
    "buffer_bytes": "buffers",
    "accumulator_bytes": "gradient accumulators",
    "optimizer_bytes": "optimizer state",
    "kept_bytes": "kept for the backward pass",
    "recomputed_bytes": "computed again at one time",
    "temporary_bytes": "temporaries",
    "input_bytes": "inputs and outputs",
    "code_bytes": "code",
    "exchange_bytes": "exchange and control",
    "imbalance_bytes": "gaps and imbalance of tiles",
}
"""What the terms of a plan are called."""


def format_mb(num_bytes: int) -> str:
    """Return bytes as whole mebibytes.

    >>> format_mb(3 << 20)
    '3 MiB'
    """
    return f"{num_bytes / _MEBI:,.0f} MiB"


def format_plan(plan: Plan) -> str:
    """Return a plan as text of at most 80 columns where names of modules allow."""
    present = format_mb(plan.target.memory_bytes)
    lines = [f"memory of {plan.machine.name}: {present} an IPU; micro-batch {plan.micro_batch}"]
    lines += _list_terms(plan)
    lines += [_format_verdict(plan), *_iter_places(plan)]
    lines += _iter_speed(plan) if plan.has_speed else [format_fitting(plan)]
    if plan.least_ipus > len(plan.ipus) and not plan.fits:
        lines.append(f"weights, gradients and optimizer state alone fill {plan.least_ipus} IPUs")
    if plan.verdict != "fits" and plan.remedies:
        lines += _list_remedies(plan)
    return "\n".join(lines)


def format_change(before: Plan, after: Plan) -> str:
    """Return what a change of options does to a plan: each term of the fullest IPU and the speed, before and after."""
    rows: List[Tuple[str, ...]] = [("MiB on the fullest IPU", "before", "after", "change")]
    for name, words in NAMES.items():
        old, new = before.fullest.parts[name], after.fullest.parts[name]
        if old or new:
            rows.append((words, _format_mebi(old), _format_mebi(new), f"{(new - old) / _MEBI:+,.1f}"))
    old, new = before.bytes_per_ipu, after.bytes_per_ipu
    rows.append(("together", _format_mebi(old), _format_mebi(new), f"{(new - old) / _MEBI:+,.1f}"))
    speeds = [plan.forecast.samples_per_second if plan.has_speed else None for plan in (before, after)]
    change = f"{speeds[1] / speeds[0] - 1:+.0%}" if speeds[0] and speeds[1] else ""
    rows.append(("samples a second", *("-" if speed is None else f"{speed:,.0f}" for speed in speeds), change))
    lines = align_columns(rows, right=range(1, 4))
    return "\n".join([*lines, f"before: {before.verdict}; after: {after.verdict}"])


def format_fitting(plan: Plan) -> str:
    """Say on which machine the step would fit as it is."""
    if plan.fitting is None:
        return f"with these options it fits on no machine of {plan.target.name}"
    num_ipus, machine = plan.fitting.num_ipus, plan.smallest_machine
    name = f"{machine.name} is the smallest machine" if machine else f"no machine of {plan.target.name} has as many"
    return f"with these options it fits on {num_ipus} IPU{'s' * (num_ipus > 1)}: {name}"


def format_scaling(plan: Plan) -> str:
    """Say up to how many replicas twice as many are worth it."""
    if plan.pays_up_to == 1:
        return "a second replica does not pay: both train less than 1.5 times as many samples"
    return f"up to {plan.pays_up_to} replicas, each doubling trains at least 1.5 times as many samples"


def _list_terms(plan: Plan) -> List[str]:
    """List the terms of the fullest IPUs, as many as a terminal has columns for."""
    by_size = sorted(plan.ipus, key=lambda memory: -memory.total_bytes)
    shown = sorted(by_size[:_MOST_IPUS], key=lambda memory: memory.ipu)
    header = ["MiB", *(f"IPU {memory.ipu}" for memory in shown)]
    rows = [[NAMES[name], *(_format_mebi(memory.parts[name]) for memory in shown)] for name in NAMES]
    rows = [row for row in rows if any(text != "0.0" for text in row[1:])]
    rows.append(["together", *(_format_mebi(memory.total_bytes) for memory in shown)])
    rows.append(["+-", *(_format_mebi(memory.error_bytes) for memory in shown)])
    lines = align_columns([header, *rows], right=range(1, len(header)))
    if len(shown) < len(plan.ipus):
        lines.append(f"these are the fullest {len(shown)} of {len(plan.ipus)} IPUs")
    return lines


def _format_mebi(num_bytes: int) -> str:
    return f"{num_bytes / _MEBI:,.1f}"


def _format_verdict(plan: Plan) -> str:
    low, high = (size / plan.target.memory_bytes for size in (plan.low_bytes, plan.high_bytes))
    text = f"{plan.verdict}: {plan.share:.0%} of the fullest IPU's memory ({low:.0%} to {high:.0%})"
    lines = [text, f"probability {plan.probability:.0%}; the largest part is {NAMES[plan.binding]}"]
    return "\n".join([*lines, *(f"outside the evidence: {reason}" for reason in plan.outside)])


def _iter_places(plan: Plan) -> Iterator[str]:
    if plan.options.recompute and plan.mode == "training":
        listed = join_names(plan.options.recompute, quote='"')
        yield from _wrap_lines(f"recompute=[{listed}]", "")
    if plan.stages:
        listed = ", ".join(f'"{name}": {ipu}' for name, ipu in plan.stages.items())
        yield from _wrap_lines(f"stages={{{listed}}}, accumulation={plan.options.accumulation}", "")


def _iter_speed(plan: Plan) -> Iterator[str]:
    speed = plan.forecast
    unit = "samples a second"
    yield (
        f"{speed.samples_per_second:,.0f} {unit} ({speed.low:,.0f} to {speed.high:,.0f}) on {speed.replicas} "
        f"replica{'s' * (speed.replicas > 1)}; {speed.limit} binds"
    )
    yield format_scaling(plan)
    if plan.stages:
        yield f"the pipeline is full {speed.efficiency:.0%} of the time, and its IPUs are {speed.balance:.0%} balanced"


def _list_remedies(plan: Plan) -> List[str]:
    lines = ["what helps, in this order:      alone MiB  with those before  samples/s"]
    for remedy in plan.remedies:
        alone, together = _format_mebi(remedy.alone_bytes), _format_mebi(remedy.together_bytes)
        lines.append(f"  {remedy.name:28} {alone:>10} {together:>14} {remedy.time:>13}")
        lines += _wrap_lines(remedy.change, "    ")
    changes = [
        f"{field.name}={getattr(plan.suggested, field.name)!r}"
        for field in dataclasses.fields(plan.options)
        if getattr(plan.suggested, field.name) != getattr(plan.options, field.name)
    ]
    if changes:
        lines += _wrap_lines(f"together: {', '.join(changes)}", "")
        if plan.remedies[-1].together_bytes > plan.target.memory_bytes:
            lines.append("that is not enough: no remedy is left")
    return lines


def _wrap_lines(text: str, indent: str) -> List[str]:
    # names stay whole: what is between backquotes can be pasted
    wrapper = textwrap.TextWrapper(76, indent, f"{indent}  ", break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)
