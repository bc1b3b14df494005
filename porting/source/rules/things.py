"""What things are made of: the modules of an optimizer or a loss, what two of them share, and what only names tell."""

from __future__ import annotations

from typing import Callable, Collection, Iterable, Iterator, Set

from porting.source.facts import Kind, Thing, Things

__all__ = ["go_through_parts", "is_of_no_module", "list_modules", "share_module", "tell_guess"]


def tell_guess(things: Iterable[Thing]) -> str:
    """Say of which thing nothing but its name tells what it is, if that is so of all of them."""
    guessed = list(things)
    if not guessed or not all(thing.is_guess for thing in guessed):
        return ""
    return f"only its name says that `{guessed[0].name}` is a {guessed[0].kind.value}"


def list_modules(things: Iterable[Thing], *, outermost: bool = False) -> Set[Thing]:
    """List the modules that things are made of, a deep copy and not what it was copied of."""
    follow = _follow_to_modules if outermost else _follow_to_copies
    return set(filter(_is_module, go_through_parts(tuple(things), follow=follow)))


def _follow_to_modules(thing: Thing) -> Things:
    """Follow what a module has computed to the module, and not to what it did it with."""
    return () if _is_module(thing) else tuple(filter(_is_module, thing.parts)) or thing.parts


def _follow_to_copies(thing: Thing) -> Things:
    is_copy = thing.call is not None and thing.call.name == "copy.deepcopy"
    return () if is_copy else thing.parts


def share_module(things: Iterable[Thing], others: Iterable[Thing]) -> bool:
    """Tell whether things are of the same module as others, or one of them is of a part of it."""
    (whole, parts), (other_whole, other_parts) = (
        (list_modules(each, outermost=True), list_modules(each)) for each in (list(things), list(others))
    )
    return bool(whole & other_parts or other_whole & parts)


def is_of_no_module(thing: Thing) -> bool:
    """Tell whether an optimizer is one over tensors alone, as one that only keeps a schedule."""
    kinds = {part.kind for part in go_through_parts(thing.parts)} if thing.kind is Kind.OPTIMIZER else set()
    return kinds == {Kind.TENSOR}


def _is_module(thing: Thing) -> bool:
    return thing.kind is Kind.MODULE


def go_through_parts(
    things: Things,
    kinds: Collection[Kind] = tuple(Kind),
    until: Iterable[Thing] = (),
    *,
    follow: Callable[[Thing], Things] = lambda thing: thing.parts,
) -> Iterator[Thing]:
    """Go through things and all that they are made of, or those parts that it is to `follow`, each once.

    Those are left out, with their parts, that are of none of the `kinds`, or that are in `until`.
    """
    seen: Set[Thing] = set(until)
    waiting = list(things)
    while waiting:
        thing = waiting.pop()
        if thing not in seen and thing.kind in kinds:
            seen.add(thing)
            yield thing
            waiting.extend(follow(thing))
