"""The graph as text: a line for each operator with its results, bytes, operations, module and place."""

from __future__ import annotations

from typing import Iterator, Optional, Sequence

from ...diagnostics import Place
from ..exported_step import ExportedStep
from .facts import Facts, describe_step, format_tensor

__all__ = ["as_text", "format_count"]


def as_text(step: ExportedStep) -> bytes:
    """List the graph of `step`, and sums over it."""
    facts = describe_step(step)
    sums, entering = facts["sums"], facts["entering"]
    lines = [f"# {facts['title']}"]
    lines += [f"{t['kind']:10} {t['name']}: {format_tensor(t)}  {format_count(t['bytes'], 'B')}" for t in entering]
    lines += _list_operators(facts["operators"], indent="")
    kept, again = format_count(sums["kept_bytes"], "B"), format_count(sums["recomputed_flops"], "FLOP")
    lines += [
        f"return     {', '.join(facts['returned'])}",
        f"# {len(facts['operators'])} operators, {format_count(sums['forward_flops'], 'FLOP')} forward",
        f"# parameters and buffers {format_count(sums['state_bytes'], 'B')}",
        f"# peak of the forward pass alone {format_count(sums['forward_peak_bytes'], 'B')}",
        f"# kept for the backward pass {kept}, computed again for it {again}",
    ]
    if sums["kept_bytes"] is None:
        lines.append("# incomplete: what waits for the backward pass depends on values")
    return ("\n".join(lines) + "\n").encode()


def format_count(number: Optional[int], unit: str) -> str:
    """Write a count in the decimal multiple that keeps it short.

    >>> format_count(1536, "B"), format_count(2_000_000, "FLOP"), format_count(7, "B"), format_count(None, "B")
    ('1.5 kB', '2.0 MFLOP', '7 B', 'unknown')
    """
    if number is None:
        return "unknown"
    value, prefix = float(number), ""
    for following in ("k", "M", "G", "T"):
        if value < 1000:
            break
        value, prefix = value / 1000, following
    return f"{value:.1f} {prefix}{unit}" if prefix else f"{number} {unit}"


def _list_operators(operators: Sequence[Facts], *, indent: str) -> Iterator[str]:
    for item in operators:
        results = ", ".join(map(format_tensor, item["outputs"])) or "nothing"
        place = Place(**item["place"]) if item["place"] else ""
        yield (
            f"{indent}{item['name']} = {item['operator']}({', '.join(item['inputs'])}) -> {results}  "
            f"{format_count(item['new_bytes'], 'B')}  {format_count(item['flops'], 'FLOP')}  "
            f"[{item['module'] or 'forward'}]  {place}"
        ).rstrip()
        for body in item["bodies"]:
            yield from _list_operators(body, indent=indent + "    ")
