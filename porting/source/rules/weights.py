"""Weights and gradients that something else than the optimizer touches, and those of which no module knows."""

from __future__ import annotations

import ast
import re
from typing import Iterator, Optional, Set, Tuple

from porting.diagnostics import Finding, Place
from porting.source.facts import Kind, ProgramObject, Statement, Where
from porting.source.files import list_nodes
from porting.source.library import TENSOR_KINDS
from porting.source.rules.names import is_in_place, name_last, write_dotted
from porting.source.rules.reading import Reading

__all__ = [
    "iter_hidden_parts",
    "iter_reassigned_state",
]


def iter_reassigned_state(reading: Reading) -> Iterator[Finding]:
    """C006: `forward` changes a weight, or assigns a new tensor to a buffer, which only some ports can copy."""
    buffers = _collect_buffers(reading) if reading.is_of_poptorch else set()
    weights = [*iter_changed(reading), *_iter_set(reading)]
    assigned = []
    for statement in reading.facts.statements:
        name = _find_own_attribute(statement.node)
        if name and any(one.name.endswith("nn.Parameter") for one in statement.objects):
            weights.append((statement.place, statement.where))
        elif name and (statement.where.function.rpartition(".")[0], name) in buffers:
            assigned.append((statement.place, statement.where))
    for places, remedy in ((weights, _NEW_WEIGHT), (assigned, "")):
        for place, where in places:
            if where.in_forward and not where.function.endswith(".__init__"):
                yield reading.report("C006", place, remedy=remedy)


_NEW_WEIGHT = "compute with a new tensor: `torch.nn.functional.linear(x, f(self.weight))`"


def _collect_buffers(reading: Reading) -> Set[Tuple[str, object]]:
    """Collect the registered buffers, each with its class."""
    return {
        (call.where.function.rpartition(".")[0], call.node.args[0].value)
        for call in reading.facts.list_methods("register_buffer")
        if call.node.args and isinstance(call.node.args[0], ast.Constant)
    }


def _iter_set(reading: Reading) -> Iterator[Tuple[Place, Where]]:
    """List where `setattr` gives a module a tensor."""
    for call in reading.facts.calls:
        if call.name == "builtins.setattr" and len(call.arguments) > 2 and len(call.node.args) > 2:
            is_tensor = any(one.kind in TENSOR_KINDS for one in call.arguments[2])
            is_tensor = is_tensor or _reads_weight(call.node.args[2])
            if is_tensor and any(one.kind is Kind.MODULE for one in call.arguments[0]):
                yield call.place, call.where


def _reads_weight(node: ast.expr) -> bool:
    return any(isinstance(part, ast.Attribute) and part.attr in ("weight", "bias") for part in list_nodes(node))


def _find_own_attribute(node: ast.AST) -> Optional[str]:
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Attribute) and write_dotted(target.value) == "self":
            return target.attr
    return None


# -------------------------------------------------------------------------------- changes


def is_weight(program_object: ProgramObject) -> bool:
    """Tell whether a program object is the parameters of a module, or one of them."""
    return (
        program_object.kind is Kind.PARAMETERS
        and program_object.name != ".param_groups"
        or program_object.name.endswith(".Parameter")
    )


def is_of_loop(where: Where) -> bool:
    """Tell what a training loop does from what `forward` does, an optimizer of one's own, and what makes models."""
    return not where.in_forward and not _OF_OTHERS.search(where.function)


# a name like `trunc_normal_` is one of what fills weights at first, as in `torch.nn.init`
_OF_OTHERS = re.compile(r"\.(step|\w*(init|reset)\w*|\w*(normal|uniform)_)$")


def iter_changed(reading: Reading) -> Iterator[Tuple[Place, Where]]:
    """List where weights are changed in place, or get other memory; not where they are averaged with others."""
    averaged = {(place.file, place.line) for place, _where in iter_averaged(reading)}
    for call in reading.facts.calls:
        fills = call.name.startswith("torch.nn.init.")
        objects = call.given if fills else call.receiver if is_in_place(call) else ()
        if any(map(is_weight, objects)) and (call.place.file, call.place.line) not in averaged:
            yield call.place, call.where
    for read in reading.facts.reads:
        is_one = (read.place.file, read.place.line) in averaged
        if _is_written(read) and not is_one and any(map(is_weight, read.objects)):
            yield read.place, read.where


def _is_written(read: Statement) -> bool:
    return read.asks == "data" and isinstance(getattr(read.node, "ctx", None), ast.Store)


def iter_averaged(reading: Reading) -> Iterator[Tuple[Place, Where]]:
    """List where weights are changed by other weights, as for a moving average."""
    for call in reading.facts.calls:
        if is_in_place(call) and any(map(is_weight, call.given)):
            yield call.place, call.where
    reads = [read for read in reading.facts.reads if read.asks == "data" and any(map(is_weight, read.objects))]
    for read in reads:
        others = (one for one in reads if one.place.line == read.place.line and one.place.file == read.place.file)
        if _is_written(read) and any(write_dotted(one.node) != write_dotted(read.node) for one in others):
            yield read.place, read.where


def drops_gradient(node: ast.AST) -> bool:
    """Tell an assignment that takes a gradient away: `p.grad = None`."""
    targets = node.targets if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) else []
    return any(isinstance(target, ast.Attribute) and target.attr == "grad" for target in targets)


# -------------------------------------------------------------------------------- parts


def iter_hidden_parts(reading: Reading) -> Iterator[Finding]:
    """C003: a module keeps modules with weights in a plain list or dictionary."""
    registered = {
        one
        for call in reading.facts.calls
        if name_last(call.name) in ("add_module", "register_module", "register_parameter", "setattr", *_HOLDERS)
        for one in (*call.given, *(part for one in call.result for part in one.parts))
    }
    for read in reading.facts.reads:
        if read.asks == "parts" and any(map(_has_weights, read.objects)) and not registered.issuperset(read.objects):
            fault = "a module keeps layers where nothing finds their weights" if reading.is_ported else ""
            yield reading.report("C003", read.place, fault=fault)


_HOLDERS = ("ModuleList", "ModuleDict", "Sequential", "ParameterList", "ParameterDict")
_WITHOUT_WEIGHTS = re.compile(
    r"torch\.nn\.(\w+\.)*(\w*(ReLU|ELU|GELU|Sigmoid|Tanh|Softmax|Softplus|SiLU|Mish|Hard\w+|Pool\dd|Pad\dd|Dropout\w*)"
    r"|Flatten|Unflatten|Identity|Upsample\w*|PixelShuffle|Fold|Unfold|\w*Loss)(?<!PReLU)"
)


def _has_weights(program_object: ProgramObject) -> bool:
    return not _WITHOUT_WEIGHTS.fullmatch(program_object.name)
