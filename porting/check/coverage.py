"""Say what of a program a preflight has read, and what it left out.

A report without findings is worth as much as this says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Collection, Dict, Iterator, List, Sequence, Tuple

from porting.diagnostics import Finding, Place, join_names, say_number
from porting.source.facts import Call, Facts, Kind
from porting.source.project import Project

__all__ = ["Coverage", "UnreadCall", "measure_coverage"]

_MOST_NAMED = 3
_TRAINED = (Kind.PORT, Kind.OPTIMIZER, Kind.LOSS, Kind.SCALER)
_TRAINING = ("backward", "manual_backward", "fit", "training_step")


@dataclass(frozen=True)
class UnreadCall:
    """A call of something that was not read; where an import brings it, `origin` is the place of that."""

    name: str
    place: Place
    origin: Place


@dataclass(frozen=True)
class Coverage:
    """The files and functions that findings are of, and what imports and calls lead to beyond these.

    `imports` are those of the program's own files that were not found, a finding each; `files` were found, but not
    read, with the reason. A library is no part of the program: it is named, and that is all.
    """

    num_files: int = 0
    num_functions: int = 0
    num_entered: int = 0
    imports: Tuple[Finding, ...] = ()
    calls: Tuple[UnreadCall, ...] = ()
    files: Tuple[Tuple[str, str], ...] = ()
    libraries: Tuple[str, ...] = ()
    main_parts: Tuple[Place, ...] = ()
    has_training: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether nothing of the program was left out."""
        return not list(self._iter_gaps())

    @property
    def looked_at(self) -> Tuple[str, ...]:
        """What was read, in numbers."""
        end = ("nothing left out",) if self.is_whole else ()
        number = len(self.libraries)
        libraries = (f"{number} librar{'y' if number == 1 else 'ies'} by name",)
        counts = (say_number(self.num_files, "file"), say_number(self.num_entered, "function"))
        return (*counts, *(libraries if self.libraries else ()), *end)

    @property
    def gaps(self) -> str:
        """What was left out, the first of each kind by name and place; empty where nothing was."""
        return ", ".join(self._iter_gaps())

    @property
    def facts(self) -> Tuple[str, ...]:
        """What another way to ask would judge as well."""
        if not self.main_parts:
            return ()
        places = join_names(self.main_parts, most=_MOST_NAMED, quote="")
        return (
            f"not judged, as an import does not run it: the `__main__` part at {places}; name the file to judge it",
        )

    def accept(self, findings: Collection[Finding]) -> Coverage:
        """Leave out the imports that are allowed, or known, and the calls of what they would bring."""
        accepted = {finding.place for finding in findings if finding in self.imports}
        return replace(
            self,
            imports=tuple(finding for finding in self.imports if finding.place not in accepted),
            calls=tuple(call for call in self.calls if call.origin not in accepted),
        )

    def to_dict(self) -> Dict[str, Any]:
        """Make a dictionary of plain values, ready for JSON."""
        return {
            "is_whole": self.is_whole,
            "files": self.num_files,
            "functions": self.num_functions,
            "functions_entered": self.num_entered,
            "imports_not_found": [{"name": _name_import(one), "place": str(one.place)} for one in self.imports],
            "calls_not_followed": [{"name": call.name, "place": str(call.place)} for call in self.calls],
            "files_not_read": [{"file": file, "reason": reason} for file, reason in self.files],
            "libraries": list(self.libraries),
            "main_parts_not_run": list(map(str, self.main_parts)),
        }

    def _iter_gaps(self) -> Iterator[str]:
        imports = [f"`{_name_import(finding)}` at {finding.place}" for finding in self.imports]
        calls = [f"`{call.name}` at {call.place}" for call in self.calls]
        files = [f"`{file}`: {reason}" for file, reason in self.files]
        for noun, names in (("import", imports), ("call", calls), ("file", files)):
            if names:
                yield f"{say_number(len(names), noun)} ({join_names(names, most=_MOST_NAMED, quote='')})"
        if self.num_entered < self.num_functions:
            yield f"{say_number(self.num_functions - self.num_entered, 'function')} of a program that is too large"


def _name_import(finding: Finding) -> str:
    return str(finding.message).split("`")[1]


def measure_coverage(project: Project, facts: Sequence[Facts], *, num_files: int) -> Coverage:
    """Measure what the walks through the programs of a project have come to."""
    imports: List[Finding] = []
    origins: Dict[str, Dict[str, Place]] = {}
    for module in project.modules.values():
        for wanted, finding in project.follow_imports(module).missing:
            assert finding.place is not None
            imports.append(finding)
            for alias in getattr(wanted.node, "names", ()):
                name = alias.asname or alias.name.partition(".")[0]
                origins.setdefault(finding.place.file, {})[name] = finding.place
    functions = {node for part in facts for node in part.functions}
    left = {file: "a part of it is nested too deeply" for part in facts for file in part.left}
    return Coverage(
        num_files=num_files,
        num_functions=len(functions),
        num_entered=len({node for part in facts for node in part.entered}),
        imports=tuple(dict.fromkeys(imports)),
        calls=tuple(dict.fromkeys(call for part in facts for call in _iter_unread(part, origins))),
        files=tuple({**project.unread, **left}.items()),
        libraries=tuple(sorted(project.libraries)),
        main_parts=tuple(dict.fromkeys(place for part in facts for place in part.main_parts)),
        has_training=any(map(_has_training, facts)),
    )


def _iter_unread(facts: Facts, origins: Dict[str, Dict[str, Place]]) -> Iterator[UnreadCall]:
    for call in facts.calls:
        names = origins.get(call.where.file)
        origin = names.get(_find_root(call)) if names else None
        if origin is not None:
            yield UnreadCall(call.name, call.place, origin)
    for call in facts.unread:
        yield UnreadCall(call.name, call.place, call.place)


def _find_root(call: Call) -> str:
    node: Any = call.node.func
    while hasattr(node, "value"):
        node = node.value
    return getattr(node, "id", "")


def _has_training(facts: Facts) -> bool:
    """Tell whether something trains or runs a model: a port, an optimizer, a loss, or a library's loop."""
    return (
        any(one.kind in _TRAINED or one.name.endswith("Trainer") for one in facts.objects)
        or any(call.is_method(*_TRAINING) for call in facts.calls)
        or any(getattr(node, "name", "") in _TRAINING for node in facts.functions)
    )
