"""One change for each code that has a mechanical one: which node of LibCST's tree it is for, and what becomes of it.

A change either puts another node in the place of the one that a finding points at, or removes it, or refuses: then the
finding stays, and nobody's program is guessed at.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Callable, Mapping, Tuple, Type, Union

import libcst as cst
from libcst import matchers as m

from porting.source.library import NAMES

__all__ = ["EDITS", "REMOVED", "Edit", "Neighbours", "Replacement"]

Replacement = Union[cst.CSTNode, "cst.RemovalSentinel", "cst.FlattenSentinel[Any]", None]
"""What takes a node's place; None where the change does not suit the node."""


REMOVED = cst.Expr(cst.Name("_removed_by_porting"))
"""What stands in a line without statements until its comments are where they stay; LibCST drops empty lines."""


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of a node: a tensor whose device it can name, if any; whether nothing reads what it assigns."""

    home: str = ""
    is_unused: bool = False


@dataclass(frozen=True)
class Edit:
    """How findings of one code are put right.

    `kinds` are the nodes that it may be for, the innermost one around the finding's place; `change` gives what takes
    the place of one. A change that is right only where the program has a port already is `of_ports`. The node, or
    the expression that it is made for, has to begin where the finding does, so that nothing around it is lost.
    """

    kinds: Tuple[Type[cst.CSTNode], ...]
    change: Callable[[Any, Neighbours], Replacement]
    of_ports: bool = True

    @staticmethod
    def find_anchor(node: cst.CSTNode) -> cst.CSTNode:
        """Find the part of a node that a finding of it begins at: the call of a statement, the context of a `with`."""
        if isinstance(node, (cst.Expr, cst.Assign)):
            return node.value
        return node.items[0].item if isinstance(node, cst.With) else node


# -- statements that the device makes unnecessary ----------------------------------------------------------------------


def _remove_call(statement: cst.Expr, _around: Neighbours) -> Replacement:
    """Remove a statement that only calls something; one whose result is used stays."""
    return cst.RemoveFromParent() if isinstance(statement.value, cst.Call) else None


def _remove_scaler(statement: Union[cst.Expr, cst.Assign], around: Neighbours) -> Replacement:
    """Remove a call of a scaler, and the scaler itself once nothing reads it."""
    if isinstance(statement, cst.Expr):
        return _remove_call(statement, around)
    makes_scaler = m.matches(statement.value, m.Call()) and _name_called(statement.value).endswith("Scaler")
    return cst.RemoveFromParent() if makes_scaler and len(statement.targets) == 1 and around.is_unused else None


def _unwrap_block(block: cst.With, _around: Neighbours) -> Replacement:
    """Put the statements of a `with` in its place, unless it does anything else."""
    if len(block.items) != 1 or block.items[0].asname is not None or not isinstance(block.body, cst.IndentedBlock):
        return None
    first: Any
    first, *others = block.body.body
    beside = block.body.header.comment
    lines = [*block.leading_lines, *([cst.EmptyLine(comment=beside)] if beside else []), *first.leading_lines]
    end = [cst.SimpleStatementLine([REMOVED], leading_lines=block.body.footer)] if block.body.footer else []
    return cst.FlattenSentinel([first.with_changes(leading_lines=lines), *others, *end])


# -- calls that are left out of an expression --------------------------------------------------------------------------

_MOVES = ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "ipu", "xpu")


_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "DDP", "FSDP", "compile")


def _remove_move(call: cst.Call, _around: Neighbours) -> Replacement:
    """Turn `x.to(device)` into `x`."""
    if isinstance(call.func, cst.Attribute) and call.func.attr.value in _MOVES:
        return _keep_brackets(call.func.value, call)
    return None


def _remove_move_or_wrapper(call: cst.Call, around: Neighbours) -> Replacement:
    """Turn `x.to(device)`, and `DataParallel(x, ...)`, into `x`."""
    moved = _remove_move(call, around)
    if moved is not None:
        return moved
    if _name_called(call) not in _WRAPPERS or not call.args or call.args[0].star or call.args[0].keyword is not None:
        return None
    return _keep_brackets(call.args[0].value, call)


def _name_called(call: cst.BaseExpression) -> str:
    """Name what a call calls, by the last part of its name; empty for what has none."""
    function = call.func if isinstance(call, cst.Call) else None
    name = function.attr if isinstance(function, cst.Attribute) else function
    return name.value if isinstance(name, cst.Name) else ""


def _keep_brackets(value: cst.BaseExpression, around: cst.BaseExpression) -> cst.BaseExpression:
    return value.with_changes(lpar=[*around.lpar, *value.lpar], rpar=[*value.rpar, *around.rpar])


# -- expressions that say what was meant -------------------------------------------------------------------------------


def _assign_instead(statement: cst.Expr, _around: Neighbours) -> Replacement:
    """Turn the statement `x == y` into `x = y`."""
    value = statement.value
    if not m.matches(value, m.Comparison(comparisons=[m.ComparisonTarget(operator=m.Equal())])):
        return None
    assert isinstance(value, cst.Comparison)
    if value.lpar or not isinstance(value.left, (cst.Name, cst.Attribute, cst.Subscript)):
        return None
    target = cst.AssignTarget(value.left)
    return cst.Assign([target], value.comparisons[0].comparator, semicolon=statement.semicolon)


_ARITHMETIC = ("Add", "Subtract", "Multiply", "Divide", "FloorDivide", "Modulo", "Power", "MatrixMultiply")
_OPERATORS = {getattr(cst, f"{name}Assign"): getattr(cst, name) for name in _ARITHMETIC}


def _compute_instead(statement: Union[cst.AugAssign, cst.Expr], _around: Neighbours) -> Replacement:
    """Turn `x += y` into `x = x + y`, and `x.add_(y)` into `x = x.add(y)`."""
    if isinstance(statement, cst.AugAssign):
        operator = _OPERATORS.get(type(statement.operator))
        if operator is None or not isinstance(statement.target, cst.Name):
            return None
        value = cst.BinaryOperation(statement.target, operator(), _bracket(statement.value))
        return cst.Assign([cst.AssignTarget(statement.target)], value, semicolon=statement.semicolon)
    call = statement.value
    if not m.matches(call, m.Call(func=m.Attribute(value=m.Name()))):
        return None
    assert isinstance(call, cst.Call)
    assert isinstance(call.func, cst.Attribute)
    assert isinstance(call.func.value, cst.Name)
    name = call.func.attr.value
    if not name.endswith("_") or name[:-1] not in NAMES["computed in place"]:
        return None
    computed = call.with_changes(func=call.func.with_changes(attr=cst.Name(name[:-1])))
    return cst.Assign([cst.AssignTarget(call.func.value)], computed, semicolon=statement.semicolon)


def _bracket(value: cst.BaseExpression) -> cst.BaseExpression:
    """Put brackets around what is more than a name, a number, a call or the like."""
    simple = (cst.Name, cst.Attribute, cst.Subscript, cst.Call, cst.BaseNumber, cst.List, cst.Dict)
    if isinstance(value, simple) or value.lpar:
        return value
    return value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _name_device(call: cst.Call, around: Neighbours) -> Replacement:
    """Add `device=` of a tensor of the function to the call of a factory."""
    if not around.home:
        return None
    device = cst.ensure_type(cst.parse_expression(f"f(device={around.home}.device)"), cst.Call).args[0]
    args = list(call.args)
    if args and isinstance(args[-1].comma, cst.MaybeSentinel):
        # brackets of several lines close where they did, and the new line begins as the first one
        device = device.with_changes(whitespace_after_arg=args[-1].whitespace_after_arg)
        is_broken = isinstance(args[-1].whitespace_after_arg, cst.ParenthesizedWhitespace)
        between = call.whitespace_before_args if is_broken else cst.SimpleWhitespace(" ")
        comma = cst.Comma(whitespace_after=between)
        args[-1] = args[-1].with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
    return call.with_changes(args=[*args, device])


def _save_state(call: cst.Call, _around: Neighbours) -> Replacement:
    """Turn `torch.save(port, file)` into `torch.save(port.state_dict(), file)`."""
    if not call.args or not isinstance(call.args[0].value, (cst.Name, cst.Attribute)):
        return None
    first = call.args[0]
    state = cst.Call(cst.Attribute(first.value, cst.Name("state_dict")))
    return call.with_changes(args=[first.with_changes(value=state), *call.args[1:]])


def _guard_import(line: cst.SimpleStatementLine, _around: Neighbours) -> Replacement:
    """Import the simulator where PopTorch is not installed."""
    if len(line.body) != 1 or not m.matches(line.body[0], m.Import(names=[m.ImportAlias(name=m.Name("poptorch"))])):
        return None
    imported = line.body[0]
    assert isinstance(imported, cst.Import)
    alias = imported.names[0].evaluated_alias or "poptorch"
    guarded = cst.parse_statement(
        f"try:\n    import poptorch\nexcept ImportError:\n    import porting.simulator as {alias}\n"
    )
    assert isinstance(guarded, cst.Try)
    body = guarded.body.with_changes(body=[line.with_changes(leading_lines=[])])
    return guarded.with_changes(body=body, leading_lines=line.leading_lines)


EDITS: Mapping[str, Edit] = MappingProxyType(
    {
        "B022": Edit((cst.Expr,), _assign_instead, of_ports=False),
        "C004": Edit((cst.Call,), _remove_move, of_ports=False),
        "C010": Edit((cst.Expr,), _remove_call, of_ports=False),
        "C011": Edit((cst.Call,), _name_device, of_ports=False),
        "C026": Edit((cst.AugAssign, cst.Expr), _compute_instead, of_ports=False),
        "D003": Edit((cst.Call,), _remove_move_or_wrapper),
        "D010": Edit((cst.SimpleStatementLine,), _guard_import, of_ports=False),
        "K006": Edit((cst.Call,), _save_state),
        "L010": Edit((cst.Expr,), _remove_call),
        "O007": Edit((cst.Expr,), _remove_call),
        "O008": Edit((cst.Expr,), _remove_call),
        "O010": Edit((cst.Expr, cst.Assign), _remove_scaler),
        "O016": Edit((cst.With,), _unwrap_block),
    }
)
"""The codes that `porting check --fix` puts right, and how."""
