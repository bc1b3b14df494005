"""The graph for people: a line for each operator, and a drawing in Graphviz's language.

In the drawing tensors that enter are ellipses, operators boxes, and arrows carry types and shapes.
"""

from __future__ import annotations

from typing import Iterator, Optional, Sequence

from ...diagnostics import Place
from ...executables.exported_step import ExportedStep
from .facts import Facts, describe_step, format_tensor

__all__ = ["as_dot", "as_text"]

_COLOURS = {"parameter": "#cfe2f3", "buffer": "#d9ead3", "input": "#fff2cc", "constant": "#eeeeee"}


def as_text(step: ExportedStep) -> bytes:
    """List the graph of `step`, and sums over it."""
    facts = describe_step(step)
    sums, entering = facts["sums"], facts["entering"]
    lines = [f"# {facts['title']}"]
    lines += [f"{t['kind']:10} {t['name']}: {format_tensor(t)}  {_format_count(t['bytes'], 'B')}" for t in entering]
    lines += _list_operators(facts["operators"], indent="")
    kept, again = _format_count(sums["kept_bytes"], "B"), _format_count(sums["recomputed_flops"], "FLOP")
    lines += [
        f"return     {', '.join(facts['returned'])}",
        f"# {len(facts['operators'])} operators, {_format_count(sums['forward_flops'], 'FLOP')} forward",
        f"# parameters and buffers {_format_count(sums['state_bytes'], 'B')}",
        f"# peak of the forward pass alone {_format_count(sums['forward_peak_bytes'], 'B')}",
        f"# kept for the backward pass {kept}, computed again for it {again}",
    ]
    if sums["kept_bytes"] is None:
        lines.append("# incomplete: what waits for the backward pass depends on values")
    return ("\n".join(lines) + "\n").encode()


def as_dot(step: ExportedStep) -> bytes:
    """Draw the graph of `step`; operators of bodies (segments, loops, branches) stand in a frame of their own."""
    facts = describe_step(step)
    entering, operators, title = facts["entering"], facts["operators"], _quote_text(facts["title"])
    lines = [f"digraph {title} {{", "  rankdir=TB;", '  node [fontname="Helvetica", fontsize=10];', f"  label={title};"]
    for tensor in entering:
        colour = _COLOURS.get(tensor["kind"], "#ffffff")
        label = _quote_text(f"{tensor['name']}\n{format_tensor(tensor)}")
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
        sums = f"{_format_count(item['new_bytes'], 'B')}, {_format_count(item['flops'], 'FLOP')}"
        place = [str(Place(**item["place"]))] if item["place"] else []
        label = _quote_text("\n".join([item["operator"], item["module"] or "forward", sums, *place]))
        name = f"{prefix}{item['name']}"
        yield f"{indent}{_quote_text(name)} [shape=box, label={label}];"
        for number, body in enumerate(item["bodies"]):
            yield f"{indent}subgraph {_quote_text(f'cluster {name} {number}')} {{"
            yield f"{indent}  label={_quote_text(f'in {name}')}; style=dashed;"
            yield from _draw_operators(body, indent=indent + "  ", prefix=f"{name}/{number}/")
            yield f"{indent}}}"
    # the arrows of the whole step carry types and shapes, which `as_dot` knows
    makers = {tensor["name"]: item["name"] for item in operators for tensor in item["outputs"]}
    for item in operators if prefix else ():
        for used in dict.fromkeys(makers[name] for name in item["inputs"] if name in makers):
            yield f"{indent}{_quote_text(prefix + used)} -> {_quote_text(prefix + item['name'])};"


def _quote_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _format_count(number: Optional[int], unit: str) -> str:
    """Write a count in the decimal multiple that keeps it short.

    >>> _format_count(1536, "B"), _format_count(2_000_000, "FLOP"), _format_count(7, "B"), _format_count(None, "B")
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
            f"{_format_count(item['new_bytes'], 'B')}  {_format_count(item['flops'], 'FLOP')}  "
            f"[{item['module'] or 'forward'}]  {place}"
        ).rstrip()
        for body in item["bodies"]:
            yield from _list_operators(body, indent=indent + "    ")
