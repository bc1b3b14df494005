"""Judge what stands in `forward`, which is captured once.

It finds values that the host reads, shapes of the data, tensors of the wrong device, and writes.
"""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Set

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, ProgramObject, ProgramObjects, Statement
from porting.source.files import list_statements
from porting.source.library import NAMES, TENSOR_KINDS
from porting.source.rules.factories import list_homeless_calls
from porting.source.rules.names import is_in_place, name_last, write_dotted
from porting.source.rules.program_objects import go_through_parts
from porting.source.rules.reading import Reading
from porting.source.rules.scope import rule

__all__ = [
    "iter_changed_inputs",
    "iter_custom_functions",
    "iter_data_dependent_shapes",
    "iter_frozen_values",
    "iter_homeless_tensors",
    "iter_moves_to_host",
    "iter_unsupported_tensors",
    "iter_values_read",
]


def _list_calls(reading: Reading) -> List[Call]:
    return [call for call in reading.facts.calls if call.where.in_forward]


def _list_statements(reading: Reading) -> List[Statement]:
    return [statement for statement in reading.facts.statements if statement.where.in_forward]


def _has_tensor(objects: object) -> bool:
    return any(isinstance(one, ProgramObject) and one.kind in TENSOR_KINDS for one in objects)  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------- values


def iter_values_read(reading: Reading) -> Iterator[Finding]:
    """C001 and C010: `forward` needs a tensor's value in Python, or its text."""
    for read in reading.facts.reads:
        if read.where.in_forward and read.asks in _ASKED:
            yield reading.report(_ASKED[read.asks], read.place)


_ASKED = {"value": "C001", "text": "C010"}


# -------------------------------------------------------------------------------- shapes


def iter_data_dependent_shapes(reading: Reading) -> Iterator[Finding]:
    """C002: a shape depends on the values of the data."""
    for call in reading.facts.calls:
        if not call.where.in_forward and reading.loss_parts.isdisjoint(call.result):
            continue
        last = name_last(call.name)
        is_where = call.name == "torch.where" and len(call.node.args) == 1 and not call.node.keywords
        of_torch = call.name.startswith("torch.") or call.name.startswith(".") and _has_tensor(call.receiver)
        if is_where or last in NAMES["shaped by values"] and of_torch:
            yield reading.report("C002", call.place)
    for read in reading.facts.reads:
        by_name = read.asks == "shape by name"
        is_asked = read.asks == "shape" or by_name
        if is_asked and (read.where.in_forward or not reading.loss_parts.isdisjoint(read.objects)):
            guess = f"only its name says that `{reading.read_text(read.place)}` chooses elements" if by_name else ""
            yield reading.report("C002", read.place, guess=guess)


# -------------------------------------------------------------------------------- devices


def iter_moves_to_host(reading: Reading) -> Iterator[Finding]:
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
def iter_homeless_tensors(reading: Reading) -> Iterator[Finding]:
    """C011: `forward` makes a tensor without naming its device."""
    for call in list_homeless_calls(reading.facts):
        yield reading.report("C011", call.place)


# -------------------------------------------------------------------------------- other


def iter_custom_functions(reading: Reading) -> Iterator[Finding]:
    """C005: `forward` uses a function with a gradient of its own."""
    for call in _list_calls(reading):
        if call.is_method("apply") and any(re.fullmatch(r".+\.apply", one.name) for one in call.result):
            yield reading.report("C005", call.place)


_PYTHON_RANDOM = re.compile(
    r"(random|numpy\.random)\.\w+|time\.\w+|datetime\.(\w+\.)*now|os\.urandom|uuid\.\w+|secrets\.\w+"
)
_HARMLESS = {"sleep", "seed", "Random", "strftime"}


def iter_frozen_values(reading: Reading) -> Iterator[Finding]:
    """C020: Python decides a value in `forward`, once."""
    for call in _list_calls(reading):
        if _PYTHON_RANDOM.fullmatch(call.name) and name_last(call.name) not in _HARMLESS:
            if not call.where.function.endswith(".__init__"):
                yield reading.report("C020", call.place)


@rule(with_poptorch=False)
def iter_changed_inputs(reading: Reading) -> Iterator[Finding]:
    """C026: `forward` writes into what it was given."""
    for call in _list_calls(reading):
        if is_in_place(call) and isinstance(call.node.func, ast.Attribute):
            if _is_input(reading, call.node.func.value, call.receiver, call.place):
                yield reading.report("C026", call.place)
    for statement in _list_statements(reading):
        if isinstance(statement.node, ast.AugAssign) and isinstance(statement.node.target, ast.Name):
            if _is_input(reading, statement.node.target, statement.targets, statement.place):
                yield reading.report("C026", statement.place)


def _is_input(reading: Reading, node: ast.expr, objects: ProgramObjects, place: Place) -> bool:
    """Tell whether all that a value may be is a part of the batch as it came."""
    if not objects:
        return False
    if all(_is_given(one) for one in objects):
        return True
    # a tensor that the loop has made, by the name that `forward` gives its argument
    is_named = isinstance(node, ast.Name) and node.id in _collect_parameters(reading, place)
    return is_named and all(_is_given(one) or _is_made_outside(one) for one in objects)


def _collect_parameters(reading: Reading, place: Place) -> Set[str]:
    """Collect the parameters of the functions around a place."""
    tree = reading.parse(place.file)
    return {
        argument.arg
        for function in (list_statements(tree) if tree is not None else ())
        if isinstance(function, ast.FunctionDef) and reading.contains_line(function, place.line)
        for argument in function.args.args
    }


def _is_made_outside(program_object: ProgramObject) -> bool:
    call = program_object.call
    is_made = program_object.kind is Kind.TENSOR and call is not None and not call.where.in_forward
    return (
        is_made
        and call is not None
        and call.result == (program_object,)
        and not call.where.function.endswith(".__init__")
    )


def _is_given(program_object: ProgramObject) -> bool:
    # a parameter that nothing is known of is a tensor of its own name
    is_parameter = (
        program_object.kind is Kind.TENSOR
        and program_object.call is None
        and not program_object.parts
        and program_object.name.isidentifier()
    )
    is_of_batch = program_object.kind is Kind.BATCH and (
        program_object.call is None or not program_object.call.where.in_forward
    )
    return is_parameter or is_of_batch


# -------------------------------------------------------------------------------- kinds of tensors

_SPARSE = re.compile(r"\.(to_sparse\w*|coalesce)|torch\.(spmm|hspmm|dsmm|sspaddmm|smm|sparse(_\w+_tensor|\.\w+))")
_KEEPING_SPARSE = re.compile(
    r"\.(to|cuda|cpu|float|t|coalesce|to_sparse\w*)|part|\[\]|element|torch\.sparse_\w+_tensor"
)
_DOUBLE = re.compile(r"(torch\.)?(float64|double|complex128|DoubleTensor)")


def iter_unsupported_tensors(reading: Reading) -> Iterator[Finding]:
    """C017 and C044: a sparse tensor, or float64, is in `forward` or goes into it."""
    given = {one for call in _list_calls_of_models(reading) for one in call.given}
    parts = set(go_through_parts(tuple(given), TENSOR_KINDS))
    # what is computed of sparse tensors may be dense
    computed = [one for one in parts if not _KEEPING_SPARSE.fullmatch(one.name)]
    sparse = {*given, *go_through_parts(tuple(given), TENSOR_KINDS, until=computed)}
    for call in reading.facts.calls:
        is_sparse = call.where.in_forward or not sparse.isdisjoint(call.result)
        if is_sparse and _SPARSE.fullmatch(call.name):
            fault = "the device has no sparse tensors" if reading.is_ported else ""
            yield reading.report("C017", call.place, fault=fault)
        is_inside = call.where.in_forward or not parts.isdisjoint(call.result) or call.is_on(Kind.MODULE)
        if (is_inside or call.name == "torch.set_default_dtype") and _makes_double(call):
            yield reading.report("C044", call.place)


def _list_calls_of_models(reading: Reading) -> List[Call]:
    called = [call for call in reading.facts.calls if call.is_on(Kind.MODULE, Kind.PORT, Kind.CRITERION)]
    return [call for call in called if not call.name.startswith(".") and not call.where.in_forward]


def _makes_double(call: Call) -> bool:
    if call.is_method("double") or call.name == "torch.DoubleTensor":
        return True
    casts = call.is_method("to", "type", "astype") or call.name == "torch.set_default_dtype"
    values = [*(call.node.args if casts else ()), *(word.value for word in call.node.keywords if word.arg == "dtype")]
    is_of_torch = call.name.startswith("torch.") or call.name.startswith(".")
    return is_of_torch and any(_DOUBLE.fullmatch(write_dotted(value)) for value in values)
