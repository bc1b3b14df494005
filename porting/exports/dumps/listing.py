"""The graph as text: a line for each operator with its results, bytes, operations, module and place."""

from __future__ import annotations

from typing import Iterator, Optional, Sequence

from ...diagnostics import Place
from ..exported_step import ExportedStep
from .facts import Facts, describe_step, tensor_text

__all__ = ["as_text", "count_text"]


def as_text(step: ExportedStep) -> bytes:
    """List the graph of `step`, and sums over it."""
    facts = describe_step(step)
    sums, entering = facts["sums"], facts["entering"]
    lines = [f"# {facts['title']}"]
    lines += [f"{t['kind']:10} {t['name']}: {tensor_text(t)}  {count_text(t['bytes'], 'B')}" for t in entering]
    lines += _list_operators(facts["operators"], indent="")
    kept, again = count_text(sums["kept_bytes"], "B"), count_text(sums["recomputed_flops"], "FLOP")
    lines += [
        f"return     {', '.join(facts['returned'])}",
        f"# {len(facts['operators'])} operators, {count_text(sums['forward_flops'], 'FLOP')} forward",
        f"# parameters and buffers {count_text(sums['state_bytes'], 'B')}",
        f"# peak of the forward pass alone {count_text(sums['forward_peak_bytes'], 'B')}",
        f"# kept for the backward pass {kept}, computed again for it {again}",
    ]
    if sums["kept_bytes"] is None:
        lines.append("# incomplete: what waits for the backward pass depends on values")
    return ("\n".join(lines) + "\n").encode()


def count_text(number: Optional[int], unit: str) -> str:
    """Write a count in the decimal multiple that keeps it short.

    >>> count_text(1536, "B"), count_text(2_000_000, "FLOP"), count_text(7, "B"), count_text(None, "B")
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
        results = ", ".join(map(tensor_text, item["outputs"])) or "nothing"
        place = Place(**item["place"]) if item["place"] else ""
        yield (
            f"{indent}{item['name']} = {item['operator']}({', '.join(item['inputs'])}) -> {results}  "
            f"{count_text(item['new_bytes'], 'B')}  {count_text(item['flops'], 'FLOP')}  "
            f"[{item['module'] or 'forward'}]  {place}"
        ).rstrip()
        for body in item["bodies"]:
            yield from _list_operators(body, indent=indent + "    ")
