"""The graph as text: a line for each operator with its results, bytes, operations, module and place."""

from __future__ import annotations

from typing import Iterator, Optional, Sequence

from ..exported_step import ExportedStep
from .facts import OperatorFacts, StepFacts, facts_of, tensor_text

__all__ = ["as_text", "count_text"]


def as_text(step: ExportedStep) -> bytes:
    """List the graph of `step`, and sums over it."""
    facts = facts_of(step)
    lines = [f"# {facts.title}"]
    lines += [f"{t.kind:10} {t.name}: {tensor_text(t)}  {count_text(t.num_bytes, 'B')}" for t in facts.entering]
    lines += _list_operators(facts.operators, indent="")
    lines += [f"return     {', '.join(facts.returned)}", *_list_sums(facts)]
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


def _list_operators(operators: Sequence[OperatorFacts], *, indent: str) -> Iterator[str]:
    for item in operators:
        results = ", ".join(map(tensor_text, item.outputs)) or "nothing"
        yield (
            f"{indent}{item.name} = {item.operator}({', '.join(item.inputs)}) -> {results}  "
            f"{count_text(item.new_bytes, 'B')}  {count_text(item.flops, 'FLOP')}  "
            f"[{item.module or 'forward'}]  {item.place or ''}"
        ).rstrip()
        for body in item.bodies:
            yield from _list_operators(body, indent=indent + "    ")


def _list_sums(facts: StepFacts) -> Iterator[str]:
    yield f"# {len(facts.operators)} operators, {count_text(facts.forward_flops, 'FLOP')} forward"
    yield f"# parameters and buffers {count_text(facts.state_bytes, 'B')}"
    yield f"# peak of the forward pass alone {count_text(facts.forward_peak_bytes, 'B')}"
    kept, again = count_text(facts.kept_bytes, "B"), count_text(facts.recomputed_flops, "FLOP")
    yield f"# kept for the backward pass {kept}, computed again for it {again}"
    if facts.kept_bytes is None:
        yield "# incomplete: what waits for the backward pass depends on values"
