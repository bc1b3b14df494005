"""Propose the texts of files as findings would change them; writing them is another call.

`porting check --fix` writes them, and with `--diff` shows them.
"""

from __future__ import annotations

import ast
import difflib
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Container, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

import libcst as cst
from libcst import matchers as m
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from porting.diagnostics import Finding, PortingError
from porting.source.patches.edits import EDITS, REMOVED, Neighbours, Replacement
from porting.source.patches.homes import find_home
from porting.source.patches.proofs import is_proven, leave_steps
from porting.source.patches.uses import read_tree
from porting.support.atomic_files import write_atomically

__all__ = ["EmptyLines", "FileFix", "list_unproven", "propose_fixes", "write_fixes"]


@dataclass(frozen=True)
class FileFix:
    """A file as it is and as it would be: its bytes, and the findings that are put right by the change."""

    path: Path
    before: bytes
    after: bytes
    encoding: str
    fixed: Tuple[Finding, ...]

    @property
    def diff(self) -> str:
        """The change as a unified diff, which `patch -p0` and `git apply -p0` take."""
        texts = [text.decode(self.encoding).splitlines(keepends=True) for text in (self.before, self.after)]
        name = str(self.path)
        return "".join(_end_lines(difflib.unified_diff(texts[0], texts[1], name, name)))


_OF_STEP = ("L010", "O007", "O008", "O010")
# the bare model is called, or its loss is computed behind the call
_TRAINS_ON_HOST = ("D015", "L001")


def propose_fixes(
    findings: Iterable[Finding], *, ported_files: Container[str], with_unproven: bool = False
) -> List[FileFix]:
    """Work out what the mechanical fixes of `findings` would change; nothing is written.

    `ported_files` are those of programs that have a port already: a backward pass, for one, is only too much there.
    A fix that nothing around it proves is left out, unless `with_unproven` asks for those as well.
    The step of a loop stays while the loop calls the bare model or computes the loss behind the call.
    Findings without a mechanical fix, in notebooks, and in files that LibCST cannot read are passed over.
    """
    by_file: Dict[str, List[Finding]] = {}
    told = list(findings)
    training_on_host = {one.place.file for one in told if one.place is not None and one.code in _TRAINS_ON_HOST}
    for finding in told:
        edit = EDITS.get(finding.code)
        if edit is None or finding.place is None or not finding.place.file.endswith(".py"):
            continue
        if finding.code in _OF_STEP and finding.place.file in training_on_host:
            # without its host step such a loop would train nothing
            continue
        if not edit.of_ports or finding.place.file in ported_files:
            by_file.setdefault(finding.place.file, []).append(finding)
    fixes = []
    for file, found in sorted(by_file.items()):
        text = Path(file).read_bytes()
        proven = [one for one in found if is_proven(one, text, is_ported=file in ported_files)]
        fixes.append(_fix_file(Path(file), text, found if with_unproven else leave_steps(proven, text)))
    return [fix for fix in fixes if fix is not None]


def list_unproven(
    findings: Sequence[Finding], proven: Sequence[FileFix], *, ported_files: Container[str]
) -> List[FileFix]:
    """List what more would change if the fixes that nothing proves were made as well, behind those that are proven."""
    done = {fix.path: fix for fix in proven}
    more = []
    for fix in propose_fixes(findings, ported_files=ported_files, with_unproven=True):
        first = done.get(fix.path)
        if first is None:
            more.append(fix)
        elif len(first.fixed) < len(fix.fixed):
            fixed = tuple(one for one in fix.fixed if one not in first.fixed)
            more.append(replace(fix, before=first.after, fixed=fixed))
    return more


def write_fixes(fixes: Sequence[FileFix]) -> None:
    """Write files as proposed, each at once; raise PortingError X009, with nothing written, if one has changed."""
    changed = [fix.path for fix in fixes if fix.path.read_bytes() != fix.before]
    if changed:
        raise PortingError.of(
            "X009", message=f"`{changed[0]}` has changed while it was checked", help="run `porting check --fix` again"
        )
    for fix in fixes:
        # through a link, so that the link stays one
        write_atomically(fix.path.resolve(), fix.after)


def _fix_file(path: Path, before: bytes, findings: Sequence[Finding]) -> Optional[FileFix]:
    try:
        wrapper = MetadataWrapper(cst.parse_module(before))
    except (cst.ParserSyntaxError, SyntaxError, UnicodeDecodeError):
        return None
    changes = _Changes(_collect_nodes(wrapper, findings), homes=_name_homes(before, findings))
    tree = wrapper.module.visit(changes)
    read = Counter(node.value for node in m.findall(tree, m.Name()) if isinstance(node, cst.Name))
    leftovers = _Changes(changes.assignments, read)
    tree = tree.visit(leftovers).visit(EmptyLines())
    after = tree.bytes
    if after == before or not _is_python(after):
        # a change that Python cannot read would be worse than any finding
        return None
    return FileFix(path, before, after, tree.encoding, (*changes.fixed, *leftovers.fixed))


def _name_homes(text: bytes, findings: Sequence[Finding]) -> Dict[Finding, str]:
    """Name the tensor on whose device the factory of a finding can make its own, where there is one."""
    found = [finding for finding in findings if finding.code == "C011" and finding.place is not None]
    try:
        source = read_tree(text) if found else None
    except (SyntaxError, ValueError):
        return {}
    homes = {one: find_home(source, one.place) for one in found if source is not None and one.place is not None}
    return {finding: home.tensor for finding, home in homes.items() if home is not None}


def _is_python(text: bytes) -> bool:
    try:
        compile(text, "<fixed>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    return True


class _Changes(cst.CSTTransformer):
    """Changes the nodes that findings point at; `fixed` are the findings that had one.

    `assignments` are those that other changes may leave without a reader: they are left to another visit, which knows
    how often each name is `read`. `homes` are the tensors whose devices factories can name.
    """

    def __init__(
        self,
        wanted: Mapping[cst.CSTNode, Finding],
        read: Optional[Mapping[str, int]] = None,
        *,
        homes: Mapping[Finding, str] = MappingProxyType({}),
    ) -> None:
        super().__init__()
        self.fixed: List[Finding] = []
        self.assignments: Dict[cst.CSTNode, Finding] = {}
        self._homes = homes
        self._wanted = wanted
        self._read = read

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Replacement:  # type: ignore[override]
        """Change a node, and what a change of its parts leaves of it."""
        if isinstance(updated_node, cst.SimpleStatementLine) and not updated_node.body:
            return updated_node.with_changes(body=[REMOVED])
        if _assigns_itself(updated_node) and not _assigns_itself(original_node):
            return cst.RemoveFromParent()
        if _is_bare_value(updated_node) and not _is_bare_value(original_node):
            return cst.RemoveFromParent()
        finding = self._wanted.get(original_node)
        if finding is None:
            return updated_node
        if isinstance(updated_node, cst.Assign) and self._read is None:
            self.assignments[updated_node] = finding
            return updated_node
        around = Neighbours(self._homes.get(finding, ""), self._is_unused(updated_node))
        changed = EDITS[finding.code].change(updated_node, around)
        if changed is None:
            return updated_node
        self.fixed.append(finding)
        return changed

    def _is_unused(self, node: cst.CSTNode) -> bool:
        """Tell whether what a node assigns to stands nowhere else."""
        target = node.targets[0].target if isinstance(node, cst.Assign) else None
        name = target.attr if isinstance(target, cst.Attribute) else target
        return isinstance(name, cst.Name) and self._read is not None and self._read[name.value] == 1


class EmptyLines(cst.CSTTransformer):
    """Leaves out lines that have lost their statements, not their comments and the blank lines before them."""

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Replacement:  # type: ignore[override]
        """Leave them out of a block or of the top level; a block without a statement passes."""
        if not isinstance(updated_node, (cst.IndentedBlock, cst.Module)):
            return updated_node
        body, carried = _carry_lines(updated_node.body)
        if not body and isinstance(updated_node, cst.IndentedBlock):
            return updated_node.with_changes(body=[cst.SimpleStatementLine([cst.Pass()], leading_lines=carried)])
        return updated_node.with_changes(body=body, footer=[*carried, *updated_node.footer])


def _carry_lines(body: Sequence[Any]) -> Tuple[List[Any], List[cst.EmptyLine]]:
    """List the lines that have statements, with the comments of those before them that have none; and what is left."""
    kept: List[Any] = []
    carried: List[cst.EmptyLine] = []
    for line in body:
        if isinstance(line, cst.SimpleStatementLine) and line.body[0].deep_equals(REMOVED):
            comment = line.trailing_whitespace.comment
            carried += [*line.leading_lines, *([cst.EmptyLine(comment=comment)] if comment else [])]
        else:
            kept.append(line.with_changes(leading_lines=[*carried, *line.leading_lines]) if carried else line)
            carried = []
    return kept, carried


def _collect_nodes(wrapper: MetadataWrapper, findings: Sequence[Finding]) -> Dict[cst.CSTNode, Finding]:
    """Collect the node of each finding: the innermost one of a kind that its edit takes, around its place."""
    spans = wrapper.resolve(PositionProvider)
    found: Dict[cst.CSTNode, Finding] = {}
    for finding in findings:
        edit = EDITS[finding.code]
        around = [node for node, span in spans.items() if isinstance(node, edit.kinds) and _contains(span, finding)]
        if around:
            innermost = min(around, key=lambda node: _measure(spans[node]))
            if _begins_at(spans.get(edit.find_anchor(innermost)), finding):
                found[innermost] = finding
    return found


def _begins_at(span: Optional[CodeRange], finding: Finding) -> bool:
    """Tell whether a node begins where a finding does; in a finding without a column, on its line."""
    place = finding.place
    if span is None or place is None:
        return False
    return place.line == span.start.line and place.column in (None, span.start.column + 1)


def _contains(span: CodeRange, finding: Finding) -> bool:
    place = finding.place
    assert place is not None
    first, last = (span.start.line, span.start.column + 1), (span.end.line, span.end.column + 1)
    if place.column is None:
        return first[0] == place.line
    end = (place.end_line or place.line, place.end_column or place.column + 1)
    return first <= (place.line, place.column) and end <= last


def _measure(span: CodeRange) -> int:
    return (span.end.line - span.start.line) * 10_000 + span.end.column - span.start.column


def _assigns_itself(node: cst.CSTNode) -> bool:
    """Tell whether a statement is `x = x`, which is what is left of `x = x.to(device)`."""
    if not isinstance(node, cst.Assign) or len(node.targets) != 1:
        return False
    return isinstance(node.value, (cst.Name, cst.Attribute)) and node.targets[0].target.deep_equals(node.value)


def _is_bare_value(node: cst.CSTNode) -> bool:
    """Tell whether a statement is `x`, which is what is left of `x.to(device)`."""
    return isinstance(node, cst.Expr) and isinstance(node.value, (cst.Name, cst.Attribute))


def _end_lines(lines: Iterable[str]) -> Iterator[str]:
    """End the last line of a file without a line end as diffs do."""
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
