"""Make a function of output and label of the statements that compute a loss in a loop.

It is written where the port is made, in the words of that place, and does exactly what the loop did.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Set, Tuple

from porting.convert.names import collect_reads, collect_writes, drop_moves, parse_expression, substitute
from porting.convert.places import PortPlace
from porting.convert.training_step import StepError, TrainingStep
from porting.convert.trees import write_node

__all__ = ["PortedLoss", "make_loss"]

_FUNCTION = "compute_loss"


@dataclass(frozen=True)
class PortedLoss:
    """The loss of a port: its definition, if it needs one, the argument of `to_ipu`, and further keywords."""

    definition: str
    argument: str
    keywords: Dict[str, str]


def make_loss(step: TrainingStep, place: PortPlace) -> PortedLoss:
    """Make the loss of a step for a port; raises StepError for a model that gets no label and returns no loss."""
    own = _find_own_loss(step)
    if own is not None:
        return PortedLoss("", "", own)
    if not step.labels:
        raise StepError(step.file, step.backward, "the loss reads nothing of the batch, and a port wants a label")
    if any(isinstance(one, ast.Starred) for one in step.call.args) and len(step.labels) > 1:
        raise StepError(step.file, step.call, "the model gets as many inputs as a list has, and several labels")
    first, num_labels = len(step.call.args), len(step.labels)
    keywords = {"label": str((*range(first, first + num_labels),))} if num_labels > 1 else {}
    body, result, names = _write_body(step, place)
    output, label = names
    if not body:
        argument = _find_function(place, result, names) or f"lambda {output}, {label}: {result}"
        return PortedLoss("", argument, keywords)
    lines = [f"def {_FUNCTION}({output}, {label}):", *(f"    {line}" for line in body), f"    return {result}", ""]
    return PortedLoss("\n".join(lines), _FUNCTION, keywords)


def _find_own_loss(step: TrainingStep) -> Optional[Dict[str, str]]:
    """Find where a model that returns its loss itself has it: the keywords for `to_ipu`; None for any other."""
    if step.helper is not None or step.labels or step.is_nested:
        return None
    if not step.loss_units and step.loss_name in step.outputs:
        return {} if len(step.outputs) == 1 else {"loss_output": str(step.outputs.index(step.loss_name))}
    value: Any = getattr(step.loss_units[0], "value", None) if step.loss_units else step.loss
    is_part = isinstance(value, (ast.Attribute, ast.Subscript)) and write_node(value.value) == step.outputs[0]
    if len(step.outputs) > 1 or len(step.loss_units) > 1 or not is_part:
        return None
    return {"loss_output": repr(value.attr) if isinstance(value, ast.Attribute) else write_node(value.slice)}


def _name_labels(step: TrainingStep, taken: Set[str]) -> List[str]:
    """Name the labels as the loop does, or by the last word of an element or attribute."""
    names: List[str] = []
    for text in step.labels:
        name = re.findall(r"[A-Za-z_]\w*", text)[-1]
        while not text.isidentifier() and (name in taken or name in names):
            name += "_"
        if name in step.outputs:
            raise StepError(step.file, step.backward, f"`{name}` is output and label at once")
        names.append(name)
    return names


def _write_body(step: TrainingStep, place: PortPlace) -> Tuple[List[str], str, Tuple[str, str]]:
    """Write the statements of the loss, the expression that is returned, and the names of output and label."""
    units = [*step.prelude, *(step.read_unit(unit) for unit in step.loss_units)]
    written = {name for unit in units for name in collect_writes(unit)}
    labels = _name_labels(step, {*step.outputs, *written, *step.constants})
    texts = {name: place.texts[name] for name in step.constants if place.texts.get(name, name) != name}
    elsewhere = {name for text in texts.values() for name in collect_reads(ast.parse(text))}
    clash = {*step.outputs, *written, *labels} & elsewhere
    if clash:
        raise StepError(step.file, step.backward, f"`{clash.pop()}` is another thing where the port is made")
    texts.update({text: name for text, name in zip(step.labels, labels) if text != name})
    last = units[-1] if units else None
    result: ast.expr = step.loss
    if isinstance(last, ast.Assign) and [write_node(one) for one in last.targets] == [write_node(result)]:
        units, result = units[:-1], last.value
    lines = [drop_moves(line) for unit in units for line in substitute(unit, texts)]
    output = step.outputs[0] if len(step.outputs) == 1 else "outputs"
    label = labels[0] if len(labels) == 1 else "labels"
    pairs = ((step.outputs, output), (labels, label))
    unpacked = [f"{', '.join(names)} = {name}" for names, name in pairs if len(names) > 1]
    return [*unpacked, *lines], drop_moves(substitute(result, texts)[0]), (output, label)


def _find_function(place: PortPlace, result: str, names: Tuple[str, str]) -> str:
    """Return the loss where it is a function or module of output and label as it is; empty where it is not."""
    node = parse_expression(result)
    if not isinstance(node, ast.Call) or node.keywords or [write_node(one) for one in node.args] != list(names):
        return ""
    text, is_known = write_node(node.func), not set(names) & collect_reads(node.func)
    if text.startswith("self."):  # it may be assigned later
        lines = [one.lineno for one in place.file.iter_assignments(text, place.file.find_scope(place.anchor))]
        is_known = is_known and bool(lines) and max(lines) < place.anchor.lineno
    return text if is_known else ""
