"""`propose_fixes`: the files that findings would change, as texts before and after; writing them is another call."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Container, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import libcst as cst
from libcst.metadata import CodeRange, MetadataWrapper, PositionProvider

from porting.diagnostics import Finding, PortingError
from porting.source.patches.edits import EDITS, Replacement, Surroundings
from porting.support.atomic_files import write_atomically

__all__ = ["FileFix", "propose_fixes", "write_fixes"]


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


def propose_fixes(findings: Iterable[Finding], *, ported_files: Container[str]) -> List[FileFix]:
    """Work out what the mechanical fixes of `findings` would change; nothing is written.

    `ported_files` are those of programs that have a port already: a backward pass, for one, is only too much there.
    Findings without a mechanical fix, in notebooks, and in files that LibCST cannot read are passed over.
    """
    by_file: Dict[str, List[Finding]] = {}
    for finding in findings:
        edit = EDITS.get(finding.code)
        if edit is None or finding.place is None:
            continue
        if not edit.of_ports or finding.place.file in ported_files:
            by_file.setdefault(finding.place.file, []).append(finding)
    fixes = (_fix_file(Path(file), found) for file, found in sorted(by_file.items()) if file.endswith(".py"))
    return [fix for fix in fixes if fix is not None]


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


def _fix_file(path: Path, findings: Sequence[Finding]) -> Optional[FileFix]:
    before = path.read_bytes()
    try:
        wrapper = MetadataWrapper(cst.parse_module(before))
    except (cst.ParserSyntaxError, SyntaxError, UnicodeDecodeError):
        return None
    changes = _Changes(wrapper, findings)
    tree = wrapper.module.visit(changes)
    after = tree.bytes
    if after == before:
        return None
    # a change that Python cannot read would be worse than any finding
    compile(after, str(path), "exec", dont_inherit=True)
    return FileFix(path, before, after, tree.encoding, tuple(changes.fixed))


class _Changes(cst.CSTTransformer):
    """Changes the nodes that findings point at; `fixed` are the findings that had one."""

    def __init__(self, wrapper: MetadataWrapper, findings: Sequence[Finding]) -> None:
        super().__init__()
        self.fixed: List[Finding] = []
        self._functions: List[cst.FunctionDef] = []
        self._wanted = _find_nodes(wrapper, findings)

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Remember the function that is gone into."""
        if isinstance(node, cst.FunctionDef):
            self._functions.append(node)
        return True

    def on_leave(self, original_node: cst.CSTNode, updated_node: cst.CSTNode) -> Replacement:  # type: ignore[override]
        """Change a node, and what a change of its parts leaves of it."""
        if isinstance(original_node, cst.FunctionDef):
            self._functions.pop()
        # LibCST writes `pass` into a block that has lost all its lines, and into a line without statements
        if isinstance(updated_node, cst.SimpleStatementLine) and not updated_node.body:
            return cst.RemoveFromParent()
        if _assigns_itself(updated_node) and not _assigns_itself(original_node):
            return cst.RemoveFromParent()
        if _is_bare_value(updated_node) and not _is_bare_value(original_node):
            return cst.RemoveFromParent()
        finding = self._wanted.get(original_node)
        if finding is None:
            return updated_node
        around = Surroundings(self._functions[-1] if self._functions else None)
        changed = EDITS[finding.code].change(updated_node, around)
        if changed is None:
            return updated_node
        self.fixed.append(finding)
        return changed


def _find_nodes(wrapper: MetadataWrapper, findings: Sequence[Finding]) -> Dict[cst.CSTNode, Finding]:
    """Find the node of each finding: the innermost one of a kind that its edit takes, around its place."""
    by_line: Dict[int, List[Finding]] = {}
    for finding in findings:
        assert finding.place is not None
        by_line.setdefault(finding.place.line, []).append(finding)
    best: Dict[Finding, Tuple[int, cst.CSTNode]] = {}
    for node, span in wrapper.resolve(PositionProvider).items():
        around = (finding for line, found in by_line.items() if line in _lines(span) for finding in found)
        for finding in around:
            if isinstance(node, EDITS[finding.code].kinds) and _contains(span, finding):
                size = _measure(span)
                if finding not in best or size < best[finding][0]:
                    best[finding] = (size, node)
    return {node: finding for finding, (_size, node) in best.items()}


def _lines(span: CodeRange) -> range:
    return range(span.start.line, span.end.line + 1)


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
