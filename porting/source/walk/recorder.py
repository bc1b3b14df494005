"""Things and facts as they are found: each place gives one, and what a later walk of the same place adds is merged."""

from __future__ import annotations

import ast
from typing import Dict, Hashable, Iterable, List, Optional, Sequence, Set, Tuple

from porting.diagnostics import Place
from porting.source.facts import Call, Facts, Import, Kind, Loop, LoopKind, Statement, Thing, Things, Where
from porting.source.library import TENSOR_KINDS

__all__ = ["Recorder"]


class Recorder:
    """Makes things and facts, and hands out the `Facts` at the end."""

    def __init__(self) -> None:
        self._calls: Dict[ast.AST, Call] = {}
        self._statements: Dict[ast.AST, Statement] = {}
        self._imports: Dict[Tuple[ast.AST, str], Import] = {}
        self._things: Dict[Hashable, Thing] = {}
        self._derived: Dict[Thing, bool] = {}
        self._entered: Dict[ast.AST, Set[ast.AST]] = {}
        self.num_facts = 0
        self.left: List[str] = []
        """The files of which a part was nested too deeply to be walked."""
        self.unread: Dict[ast.AST, Call] = {}
        """The calls of which nothing tells what they call."""
        self.main_parts: Dict[ast.AST, Place] = {}
        """The main parts of imported files, which do not run."""

    def make_thing(
        self,
        key: Hashable,
        kind: Kind,
        *,
        name: str,
        place: Place,
        parts: Things = (),
        call: Optional[Call] = None,
        is_guess: bool = False,
    ) -> Thing:
        """Make a thing, or return the one that was made under the same key, with more parts."""
        thing = self._things.get(key)
        if thing is None:
            thing = self._things[key] = Thing(kind, name, place, parts, call, is_guess)
        elif parts != thing.parts:
            self.add_parts(thing, parts)
        return thing

    def find_thing(self, key: Hashable, parts: Things) -> Optional[Thing]:
        """Find the thing that was made under a key, and give it more parts; None where none was."""
        thing = self._things.get(key)
        if thing is not None and parts != thing.parts:
            self.add_parts(thing, parts)
            if thing in self._derived:
                kind = _find_most_telling(parts)
                if _MOST_TELLING.index(kind) < _MOST_TELLING.index(thing.kind):
                    thing.kind = kind
        return thing

    def derive_thing(
        self, key: Hashable, parts: Things, *, name: str, place: Place, call: Optional[Call] = None
    ) -> Thing:
        """Make what is computed of tensors: it is what the most telling of them is."""
        thing = self.make_thing(key, _find_most_telling(parts), name=name, place=place, parts=parts, call=call)
        self._derived[thing] = True
        return thing

    def add_parts(self, thing: Thing, parts: Iterable[Thing]) -> None:
        """Say that a thing is also made of these, unless they are made of it."""
        new = tuple(part for part in parts if part not in thing.parts and not _is_made_of(part, thing))
        if new and len(thing.parts) < _MOST_PARTS:
            thing.parts = (*thing.parts, *new)

    def mark_loss(self, thing: Thing) -> None:
        """Make a loss of what turns out to be one, and of the sums that it was scaled from."""
        if thing.kind not in TENSOR_KINDS or thing.kind is Kind.LOSS:
            return
        thing.kind = Kind.LOSS
        if thing.name in _SCALINGS:
            parts = [part for part in thing.parts if part in self._derived]
            reductions = [part for part in parts if len(thing.parts) == 1 or part.name in _REDUCTIONS]
            for part in reductions:
                self.mark_loss(part)

    def extend_loop(self, loop: Loop, kind: LoopKind, things: Things) -> None:
        """Add to a loop what it goes through on another way to it."""
        if not set(things) <= set(loop.things):
            loop.things = _unite_things(loop.things, things)
        if loop.kind is LoopKind.OTHER and kind is not loop.kind:
            loop.kind = kind

    def become(self, thing: Thing, kind: Kind, *, is_guess: bool = False) -> None:
        """Say what a thing is of which nothing was known but its name, or that it was loaded."""
        if thing.kind in (Kind.OTHER, Kind.STATE):
            thing.kind, thing.is_guess = kind, is_guess

    def is_derived(self, thing: Thing) -> bool:
        """Tell whether a thing was computed of other tensors by an operator or a function of torch's."""
        return thing in self._derived

    def find_call(self, node: ast.Call) -> Optional[Call]:
        """Find the call that was recorded of a node."""
        return self._calls.get(node)

    def add_call(self, call: Call) -> None:
        """Record a call; its results are added with `add_results`."""
        self._calls[call.node] = call
        self.num_facts += 1

    def merge_call(self, call: Call, other: Call) -> None:
        """Add to a call what it is on another way to it."""
        if call.receiver != other.receiver:
            call.receiver = _unite_things(call.receiver, other.receiver)
        if call.arguments != other.arguments:
            call.arguments = _unite_all(call.arguments, other.arguments)
        if call.keywords != other.keywords:
            merged = {key: _unite_things(call.keywords.get(key, ()), things) for key, things in other.keywords.items()}
            call.keywords = {**call.keywords, **merged}
        if call.where is not other.where:
            call.where = _merge_where(call.where, other.where)
        if other.name not in (call.name, *call.other_names):
            call.other_names = (*call.other_names, other.name)

    def add_results(self, call: Call, things: Things) -> None:
        """Say what comes out of a call."""
        if things and things != call.result:
            call.result = _unite_things(call.result, things)

    def enter(self, caller: Optional[ast.AST], node: ast.AST, body: ast.AST) -> None:
        """Record that a call in the function `caller` leads into the function `body`."""
        for key in (caller, node):
            if key is not None:
                self._entered.setdefault(key, set()).add(body)

    def mark_unread(self, node: ast.Call) -> None:
        """Say of a call that what it calls was not read."""
        if node in self._calls:
            self.unread[node] = self._calls[node]

    def find_statement(self, node: ast.AST) -> Optional[Statement]:
        """Find the statement that was recorded of a node."""
        return self._statements.get(node)

    def add_statement(self, statement: Statement) -> None:
        """Record a statement."""
        self._statements[statement.node] = statement
        self.num_facts += 1

    def merge_statement(self, statement: Statement, where: Where, things: Things, targets: Things) -> None:
        """Add to a statement what it is on another way to it."""
        if statement.things != things:
            statement.things = _unite_things(statement.things, things)
        if statement.targets != targets:
            statement.targets = _unite_things(statement.targets, targets)
        if statement.where is not where:
            statement.where = _merge_where(statement.where, where)

    def record_import(self, node: ast.AST, *, place: Place, name: str, is_guarded: bool, where: Where) -> None:
        """Record the import of a module."""
        if (node, name) not in self._imports:
            self._imports[node, name] = Import(node, place, name, is_guarded, where)
            self.num_facts += 1

    def finish(self) -> Facts:
        """Hand out all facts; what was computed of a loss before it was known to be one becomes one, too."""
        for thing in self._derived:
            if thing.kind is not Kind.LOSS and any(part.kind is Kind.LOSS for part in thing.parts):
                thing.kind = Kind.LOSS
        for call in self._calls.values():
            _learn_of_loop(call)
            _learn_of_outer_loops(call.where.loops)
        self._move_losses()
        facts = Facts(
            calls=list(self._calls.values()),
            statements=[statement for statement in self._statements.values() if not statement.asks],
            reads=[statement for statement in self._statements.values() if statement.asks],
            imports=list(self._imports.values()),
            things=list(self._things.values()),
            unread=list(self.unread.values()),
            left=self.left,
            main_parts=list(self.main_parts.values()),
        )
        return facts

    def _move_losses(self) -> None:
        """Say of functions that compute a loss of outputs, and of what they call, that they are in `forward`."""
        on_host = {call.where.body for call in self._calls.values() if _is_of_loop(call)}
        moved: Set[Optional[ast.AST]] = set()
        for call in self._calls.values():
            bodies = self._follow(call.node) if _computes_loss(call) else set()
            moved.update(bodies if bodies.isdisjoint(on_host) else ())
        places = [call.where for call in self._calls.values()] + [one.where for one in self._statements.values()]
        for where in places:
            if where.body in moved:
                where.in_forward = True

    def _follow(self, node: ast.AST) -> Set[ast.AST]:
        found: Set[ast.AST] = set()
        waiting = [*self._entered.get(node, ())]
        while waiting:
            body = waiting.pop()
            if body not in found:
                found.add(body)
                waiting.extend(self._entered.get(body, ()))
        return found


def _computes_loss(call: Call) -> bool:
    kinds = {thing.kind for thing in call.given}
    is_made = any(thing.kind is Kind.LOSS for thing in call.result)
    return is_made and Kind.OUTPUT in kinds and Kind.LOSS not in kinds and not call.where.in_forward


def _is_of_loop(call: Call) -> bool:
    """Tell whether a call is one that stays in the loop: of a model, or of what a training step does."""
    is_step = call.is_method("backward", "step", "zero_grad", "eval", "train")
    return is_step or call.is_on(*_TRAINED) and not call.name.startswith(".") and not call.where.in_forward


_MOST_TELLING = (Kind.LOSS, Kind.OUTPUT, Kind.BATCH, Kind.TENSOR)
_MOST_PARTS = 12
_SCALINGS = ("*", "/", "-", "+", "float", "to")
_REDUCTIONS = (".mean", ".sum", "torch.mean", "torch.sum", "*", "/", "+", "-")


def _learn_of_loop(call: Call) -> None:
    """Take a loop that calls a model, and that stands in no loop over batches, for one."""
    loops = call.where.loops
    is_of_training = call.is_on(*_TRAINED) and not call.where.in_forward
    if not loops or not is_of_training or call.name.startswith(".") or set(loops[-1].things) & set(call.receiver):
        return
    if loops[-1].kind is LoopKind.OTHER and not any(loop.kind is LoopKind.BATCHES for loop in loops):
        loops[-1].kind = LoopKind.BATCHES


def _learn_of_outer_loops(loops: Tuple[Loop, ...]) -> None:
    """Take a loop that was taken for one over batches, but holds one over a loader, for one over epochs."""
    over_loader = [number for number, loop in enumerate(loops) if any(part.kind in _LOADERS for part in loop.things)]
    for loop in loops[: over_loader[-1]] if over_loader else ():
        if loop.kind is LoopKind.BATCHES and not loop.things:
            loop.kind = LoopKind.EPOCHS


_TRAINED = (Kind.MODULE, Kind.PORT)
_LOADERS = (Kind.LOADER, Kind.PORT_LOADER)


def _find_most_telling(parts: Things) -> Kind:
    return next(kind for kind in _MOST_TELLING if any(part.kind is kind for part in parts))


def _is_made_of(thing: Thing, other: Thing) -> bool:
    seen = set()
    waiting: List[Thing] = [thing]
    while waiting:
        part = waiting.pop()
        if part is other:
            return True
        if part not in seen:
            seen.add(part)
            waiting.extend(part.parts)
    return False


def _unite_things(known: Things, more: Things) -> Things:
    return known if known == more else tuple(dict.fromkeys((*known, *more)))


def _unite_all(known: Tuple[Things, ...], more: Sequence[Things]) -> Tuple[Things, ...]:
    length = max(len(known), len(more))
    padded = [(*values, *((),) * (length - len(values))) for values in (tuple(known), tuple(more))]
    return tuple(_unite_things(one, other) for one, other in zip(*padded))


def _merge_where(one: Where, other: Where) -> Where:
    """Merge where a fact stands on two ways: in all the loops of the deeper one, under the guards of both."""
    guards = one.guards
    if one.guards != other.guards:
        kept = set(map(id, other.guards))
        guards = tuple(guard for guard in one.guards if id(guard) in kept)
    loops: Tuple[Loop, ...] = one.loops if len(one.loops) >= len(other.loops) else other.loops
    return Where(
        file=one.file,
        function=one.function,
        loops=loops,
        guards=guards,
        in_forward=one.in_forward or other.in_forward,
        without_gradients=one.without_gradients and other.without_gradients,
        in_evaluation=one.in_evaluation and other.in_evaluation,
        ways=tuple(dict.fromkeys((*one.ways, *other.ways)))[:_MOST_PARTS],
        body=one.body,
    )
