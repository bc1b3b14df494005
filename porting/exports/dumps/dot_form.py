"""The graph in Graphviz's language: tensors that enter are ellipses, operators boxes, arrows carry types and shapes."""

from __future__ import annotations

from typing import Dict, Iterator, List, Sequence

from ..exported_step import ExportedStep
from .facts import OperatorFacts, TensorFacts, facts_of, tensor_text
from .listing import count_text

__all__ = ["as_dot"]

_COLOURS = {"parameter": "#cfe2f3", "buffer": "#d9ead3", "input": "#fff2cc", "constant": "#eeeeee"}


def as_dot(step: ExportedStep) -> bytes:
    """Draw the graph of `step`; operators of bodies (segments, loops, branches) stand in a frame of their own."""
    facts = facts_of(step)
    lines = [
        f"digraph {_quote(facts.title)} {{",
        "  rankdir=TB;",
        '  node [fontname="Helvetica", fontsize=10];',
        f"  label={_quote(facts.title)};",
    ]
    values: Dict[str, TensorFacts] = {tensor.name: tensor for tensor in facts.entering}
    makers = {tensor.name: tensor.name for tensor in facts.entering}
    for tensor in facts.entering:
        colour = _COLOURS.get(tensor.kind, "#ffffff")
        label = _make_label([tensor.name, tensor_text(tensor)])
        lines.append(f'  {_quote(tensor.name)} [shape=ellipse, style=filled, fillcolor="{colour}", label={label}];')
    for item in facts.operators:
        values.update((tensor.name, tensor) for tensor in item.outputs)
        makers.update((tensor.name, item.name) for tensor in item.outputs)
    lines += _draw_operators(facts.operators, indent="  ")
    lines += _draw_arrows(facts.operators, values, makers)
    for number, name in enumerate(facts.returned):
        lines.append(f"  {_quote(f'return {number}')} [shape=plaintext];")
        lines.append(f"  {_quote(makers.get(name, name))} -> {_quote(f'return {number}')};")
    return ("\n".join([*lines, "}"]) + "\n").encode()


def _draw_operators(operators: Sequence[OperatorFacts], *, indent: str, prefix: str = "") -> Iterator[str]:
    for item in operators:
        place = f"{item.place}" if item.place is not None else ""
        sums = f"{count_text(item.new_bytes, 'B')}, {count_text(item.flops, 'FLOP')}"
        lines = [item.operator, item.module or "forward", sums, *([place] if place else [])]
        label = _make_label(lines)
        name = f"{prefix}{item.name}"
        yield f"{indent}{_quote(name)} [shape=box, label={label}];"
        for number, body in enumerate(item.bodies):
            yield f"{indent}subgraph {_quote(f'cluster {name} {number}')} {{"
            yield f"{indent}  label={_quote(f'in {name}')}; style=dashed;"
            yield from _draw_operators(body, indent=indent + "  ", prefix=f"{name}/{number}/")
            yield from _draw_inner_arrows(body, indent=indent + "  ", prefix=f"{name}/{number}/")
            yield f"{indent}}}"


def _draw_inner_arrows(body: Sequence[OperatorFacts], *, indent: str, prefix: str) -> Iterator[str]:
    makers = {tensor.name: item.name for item in body for tensor in item.outputs}
    for item in body:
        for used in dict.fromkeys(makers[name] for name in item.inputs if name in makers):
            yield f"{indent}{_quote(prefix + used)} -> {_quote(prefix + item.name)};"


def _draw_arrows(
    operators: Sequence[OperatorFacts], values: Dict[str, TensorFacts], makers: Dict[str, str]
) -> List[str]:
    lines = []
    for item in operators:
        for name in item.inputs:
            text = tensor_text(values[name]) if name in values else ""
            lines.append(f"  {_quote(makers.get(name, name))} -> {_quote(item.name)} [label={_quote(text)}];")
    return lines


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _make_label(lines: Sequence[str]) -> str:
    return '"' + "\\n".join(_quote(line)[1:-1] for line in lines) + '"'
