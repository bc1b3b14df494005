"""Edit a file by what a conversion has planned on its syntax tree; LibCST keeps comments and formatting.

An edit says what changes and why, so that a plan lists it and a report shows it.
"""

from __future__ import annotations

import ast
import difflib
import textwrap
from dataclasses import dataclass, field
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from porting.convert.own_imports import add_imports
from porting.convert.trees import FUNCTIONS, ProgramFile, write_node
from porting.source.patches.edits import REMOVED
from porting.source.patches.fixes import EmptyLines

__all__ = ["Edit", "EditError", "FileEdits", "make_diff"]

Span = Tuple[int, int, int, int]
Key = Tuple[int, int]
"""The line and column, in characters, where a statement begins."""


class EditError(Exception):
    """An edit that has no place in the file: a statement in the line of its `if`, or a text that is no Python."""


@dataclass(frozen=True)
class Edit:
    """A change of a file: `kind` is a word for people and tools, `why` a sentence; `line` is that of the original."""

    path: str
    line: int
    kind: str
    why: str


@dataclass
class _Changes:
    """What becomes of statements and expressions, by where they stand in the original."""

    before: Dict[Key, List[str]] = field(default_factory=dict)
    after: Dict[Key, List[str]] = field(default_factory=dict)
    guards: Dict[Key, Tuple[Key, str, str]] = field(default_factory=dict)
    removed: Set[Key] = field(default_factory=set)
    assigned: Dict[Key, str] = field(default_factory=dict)
    expressions: Dict[Span, Tuple[str, Optional[Span]]] = field(default_factory=dict)
    arguments: Dict[Span, str] = field(default_factory=dict)
    imports: List[str] = field(default_factory=list)


class FileEdits:
    """The edits of one file; statements and expressions are nodes of its `ProgramFile`."""

    def __init__(self, file: ProgramFile, text: bytes) -> None:
        """Begin without edits; `text` is the file as it is on the disk."""
        self.file = file
        self.text = text
        self.edits: List[Edit] = []
        self.imported: Dict[str, Set[str]] = {}
        """The names of this package's that are imported, by their modules."""
        self._changes = _Changes()

    def _note(self, node: ast.AST, kind: str, why: str) -> None:
        self.edits.append(Edit(self.file.path, getattr(node, "lineno", 1), kind, why))

    def insert_before(self, statement: ast.stmt, code: str, kind: str, why: str) -> None:
        """Insert statements before one, in its block."""
        self._changes.before.setdefault(self._find_key(statement), []).append(code)
        self._note(statement, kind, why)

    def insert_after(self, statement: ast.stmt, code: str, kind: str, why: str) -> None:
        """Insert statements after one, in its block."""
        self._changes.after.setdefault(self._find_key(statement), []).append(code)
        self._note(statement, kind, why)

    def guard(self, first: ast.stmt, last: ast.stmt, test: str, instead: str, kind: str, why: str) -> None:
        """Put the statements from `first` to `last` of one block under `if test: instead` and `else:`.

        With nothing `instead` they run where `test` does not hold.
        """
        self._changes.guards[self._find_key(first)] = (self._find_key(last), test, instead)
        self._note(first, kind, why)

    def remove(self, statement: ast.stmt, kind: str, why: str) -> None:
        """Take a statement out; comments before it stay."""
        self._changes.removed.add(self._find_key(statement))
        self._note(statement, kind, why)

    def assign(self, statement: ast.stmt, target: str) -> None:
        """Assign the value of a statement that is an expression, once more where it was edited."""
        self._changes.assigned[self._find_key(statement)] = target

    def replace(self, expression: ast.expr, code: str, kind: str, why: str, *, part: Optional[ast.expr] = None) -> None:
        """Put another expression in the place of one.

        In `code` the name WHOLE stands for the expression, and PART for a `part` of it, with their own edits.
        """
        inner = None if part is None else self._measure(part)
        self._changes.expressions[self._measure(expression)] = code, inner
        self._note(expression, kind, why)

    def add_argument(self, call: ast.Call, keyword: str, code: str, kind: str, why: str) -> None:
        """Give a call another argument before those that it has: by a keyword, or unpacked without one."""
        self._changes.arguments[self._measure(call)] = f"{keyword}={code}" if keyword else code
        self._note(call, kind, why)

    def _find_key(self, statement: ast.stmt) -> Key:
        """Find where a statement begins: at its first decorator, if it has one."""
        decorators = getattr(statement, "decorator_list", [])
        place = self.file.unit.place_of(decorators[0] if decorators else statement)
        return place.line, (place.column or 1) - (2 if decorators else 1)

    def _measure(self, expression: ast.expr) -> Span:
        place = self.file.unit.place_of(expression)
        if place.column is None or place.end_line is None or place.end_column is None:
            raise EditError("the expression has no place")
        return place.line, place.column - 1, place.end_line, place.end_column - 1

    def add_import(self, code: str, kind: str = "import", why: str = "", *, instead: str = "") -> None:
        """Add statements behind the imports at the top of the file, once; or take the place of others of these."""
        if instead:
            self._changes.imports[self._changes.imports.index(instead)] = code
        elif code not in self._changes.imports:
            self._changes.imports.append(code)
            self.edits.append(Edit(self.file.path, 1, kind, why))

    def apply(self) -> bytes:
        """Return the file with its edits; raises EditError for one that finds no place or makes no Python."""
        if not self.edits:
            return self.text
        wrapper = MetadataWrapper(cst.parse_module(self.text))
        editor = _Editor(self._changes, wrapper.resolve(PositionProvider), wrapper.module)
        module = wrapper.module.visit(editor)
        editor.require_all_done()
        module = add_imports(module, self._changes.imports, wrapper.module)
        after = (module.visit(EmptyLines()) if self._changes.removed else module).bytes
        try:
            compile(after, self.file.path, "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise EditError(f"the result is no Python: {error}") from error
        added = {"os", *(name for names in self.imported.values() for name in names)}
        for function in (one for one in ast.walk(ast.parse(after)) if isinstance(one, FUNCTIONS)):
            _require_bound(function, added)
        return after


def _require_bound(function: ast.AST, names: Iterable[str]) -> None:
    """Raise EditError for a function that reads one of these names before it gives it a meaning of its own."""
    nodes = [*ast.walk(function)]
    for name in names:
        uses = [one for one in nodes if isinstance(one, ast.Name) and one.id == name]
        imports = [one for one in nodes if isinstance(one, (ast.Import, ast.ImportFrom))]
        bound = [one.lineno for one in uses if isinstance(one.ctx, ast.Store)]
        bound += [one.lineno for one in imports if any((part.asname or part.name) == name for part in one.names)]
        read = [one.lineno for one in uses if isinstance(one.ctx, ast.Load)]
        if bound and read and min(read) < min(bound):
            raise EditError(f"`{getattr(function, 'name', '')}` has a name `{name}` of its own behind the edit")


def make_diff(before: bytes, after: bytes, name: str) -> str:
    """Return the change of a file as a unified diff."""
    texts = [cst.parse_module(text).code.splitlines(keepends=True) for text in (before, after)]
    return "".join(difflib.unified_diff(texts[0], texts[1], name, name))


class _Editor(cst.CSTTransformer):
    """Carries changes out: expressions by their spans, statements block by block."""

    def __init__(self, changes: _Changes, spans: Any, module: cst.Module) -> None:
        super().__init__()
        self._changes = changes
        self._spans = spans
        self._config = module.config_for_parsing
        self._left = {*changes.before, *changes.after, *changes.guards, *changes.removed, *changes.assigned}
        self._left_spans = {*changes.expressions, *changes.arguments}
        self._parts: Dict[Span, Any] = {part: None for _code, part in changes.expressions.values() if part is not None}

    def require_all_done(self) -> None:
        """Raise EditError for an edit that had no place."""
        lines = sorted({*(key[0] for key in self._left), *(span[0] for span in self._left_spans)})
        if lines:
            raise EditError(f"line {lines[0]} stands where nothing can be inserted")

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Any:
        """Change an expression, or the statements of a block."""
        body: Any = getattr(updated_node, "body", None)
        if isinstance(original_node, (cst.IndentedBlock, cst.Module)):
            return updated_node.with_changes(body=self._change_block(*self._open_lines(original_node.body, body)))
        if isinstance(original_node, cst.SimpleStatementSuite) and self._is_changed(original_node.body):
            return cst.IndentedBlock(self._change_block(original_node.body, _make_lines(body)))
        if isinstance(original_node, cst.BaseExpression):
            span = self._spans.get(original_node)
            key = None if span is None else (span.start.line, span.start.column, span.end.line, span.end.column)
            if key in self._left_spans and key in self._changes.arguments and isinstance(updated_node, cst.Call):
                self._left_spans.discard(key)
                updated_node = self._add_argument(updated_node, self._changes.arguments[key])
            elif key in self._left_spans:
                self._left_spans.discard(key)
                code, part = self._changes.expressions[key]
                names = {"WHOLE": updated_node, "PART": None if part is None else self._parts[part]}
                made: Any = self._parse_expression(code).visit(_Names(names))
                lpar, rpar = [*original_node.lpar, *made.lpar], [*made.rpar, *original_node.rpar]
                updated_node = made.with_changes(lpar=lpar, rpar=rpar)
            if key in self._parts:
                self._parts[key] = updated_node
        return updated_node

    def _add_argument(self, call: cst.Call, code: str) -> cst.Call:
        """Put an argument before those by keyword, in a line of its own where they have theirs."""
        made: Any = self._parse_expression(f"f({code})")
        args = list(call.args)
        place = next((n for n, one in enumerate(args) if one.keyword is not None or one.star == "**"), len(args))
        before: Any = args[place - 1].comma if args else None
        space: Any = before.whitespace_after if 0 < place < len(args) else call.whitespace_before_args
        if isinstance(space, cst.ParenthesizedWhitespace):
            newline = cst.TrailingWhitespace(newline=space.first_line.newline)
            space = space.with_changes(first_line=newline, empty_lines=())
        comma = cst.Comma(whitespace_after=space if not space.empty else cst.SimpleWhitespace(" "))
        new = made.args[0].with_changes(comma=comma if place < len(args) else cst.MaybeSentinel.DEFAULT)
        return call.with_changes(args=[*args[:place], new, *args[place:]])

    def _parse_expression(self, code: str) -> cst.BaseExpression:
        try:
            return cst.parse_expression(code, self._config)
        except cst.ParserSyntaxError as error:
            raise EditError(f"`{code}` is no expression") from error

    def _parse(self, code: str) -> List[Any]:
        lines = textwrap.dedent(code).strip("\n").split("\n")
        try:
            module = cst.parse_module("\n".join(lines), self._config)
        except cst.ParserSyntaxError as error:
            raise EditError(f"`{code}` is no statement") from error
        first, *others = module.body
        # comments before the first statement are the module's
        return [first.with_changes(leading_lines=[*module.header, *first.leading_lines]), *others]

    def _is_changed(self, statements: Sequence[cst.CSTNode]) -> bool:
        return any(self._begin(one) in self._left for one in statements)

    def _open_lines(self, original: Sequence[Any], updated: Sequence[Any]) -> Tuple[List[Any], List[Any]]:
        """Give each statement a line of its own where one of several in a line is changed."""
        places: List[Any] = []
        lines: List[Any] = []
        for one, other in zip(original, updated):
            inner = one.body if isinstance(one, cst.SimpleStatementLine) else ()
            if len(inner) > 1 and self._is_changed(inner) and len(other.body) == len(inner):
                places += inner
                made = _make_lines(other.body)
                made[0] = made[0].with_changes(leading_lines=other.leading_lines)
                made[-1] = made[-1].with_changes(trailing_whitespace=other.trailing_whitespace)
                lines += made
            else:
                places.append(one)
                lines.append(other)
        return places, lines

    def _begin(self, statement: cst.CSTNode) -> Key:
        # where a statement with decorators begins depends on the version of LibCST
        first: Any = next(iter(getattr(statement, "decorators", ())), statement)
        start = self._spans[first].start
        return start.line, start.column

    def _change_block(self, original: Sequence[Any], updated: Sequence[Any]) -> List[Any]:
        changed: List[Any] = []
        number = 0
        while number < len(updated):
            line = self._begin(original[number])
            end = number + 1
            inner = [self._change_statement(line, updated[number])]
            if line in self._changes.guards:
                last, test, instead = self._changes.guards[line]
                while end < len(updated) and self._begin(original[end]) <= last:
                    inner.append(updated[end])
                    end += 1
                inner = self._guard(inner, test, instead)
            before = [new for code in self._changes.before.get(line, ()) for new in self._parse(code)]
            if before:
                own = before[0].leading_lines
                before[0] = before[0].with_changes(leading_lines=[*inner[0].leading_lines, *own])
                inner[0] = inner[0].with_changes(leading_lines=())
            last_line = self._begin(original[end - 1])
            after = [new for code in self._changes.after.get(last_line, ()) for new in self._parse(code)]
            self._left -= {self._begin(one) for one in original[number:end]}
            changed += [*before, *inner, *after]
            number = end
        return changed

    def _change_statement(self, key: Key, statement: Any) -> Any:
        """Take a statement out, or give its value a name."""
        if key in self._changes.removed:
            return cst.SimpleStatementLine([REMOVED], leading_lines=statement.leading_lines)
        if key in self._changes.assigned:
            target = cst.AssignTarget(cst.ensure_type(self._parse_expression(self._changes.assigned[key]), cst.Name))
            return statement.with_changes(body=[cst.Assign([target], statement.body[0].value)])
        return statement

    def _guard(self, statements: List[Any], test: str, instead: str) -> List[Any]:
        """Put statements under an `if`; comments before the first one stay before the `if`."""
        leading = statements[0].leading_lines
        first = statements[0].with_changes(leading_lines=())
        inner = cst.IndentedBlock([first, *statements[1:]])
        if instead:
            other: Any = first if len(statements) == 1 and isinstance(first, cst.If) else cst.Else(inner)
            made = cst.If(self._parse_expression(test), cst.IndentedBlock(self._parse(instead)), other, leading)
        else:
            made = cst.If(self._parse_expression(_negate(test)), inner, leading_lines=leading)
        return [made]


def _make_lines(statements: Sequence[Any]) -> List[Any]:
    """Put each of the small statements of a line in a line of its own."""
    return [cst.SimpleStatementLine([one.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)]) for one in statements]


class _Names(cst.CSTTransformer):
    """Puts expressions in the places of names; one that is more than a name or call gets brackets.

    What stands behind the last `else` needs none, and gets none: taken out of there again it is as it was.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        super().__init__()
        self._names = names

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> Any:  # noqa: N802
        """Put the whole expression behind the last `else`."""
        found = self._names.get("WHOLE")
        is_whole = isinstance(original_node.orelse, cst.Name) and original_node.orelse.value == "WHOLE"
        return updated_node.with_changes(orelse=found.deep_clone()) if is_whole and found is not None else updated_node

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> Any:  # noqa: N802 - LibCST's spelling
        """Exchange a name that stands for an expression."""
        found = self._names.get(original_node.value)
        if found is None:
            return updated_node
        made = found.deep_clone()
        is_simple = isinstance(made, (cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.SimpleString)) or made.lpar
        return made if is_simple else made.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def _negate(test: str) -> str:
    node = ast.parse(test, mode="eval").body
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        return write_node(node.operand)
    if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
        return " or ".join(_negate(_cut(test, one)) for one in node.values)
    if isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)):
        return f"not {test}"
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        inverse = {ast.Eq: "!=", ast.NotEq: "==", ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is"}
        if type(node.ops[0]) in inverse:
            operator = inverse[type(node.ops[0])]
            return f"{_cut(test, node.left)} {operator} {_cut(test, node.comparators[0])}"
    return f"not ({test})"


def _cut(text: str, node: ast.expr) -> str:
    return ast.get_source_segment(text, node) or write_node(node)
