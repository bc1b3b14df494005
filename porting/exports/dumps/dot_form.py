"""The graph in Graphviz's language: tensors that enter are ellipses, operators boxes, arrows carry types and shapes."""

from __future__ import annotations

from typing import Iterator, Sequence

from ...diagnostics import Place
from ..exported_step import ExportedStep
from .facts import Facts, describe_step, format_tensor
from .listing import format_count

__all__ = ["as_dot"]

_COLOURS = {"parameter": "#cfe2f3", "buffer": "#d9ead3", "input": "#fff2cc", "constant": "#eeeeee"}


def as_dot(step: ExportedStep) -> bytes:
    """Draw the graph of `step`; operators of bodies (segments, loops, branches) stand in a frame of their own."""
    facts = describe_step(step)
    entering, operators, title = facts["entering"], facts["operators"], _quote_text(facts["title"])
    lines = [
        f"digraph {title} {{",
        "  rankdir=TB;",
        '  node [fontname="Helvetica", fontsize=10];',
        f"  label={title};",
    ]
    for tensor in entering:
        colour = _COLOURS.get(tensor["kind"], "#ffffff")
        label = _make_label([tensor["name"], format_tensor(tensor)])
        lines.append(
            f'  {_quote_text(tensor["name"])} [shape=ellipse, style=filled, fillcolor="{colour}", label={label}];'
        )
    lines += _draw_operators(operators, indent="  ")
    # by name of a value: the node that has it, and what the arrow says
    values = {tensor["name"]: (tensor["name"], format_tensor(tensor)) for tensor in entering}
    values.update((t["name"], (item["name"], format_tensor(t))) for item in operators for t in item["outputs"])
    for item in operators:
        for name in item["inputs"]:
            source, text = values.get(name, (name, ""))
            lines.append(f"  {_quote_text(source)} -> {_quote_text(item['name'])} [label={_quote_text(text)}];")
    for number, name in enumerate(facts["returned"]):
        lines.append(f"  {_quote_text(f'return {number}')} [shape=plaintext];")
        lines.append(f"  {_quote_text(values.get(name, (name, ''))[0])} -> {_quote_text(f'return {number}')};")
    return ("\n".join([*lines, "}"]) + "\n").encode()


def _draw_operators(operators: Sequence[Facts], *, indent: str, prefix: str = "") -> Iterator[str]:
    for item in operators:
        sums = f"{format_count(item['new_bytes'], 'B')}, {format_count(item['flops'], 'FLOP')}"
        place = [str(Place(**item["place"]))] if item["place"] else []
        label = _make_label([item["operator"], item["module"] or "forward", sums, *place])
        name = f"{prefix}{item['name']}"
        yield f"{indent}{_quote_text(name)} [shape=box, label={label}];"
        for number, body in enumerate(item["bodies"]):
            yield f"{indent}subgraph {_quote_text(f'cluster {name} {number}')} {{"
            yield f"{indent}  label={_quote_text(f'in {name}')}; style=dashed;"
            yield from _draw_body(body, indent=indent + "  ", prefix=f"{name}/{number}/")
            yield f"{indent}}}"


def _draw_body(body: Sequence[Facts], *, indent: str, prefix: str) -> Iterator[str]:
    yield from _draw_operators(body, indent=indent, prefix=prefix)
    makers = {tensor["name"]: item["name"] for item in body for tensor in item["outputs"]}
    for item in body:
        for used in dict.fromkeys(makers[name] for name in item["inputs"] if name in makers):
            yield f"{indent}{_quote_text(prefix + used)} -> {_quote_text(prefix + item['name'])};"


def _quote_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _make_label(lines: Sequence[str]) -> str:
    return '"' + "\\n".join(_quote_text(line)[1:-1] for line in lines) + '"'
