"""Tell what program objects are made of: an optimizer's or a loss's modules, what two share, what only names tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Collection, Dict, Iterable, Iterator, List, Set

from porting.diagnostics import Finding, Severity
from porting.source.facts import Kind, ProgramObject, ProgramObjects
from porting.source.library import TENSOR_KINDS

__all__ = [
    "collect_loss_parts",
    "collect_modules",
    "go_through_parts",
    "is_of_no_module",
    "make_guess",
    "share_module",
    "tell_guess",
]


def tell_guess(objects: Iterable[ProgramObject]) -> str:
    """Say of which object nothing but its name tells what it is, if that is so of all of them."""
    guessed = list(objects)
    if not guessed or not all(one.is_guess for one in guessed):
        return ""
    return f"only its name says that `{guessed[0].name}` is a {guessed[0].kind.value}"


def make_guess(finding: Finding, guess: str) -> Finding:
    """Make a finding one that rests on a guess: a note that says so."""
    if finding.is_guess:
        return finding
    notes = (*finding.notes, f"a guess: {guess}")
    return replace(finding, notes=notes, severity=Severity.NOTE, is_guess=True)


def collect_modules(objects: Iterable[ProgramObject], *, outermost: bool = False) -> Set[ProgramObject]:
    """Collect the modules that objects are made of, a deep copy and not what it was copied of."""
    follow = _follow_to_modules if outermost else _follow_to_copies
    return set(filter(_is_module, go_through_parts(tuple(objects), follow=follow)))


def _follow_to_modules(program_object: ProgramObject) -> ProgramObjects:
    """Follow what a module has computed to the module, and not to what it did it with."""
    return () if _is_module(program_object) else tuple(filter(_is_module, program_object.parts)) or program_object.parts


def _follow_to_copies(program_object: ProgramObject) -> ProgramObjects:
    is_copy = program_object.call is not None and program_object.call.name == "copy.deepcopy"
    return () if is_copy else program_object.parts


def share_module(objects: Iterable[ProgramObject], others: Iterable[ProgramObject]) -> bool:
    """Tell whether objects are of the same module as others, or one of them is of a part of it."""
    (whole, parts), (other_whole, other_parts) = (
        (collect_modules(each, outermost=True), collect_modules(each)) for each in (list(objects), list(others))
    )
    return bool(whole & other_parts or other_whole & parts)


def is_of_no_module(program_object: ProgramObject) -> bool:
    """Tell whether an optimizer is one over tensors alone, as one that only keeps a schedule."""
    kinds = (
        {part.kind for part in go_through_parts(program_object.parts)}
        if program_object.kind is Kind.OPTIMIZER
        else set()
    )
    return kinds == {Kind.TENSOR}


def collect_loss_parts(losses: Iterable[ProgramObject]) -> Set[ProgramObject]:
    """Collect the tensors that losses are computed of, beginning with a model's outputs."""
    tensors = list(go_through_parts(tuple(losses), TENSOR_KINDS))
    computed: Dict[ProgramObject, List[ProgramObject]] = {}
    for tensor in tensors:
        for part in tensor.parts:
            computed.setdefault(part, []).append(tensor)
    outputs = tuple(tensor for tensor in tensors if tensor.kind is Kind.OUTPUT)
    return set(go_through_parts(outputs, follow=lambda one: tuple(computed.get(one, ()))))


def _is_module(program_object: ProgramObject) -> bool:
    return program_object.kind is Kind.MODULE


def go_through_parts(
    objects: ProgramObjects,
    kinds: Collection[Kind] = tuple(Kind),
    until: Iterable[ProgramObject] = (),
    *,
    follow: Callable[[ProgramObject], ProgramObjects] = lambda one: one.parts,
) -> Iterator[ProgramObject]:
    """Go through objects and all that they are made of, or those parts that it is to `follow`, each once.

    Those are left out, with their parts, that are of none of the `kinds`, or that are in `until`.
    """
    seen: Set[ProgramObject] = set(until)
    waiting = list(objects)
    while waiting:
        program_object = waiting.pop()
        if program_object not in seen and program_object.kind in kinds:
            seen.add(program_object)
            yield program_object
            waiting.extend(follow(program_object))
