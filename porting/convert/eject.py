"""Take a port out of a project again: what is left is plain PyTorch, which needs nothing of this package.

It is for the ports that `porting convert` makes. Of each branch the plain one stays, imports of this package and the
choice of its devices go, and every other line stays as it is.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, Optional, Sequence, Set, Union

import libcst as cst
from libcst import matchers as m

from porting.convert.device_option import VARIABLE
from porting.convert.own_imports import OWN_IMPORT, OWN_MODULES, list_first_imports
from porting.source.patches.edits import REMOVED
from porting.source.patches.fixes import EmptyLines

__all__ = ["drop_unused_imports", "eject_text", "list_names_left"]

_PACKAGES = ("porting", "poptorch", "popdist")
_OWN_NAMES = ("_device_parser", "_device")
_OWN_HELP = m.IndentedBlock(
    body=[m.SimpleStatementLine(body=[m.Expr(m.Call(func=m.Attribute(m.Name(_OWN_NAMES[0]))))])]
)
_PORT_CHOICES = frozenset({"ipu", "sim"})
_LINE = cst.SimpleStatementLine
_MARKED = m.TrailingWhitespace(comment=m.Comment(OWN_IMPORT))


def eject_text(text: bytes) -> bytes:
    """Return the text of a file without its port; a file without one is returned as it is."""
    module = cst.parse_module(text)
    ejector = _Ejector(module)
    left = module.visit(ejector)
    if not ejector.has_changed:
        return text
    unused = _UnusedImports(_count_names(module), _count_names(left), left)
    return left.visit(unused).visit(EmptyLines()).bytes


def drop_unused_imports(text: bytes) -> bytes:
    """Return the text of a file without the imports of this package that nothing in it uses."""
    module = cst.parse_module(text)
    return module.visit(_OwnImports(_count_names(module))).visit(EmptyLines()).bytes


def list_names_left(text: bytes) -> List[str]:
    """List the names of this package's that a file still uses, which a person has to put something else for."""
    module = cst.parse_module(text)
    names: Set[str] = set()
    for found in m.findall(module, m.ImportFrom() | m.Import()):
        if isinstance(found, (cst.ImportFrom, cst.Import)) and _is_of_package(found):
            names |= _collect_bound(found)
    return sorted(names)


def _root_of(name: Optional[cst.BaseExpression]) -> str:
    while isinstance(name, cst.Attribute):
        name = name.value
    return name.value if isinstance(name, cst.Name) else ""


def _is_of_package(statement: Union[cst.Import, cst.ImportFrom]) -> bool:
    if isinstance(statement, cst.ImportFrom):
        return not statement.relative and _root_of(statement.module) in _PACKAGES
    return any(_root_of(alias.name) in _PACKAGES for alias in statement.names)


def _collect_bound(statement: Union[cst.Import, cst.ImportFrom]) -> Set[str]:
    aliases = [] if isinstance(statement.names, cst.ImportStar) else statement.names
    return {alias.evaluated_alias or _root_of(alias.name) for alias in aliases}


def _count_names(module: cst.Module) -> Dict[str, int]:
    counts: Dict[str, int] = {}
    for node in m.findall(module, m.Name()):
        if isinstance(node, cst.Name):
            counts[node.value] = counts.get(node.value, 0) + 1
    return counts


def _collect_texts(node: cst.CSTNode) -> FrozenSet[str]:
    """Collect the texts in an expression."""
    found = m.findall(node, m.SimpleString())
    return frozenset(str(one.evaluated_value) for one in found if isinstance(one, cst.SimpleString))


def _leave_lines(lines: Sequence[cst.EmptyLine]) -> cst.SimpleStatementLine:
    """Leave the comments and empty lines before a statement that goes to the next one."""
    return cst.SimpleStatementLine([REMOVED], leading_lines=lines)


def _is_own_comment(line: cst.EmptyLine) -> bool:
    return line.comment is not None and "` is taken out of the command line" in line.comment.value


class _Ejector(cst.CSTTransformer):
    """Leaves the plain branch of each test for a port, and nothing of the port and its option."""

    def __init__(self, module: cst.Module) -> None:
        super().__init__()
        self.has_changed = False
        self._classes = {
            name
            for found in m.findall(module, m.ImportFrom())
            if isinstance(found, cst.ImportFrom) and _is_of_package(found)
            for name in _collect_bound(found)
        }

    def _is_port_test(self, test: cst.BaseExpression) -> bool:
        """Tell whether a test is true of a port alone."""
        if isinstance(test, cst.Comparison) and VARIABLE in _collect_texts(test):
            return True
        if m.matches(test, m.Call(func=m.Name("isinstance"))) and isinstance(test, cst.Call):
            return len(test.args) == 2 and _root_of(test.args[1].value) in self._classes
        return isinstance(test, cst.Comparison) and m.matches(
            test, m.Comparison(comparisons=[m.ComparisonTarget(m.Equal(), m.Attribute(attr=m.Name("IPU")))])
        )

    def _decide(self, test: cst.BaseExpression) -> Optional[bool]:
        """Say what a test is in plain PyTorch; None where that is not known."""
        if isinstance(test, cst.BooleanOperation):
            # what follows asks which instance of a port this is
            first, is_or = self._decide(test.left), isinstance(test.operator, cst.Or)
            return first if first is is_or else None
        if m.matches(test, m.Comparison(comparisons=[m.ComparisonTarget(m.NotIn())])):
            return True if VARIABLE in _collect_texts(test) else None
        if self._is_port_test(test):
            return False
        if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
            inner = self._decide(test.expression)
            return None if inner is None else not inner
        if isinstance(test, cst.Comparison) and m.matches(
            test, m.Comparison(comparisons=[m.ComparisonTarget(m.NotEqual(), m.Attribute(attr=m.Name("IPU")))])
        ):
            return True
        return None

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> Any:  # noqa: N802 - LibCST's spelling
        """Leave the branch of a test that plain PyTorch takes."""
        is_choice = _PORT_CHOICES <= _collect_texts(original_node.test) or self._is_choice_of_host(original_node.test)
        if is_choice or m.matches(original_node.body, _OWN_HELP):
            self.has_changed = True
            return _leave_lines(original_node.leading_lines)
        decided = self._decide(original_node.test)
        if decided is None:
            return updated_node
        self.has_changed = True
        if decided:
            return self._open_block(updated_node.body, updated_node.leading_lines)
        if updated_node.orelse is None:
            return _leave_lines(original_node.leading_lines)
        if isinstance(updated_node.orelse, cst.If):
            return updated_node.orelse.with_changes(leading_lines=updated_node.leading_lines)
        return self._open_block(updated_node.orelse.body, updated_node.leading_lines)

    def _is_choice_of_host(self, test: cst.BaseExpression) -> bool:
        """Tell whether a test is that of the option's second statement, which hides GPUs."""
        return isinstance(test, cst.BooleanOperation) and {VARIABLE, "cpu"} <= _collect_texts(test)

    def _open_block(self, body: cst.BaseSuite, leading: Sequence[cst.EmptyLine]) -> Any:
        statements: List[Any] = list(body.body)
        if statements and hasattr(statements[0], "leading_lines"):
            statements[0] = statements[0].with_changes(leading_lines=[*leading, *statements[0].leading_lines])
        return cst.FlattenSentinel(statements)

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> Any:  # noqa: N802
        """Leave the value that plain PyTorch takes."""
        decided = self._decide(original_node.test)
        if decided is None:
            return updated_node
        self.has_changed = True
        return updated_node.body if decided else updated_node.orelse

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> Any:  # noqa: N802
        """Leave out the arguments that a port alone has."""
        pairs = zip(original_node.args, updated_node.args)
        own = [after for before, after in pairs if not self._is_of_port(before)]
        if len(own) == len(updated_node.args):
            return updated_node
        if own and len(own) < len(updated_node.args) and own[-1] is not updated_node.args[-1]:
            own[-1] = own[-1].with_changes(comma=updated_node.args[-1].comma)
        return updated_node.with_changes(args=own)

    def _is_of_port(self, argument: cst.Arg) -> bool:
        """Tell whether an argument is a port's strategy, or what is unpacked for a port alone."""
        value = argument.value
        if not isinstance(value, cst.IfExp) or self._decide(value.test) is not False:
            return False
        is_default = _root_of(argument.keyword) == "strategy" and _collect_texts(value.orelse) == {"auto"}
        return is_default or m.matches(argument, m.Arg(star="**", value=m.IfExp(orelse=m.Dict(elements=[]))))

    def leave_Try(self, original_node: cst.Try, updated_node: cst.Try) -> Any:  # noqa: N802
        """Leave out a guarded import of this package."""
        lines = original_node.body.body
        imported = [one for line in lines if isinstance(line, cst.SimpleStatementLine) for one in line.body]
        if imported and all(isinstance(one, (cst.Import, cst.ImportFrom)) and _is_of_package(one) for one in imported):
            self.has_changed = True
            # the empty line before it came with it
            return _leave_lines(original_node.leading_lines[1:])
        return updated_node

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        """Leave out the statements of the option, and imports that nothing guards."""
        first = original_node.body[0]
        names = set(_count_names(cst.Module([original_node])))
        is_parser = bool(names & {_OWN_NAMES[0]})
        if is_parser or self._is_own_option(first):
            self.has_changed = True
            lines = [one for one in original_node.leading_lines if not _is_own_comment(one)]
            return _leave_lines(lines)
        return updated_node

    def _is_own_option(self, statement: cst.BaseSmallStatement) -> bool:
        if not m.matches(statement, m.Expr(value=m.Call(func=m.Attribute(attr=m.Name("add_argument"))))):
            return False
        return {"ipu", "sim", "cpu", "cuda"} <= _collect_texts(statement) and any(
            "simulator of an IPU" in text for text in _collect_texts(statement)
        )

    def leave_List(self, original_node: cst.List, updated_node: cst.List) -> Any:  # noqa: N802
        """Leave out the choices of ports from the program's own option."""
        return self._leave_choices(updated_node)

    def leave_Tuple(self, original_node: cst.Tuple, updated_node: cst.Tuple) -> Any:  # noqa: N802
        """Leave out the choices of ports from the program's own option."""
        return self._leave_choices(updated_node)

    def _leave_choices(self, node: Union[cst.List, cst.Tuple]) -> Any:
        own = [one for one in node.elements if not (_collect_texts(one) & _PORT_CHOICES)]
        if len(own) != len(node.elements) - 2 or not own:
            return node
        self.has_changed = True
        return node.with_changes(elements=[*own[:-1], own[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)])


class _UnusedImports(cst.CSTTransformer):
    """Leaves out the imports of modules that the port alone had used: those with a mark, else the first of each."""

    def __init__(self, before: Dict[str, int], after: Dict[str, int], module: cst.Module) -> None:
        super().__init__()
        marked = m.findall(module, m.SimpleStatementLine(trailing_whitespace=_MARKED))
        self._marked = {name for line in marked for name in _count_names(cst.Module([cst.ensure_type(line, _LINE)]))}
        first = list_first_imports(module)
        names = [name for name in OWN_MODULES if f"import {name}" in first]
        self._unused = {name for name in names if after.get(name) == 1 and before.get(name, 0) > 1} - self._marked

    def leave_SimpleStatementLine(  # noqa: N802 - LibCST's spelling
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        """Leave out `import os` and the like."""
        first = original_node.body[0]
        if len(original_node.body) == 1 and isinstance(first, cst.Import) and len(first.names) == 1:
            is_marked = m.matches(original_node, m.SimpleStatementLine(trailing_whitespace=_MARKED))
            is_unused = _root_of(first.names[0].name) in self._unused and first.names[0].asname is None
            if is_marked or is_unused:
                return _leave_lines(original_node.leading_lines)
        return updated_node


class _OwnImports(cst.CSTTransformer):
    """Leaves out the imports of this package whose names stand nowhere else."""

    def __init__(self, counts: Dict[str, int]) -> None:
        super().__init__()
        self._counts = counts

    def leave_SimpleStatementLine(  # noqa: N802 - LibCST's spelling
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        """Leave out `from porting import to_ipu` and the like."""
        first = original_node.body[0]
        if len(original_node.body) != 1 or not isinstance(first, (cst.Import, cst.ImportFrom)):
            return updated_node
        if not _is_of_package(first) or isinstance(first.names, cst.ImportStar):
            return updated_node
        used = [one for one in first.names if self._counts.get(one.evaluated_alias or _root_of(one.name), 0) > 1]
        if not used:
            return _leave_lines(original_node.leading_lines)
        names = [*used[:-1], used[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)]
        return updated_node.with_changes(body=[first.with_changes(names=names)])
