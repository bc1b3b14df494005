"""What stands in `forward`: values that the host reads, shapes of the data, tensors of the wrong device, writes."""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Optional, Set, Tuple

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, Statement, Thing, Things
from porting.source.rules.reading import TENSORS, Reading, name_last, write_dotted
from porting.source.rules.scope import rule

__all__ = [
    "find_changed_inputs",
    "find_custom_functions",
    "find_data_dependent_shapes",
    "find_frozen_values",
    "find_homeless_tensors",
    "find_moves_to_host",
    "find_printed_tensors",
    "find_reassigned_buffers",
    "find_values_read",
]


def _list_calls(reading: Reading) -> List[Call]:
    return [call for call in reading.facts.calls if call.where.in_forward]


def _list_statements(reading: Reading) -> List[Statement]:
    return [statement for statement in reading.facts.statements if statement.where.in_forward]


def _has_tensor(things: object) -> bool:
    return any(isinstance(thing, Thing) and thing.kind in TENSORS for thing in things)  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------- values


def find_values_read(reading: Reading) -> Iterator[Finding]:
    """C001: `forward` needs a tensor's value in Python."""
    buffers = _list_buffers(reading)
    for call in _list_calls(reading):
        if call.is_method("item", "tolist", "numpy") and (_has_tensor(call.receiver) or call.is_method("item")):
            yield reading.report("C001", call.place)
        elif call.name in ("builtins.float", "builtins.int", "builtins.bool") and call.arguments:
            is_tensor = _has_tensor(call.arguments[0]) or _is_buffer(call, buffers)
            if is_tensor and not _is_of_shape(call.node.args[0]):
                yield reading.report("C001", call.place)
    for statement in _list_statements(reading):
        test = getattr(statement.node, "test", None)
        if isinstance(test, ast.expr) and _has_tensor(statement.things) and _reads_values(reading, test):
            yield reading.report("C001", statement.place)


def _list_buffers(reading: Reading) -> Set[Tuple[str, object]]:
    """List the registered buffers, each with its class."""
    return {
        (call.where.function.rpartition(".")[0], call.node.args[0].value)
        for call in reading.facts.calls
        if call.is_method("register_buffer") and call.node.args and isinstance(call.node.args[0], ast.Constant)
    }


def _is_buffer(call: Call, buffers: Set[Tuple[str, object]]) -> bool:
    node = call.node.args[0] if call.node.args else None
    is_own = isinstance(node, ast.Attribute) and write_dotted(node.value) == "self"
    return is_own and (call.where.function.rpartition(".")[0], getattr(node, "attr", "")) in buffers


def _is_of_shape(node: ast.expr) -> bool:
    names = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    return bool(names & {"shape", "size", "ndim", "dim", "numel"})


def _reads_values(reading: Reading, test: ast.expr) -> bool:
    """Tell whether a condition depends on values, and not on what is there, its type or its shape."""
    if isinstance(test, ast.BoolOp):
        return any(_reads_values(reading, part) for part in test.values)
    if isinstance(test, ast.UnaryOp):
        return _reads_values(reading, test.operand)
    if isinstance(test, ast.Compare):
        return not any(isinstance(operator, _IDENTITY) for operator in test.ops) and _compares_values(test)
    call = reading.calls_by_node.get(test)
    return call is not None and _has_tensor(call.result) and not _is_of_shape(test)


_IDENTITY = (ast.Is, ast.IsNot, ast.In, ast.NotIn)


def _compares_values(test: ast.Compare) -> bool:
    parts = list(ast.walk(test))
    if any(isinstance(part, ast.Constant) and isinstance(part.value, (str, bool)) for part in parts):
        return False
    draws = any(isinstance(part, ast.Call) and "random" in write_dotted(part.func) for part in parts)
    return not draws and not _is_of_shape(test)


# -------------------------------------------------------------------------------- shapes

_SHAPES = {
    *("nonzero", "masked_select", "unique", "unique_consecutive", "argwhere", "bincount"),
    *("pack_padded_sequence", "pack_sequence"),
}


def find_data_dependent_shapes(reading: Reading) -> Iterator[Finding]:
    """C002: a shape depends on the values of the data."""
    for call in _list_calls(reading):
        last = name_last(call.name)
        is_where = call.name == "torch.where" and len(call.node.args) == 1 and not call.node.keywords
        of_torch = call.name.startswith("torch.") or call.name.startswith(".") and _has_tensor(call.receiver)
        if is_where or last in _SHAPES and of_torch:
            yield reading.report("C002", call.place)
    masks = _find_masks(reading)
    for statement in _list_statements(reading):
        value = getattr(statement.node, "value", None)
        names = masks.get(statement.where.function, set())
        if isinstance(value, ast.expr) and any(_selects_by_mask(part, names) for part in ast.walk(value)):
            yield reading.report("C002", statement.place)


def _find_masks(reading: Reading) -> dict:
    """Find the variables of each function that hold what a comparison of tensors gave."""
    masks: dict = {}
    for statement in _list_statements(reading):
        if isinstance(statement.node, ast.Assign) and _has_tensor(statement.things):
            if _is_mask(statement.node.value, set()):
                names = {write_dotted(target) for target in statement.node.targets}
                masks.setdefault(statement.where.function, set()).update(names)
    return masks


def _is_mask(node: ast.AST, names: Set[str]) -> bool:
    if isinstance(node, ast.Compare):
        return not any(isinstance(operator, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for operator in node.ops)
    if isinstance(node, ast.BinOp):
        is_logic = isinstance(node.op, (ast.BitAnd, ast.BitOr))
        return is_logic and (_is_mask(node.left, names) or _is_mask(node.right, names))
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Invert) and _is_mask(node.operand, names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        keeps = node.func.attr in ("unsqueeze", "expand_as", "expand", "view", "squeeze", "bool", "reshape", "view_as")
        return keeps and _is_mask(node.func.value, names)
    return isinstance(node, ast.Name) and node.id in names


def _selects_by_mask(node: ast.AST, names: Set[str]) -> bool:
    return isinstance(node, ast.Subscript) and _is_mask(node.slice, names)


# -------------------------------------------------------------------------------- devices

_FACTORIES = {
    *("zeros", "ones", "empty", "full", "rand", "randn", "randint", "randperm", "arange", "eye", "linspace"),
    *("tensor", "normal", "logspace", "tril_indices", "triu_indices"),
}


def find_moves_to_host(reading: Reading) -> Iterator[Finding]:
    """C004: `forward` moves a tensor to the host, or to another device."""
    for call in _list_calls(reading):
        if not _has_tensor(call.receiver):
            continue
        target = call.node.args[0] if call.node.args else None
        to_host = call.is_method("to") and isinstance(target, ast.Constant) and str(target.value).startswith("cpu")
        if call.is_method("cpu") or to_host:
            yield reading.report("C004", call.place)


# PopTorch makes it on the device, and says so
@rule(with_poptorch=False)
def find_homeless_tensors(reading: Reading) -> Iterator[Finding]:
    """C011: `forward` makes a tensor without naming its device."""
    calls = _list_calls(reading)
    moved = {
        part
        for call in calls
        if isinstance(call.node.func, ast.Attribute) and call.is_method("to", "cuda", "type_as")
        for part in ast.walk(call.node.func.value)
    }
    for call in calls:
        module, _, last = call.name.rpartition(".")
        named = {word.arg for word in call.node.keywords}
        if module == "torch" and last in _FACTORIES and "device" not in named and None not in named:
            if call.node not in moved and not call.where.function.endswith(".__init__"):
                yield reading.report("C011", call.place)


# -------------------------------------------------------------------------------- other


def find_custom_functions(reading: Reading) -> Iterator[Finding]:
    """C005: `forward` uses a function with a gradient of its own."""
    for call in _list_calls(reading):
        if call.is_method("apply") and any(re.fullmatch(r".+\.apply", thing.name) for thing in call.result):
            yield reading.report("C005", call.place)


def find_printed_tensors(reading: Reading) -> Iterator[Finding]:
    """C010: `forward` prints a tensor."""
    for call in _list_calls(reading):
        if call.name == "builtins.print" and any(_has_tensor(argument) for argument in call.arguments):
            yield reading.report("C010", call.place)


_PYTHON_RANDOM = re.compile(
    r"(random|numpy\.random)\.\w+|time\.\w+|datetime\.(\w+\.)*now|os\.urandom|uuid\.\w+|secrets\.\w+"
)
_HARMLESS = {"sleep", "seed", "Random", "strftime"}


def find_frozen_values(reading: Reading) -> Iterator[Finding]:
    """C020: Python decides a value in `forward`, once."""
    for call in _list_calls(reading):
        if _PYTHON_RANDOM.fullmatch(call.name) and name_last(call.name) not in _HARMLESS:
            if not call.where.function.endswith(".__init__"):
                yield reading.report("C020", call.place)


@rule(with_poptorch=False)
def find_changed_inputs(reading: Reading) -> Iterator[Finding]:
    """C026: `forward` writes into what it was given."""
    for call in _list_calls(reading):
        is_in_place = call.name.startswith(".") and call.name.endswith("_") and not call.name.endswith("__")
        if is_in_place and call.name != ".requires_grad_" and isinstance(call.node.func, ast.Attribute):
            if _is_input(reading, call.node.func.value, call.receiver, call.place):
                yield reading.report("C026", call.place)
    for statement in _list_statements(reading):
        if isinstance(statement.node, ast.AugAssign) and isinstance(statement.node.target, ast.Name):
            if _is_input(reading, statement.node.target, statement.targets, statement.place):
                yield reading.report("C026", statement.place)


def _is_input(reading: Reading, node: ast.expr, things: Things, place: Place) -> bool:
    """Tell whether all that a value may be is a part of the batch as it came."""
    if not things:
        return False
    if all(_is_given(thing) for thing in things):
        return True
    # a tensor that the loop has made, by the name that `forward` gives its argument
    is_named = isinstance(node, ast.Name) and node.id in _list_parameters(reading, place)
    return is_named and all(_is_given(thing) or _is_made_outside(thing) for thing in things)


def _list_parameters(reading: Reading, place: Place) -> Set[str]:
    """List the parameters of the functions around a place."""
    tree = reading.parse(place.file)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)) if tree is not None else ()
    return {
        argument.arg
        for function in functions
        if reading.contains_line(function, place.line)
        for argument in function.args.args
    }


def _is_made_outside(thing: Thing) -> bool:
    call = thing.call
    is_made = thing.kind is Kind.TENSOR and call is not None and not call.where.in_forward
    return is_made and call is not None and call.result == (thing,) and not call.where.function.endswith(".__init__")


def _is_given(thing: Thing) -> bool:
    # a parameter that nothing is known of is a tensor of its own name
    is_parameter = thing.kind is Kind.TENSOR and thing.call is None and not thing.parts and thing.name.isidentifier()
    is_of_batch = thing.kind is Kind.BATCH and (thing.call is None or not thing.call.where.in_forward)
    return is_parameter or is_of_batch


@rule(with_poptorch=True)
def find_reassigned_buffers(reading: Reading) -> Iterator[Finding]:
    """C006: `forward` assigns a new tensor to a registered buffer; a port copies it into the registered one."""
    buffers = _list_buffers(reading)
    for statement in _list_statements(reading):
        name = _find_own_attribute(statement.node)
        if name and (statement.where.function.rpartition(".")[0], name) in buffers:
            yield reading.report("C006", statement.place)


def _find_own_attribute(node: ast.AST) -> Optional[str]:
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Attribute) and write_dotted(target.value) == "self":
            return target.attr
    return None
