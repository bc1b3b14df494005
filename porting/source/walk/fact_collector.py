"""Collect facts as they are found: each place gives one, and what a later walk of the same place adds is merged."""

from __future__ import annotations

import ast
from typing import Dict, Hashable, Iterable, List, Optional, Sequence, Set, Tuple

from porting.diagnostics import Place
from porting.source.facts import (
    Call,
    Facts,
    Import,
    Kind,
    Loop,
    LoopKind,
    ProgramObject,
    ProgramObjects,
    Statement,
    Where,
)
from porting.source.library import TENSOR_KINDS

__all__ = ["FactCollector"]


class FactCollector:
    """Makes program objects and facts, and hands out the `Facts` at the end."""

    def __init__(self) -> None:
        self._calls: Dict[ast.AST, Call] = {}
        self._statements: Dict[ast.AST, Statement] = {}
        self._imports: Dict[Tuple[ast.AST, str], Import] = {}
        self._objects: Dict[Hashable, ProgramObject] = {}
        self._derived: Dict[ProgramObject, bool] = {}
        self._entered: Dict[ast.AST, Set[ast.AST]] = {}
        self.num_facts = 0
        self.left: List[str] = []
        """The files of which a part was nested too deeply to be walked."""
        self.unread: Dict[ast.AST, Call] = {}
        """The calls of which nothing tells what they call."""
        self.main_parts: Dict[ast.AST, Place] = {}
        """The main parts of imported files, which do not run."""

    def make_object(
        self,
        key: Hashable,
        kind: Kind,
        *,
        name: str,
        place: Place,
        parts: ProgramObjects = (),
        call: Optional[Call] = None,
        is_guess: bool = False,
    ) -> ProgramObject:
        """Make a program object, or return the one that was made under the same key, with more parts."""
        program_object = self._objects.get(key)
        if program_object is None:
            program_object = self._objects[key] = ProgramObject(kind, name, place, parts, call, is_guess)
        elif parts != program_object.parts:
            self.add_parts(program_object, parts)
        return program_object

    def find_object(self, key: Hashable, parts: ProgramObjects) -> Optional[ProgramObject]:
        """Find the object that was made under a key, and give it more parts; None where none was."""
        program_object = self._objects.get(key)
        if program_object is not None and parts != program_object.parts:
            self.add_parts(program_object, parts)
            if program_object in self._derived:
                kind = _find_most_telling(parts)
                if _MOST_TELLING.index(kind) < _MOST_TELLING.index(program_object.kind):
                    program_object.kind = kind
        return program_object

    def derive_object(
        self, key: Hashable, parts: ProgramObjects, *, name: str, place: Place, call: Optional[Call] = None
    ) -> ProgramObject:
        """Make what is computed of tensors: it is what the most telling of them is."""
        program_object = self.make_object(
            key, _find_most_telling(parts), name=name, place=place, parts=parts, call=call
        )
        self._derived[program_object] = True
        return program_object

    def add_parts(self, program_object: ProgramObject, parts: Iterable[ProgramObject]) -> None:
        """Say that a program object is also made of these, unless they are made of it."""
        new = tuple(
            part for part in parts if part not in program_object.parts and not _is_made_of(part, program_object)
        )
        if new and len(program_object.parts) < _MOST_PARTS:
            program_object.parts = (*program_object.parts, *new)

    def mark_loss(self, program_object: ProgramObject) -> None:
        """Make a loss of what turns out to be one, and of the sums that it was scaled from."""
        if program_object.kind not in TENSOR_KINDS or program_object.kind is Kind.LOSS:
            return
        program_object.kind = Kind.LOSS
        if program_object.name in _SCALINGS:
            parts = [part for part in program_object.parts if part in self._derived]
            reductions = [part for part in parts if len(program_object.parts) == 1 or part.name in _REDUCTIONS]
            for part in reductions:
                self.mark_loss(part)

    def extend_loop(self, loop: Loop, kind: LoopKind, objects: ProgramObjects) -> None:
        """Add to a loop what it goes through on another way to it."""
        if not set(objects) <= set(loop.objects):
            loop.objects = _unite_objects(loop.objects, objects)
        if loop.kind is LoopKind.OTHER and kind is not loop.kind:
            loop.kind = kind

    def become(self, program_object: ProgramObject, kind: Kind, *, is_guess: bool = False) -> None:
        """Say what a program object is of which nothing was known but its name, or that it was loaded."""
        if program_object.kind in (Kind.OTHER, Kind.STATE):
            program_object.kind, program_object.is_guess = kind, is_guess

    def is_derived(self, program_object: ProgramObject) -> bool:
        """Tell whether a program object was computed of other tensors by an operator or a function of torch's."""
        return program_object in self._derived

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
            call.receiver = _unite_objects(call.receiver, other.receiver)
        if call.arguments != other.arguments:
            call.arguments = _unite_all(call.arguments, other.arguments)
        if call.keywords != other.keywords:
            merged = {
                key: _unite_objects(call.keywords.get(key, ()), objects) for key, objects in other.keywords.items()
            }
            call.keywords = {**call.keywords, **merged}
        if call.where is not other.where:
            call.where = _merge_where(call.where, other.where)
        if other.name not in (call.name, *call.other_names):
            call.other_names = (*call.other_names, other.name)

    def add_results(self, call: Call, objects: ProgramObjects) -> None:
        """Say what comes out of a call."""
        if objects and objects != call.result:
            call.result = _unite_objects(call.result, objects)

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

    def merge_statement(
        self, statement: Statement, where: Where, objects: ProgramObjects, targets: ProgramObjects
    ) -> None:
        """Add to a statement what it is on another way to it."""
        if statement.objects != objects:
            statement.objects = _unite_objects(statement.objects, objects)
        if statement.targets != targets:
            statement.targets = _unite_objects(statement.targets, targets)
        if statement.where is not where:
            statement.where = _merge_where(statement.where, where)

    def record_import(self, node: ast.AST, *, place: Place, name: str, is_guarded: bool, where: Where) -> None:
        """Record the import of a module."""
        if (node, name) not in self._imports:
            self._imports[node, name] = Import(node, place, name, is_guarded, where)
            self.num_facts += 1

    def finish(self) -> Facts:
        """Hand out all facts; what was computed of a loss before it was known to be one becomes one, too."""
        for program_object in self._derived:
            if program_object.kind is not Kind.LOSS and any(part.kind is Kind.LOSS for part in program_object.parts):
                program_object.kind = Kind.LOSS
        for call in self._calls.values():
            _learn_of_loop(call)
            _learn_of_outer_loops(call.where.loops)
        if not any(map(_leaves_loss, self._calls.values())):
            self._move_losses()
        facts = Facts(
            calls=list(self._calls.values()),
            statements=[statement for statement in self._statements.values() if not statement.asks],
            reads=[statement for statement in self._statements.values() if statement.asks],
            imports=list(self._imports.values()),
            objects=list(self._objects.values()),
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


def _leaves_loss(call: Call) -> bool:
    """Tell whether a call makes a port whose loss stays on the host."""
    words = call.node.keywords if "loop" in call.keywords else []
    is_of_host = any(word.arg == "loop" and getattr(word.value, "value", "") == "host" for word in words)
    return is_of_host or call.name == "porting.integrations.DeviceCalls"


def _computes_loss(call: Call) -> bool:
    kinds = {one.kind for one in call.given}
    is_made = any(one.kind is Kind.LOSS for one in call.result)
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
    if not loops or not is_of_training or call.name.startswith(".") or set(loops[-1].objects) & set(call.receiver):
        return
    if loops[-1].kind is LoopKind.OTHER and not any(loop.kind is LoopKind.BATCHES for loop in loops):
        loops[-1].kind = LoopKind.BATCHES


def _learn_of_outer_loops(loops: Tuple[Loop, ...]) -> None:
    """Take a loop that was taken for one over batches, but holds one over a loader, for one over epochs."""
    over_loader = [number for number, loop in enumerate(loops) if any(part.kind in _LOADERS for part in loop.objects)]
    for loop in loops[: over_loader[-1]] if over_loader else ():
        if loop.kind is LoopKind.BATCHES and not loop.objects:
            loop.kind = LoopKind.EPOCHS


_TRAINED = (Kind.MODULE, Kind.PORT)
_LOADERS = (Kind.LOADER, Kind.PORT_LOADER)


def _find_most_telling(parts: ProgramObjects) -> Kind:
    return next(kind for kind in _MOST_TELLING if any(part.kind is kind for part in parts))


def _is_made_of(program_object: ProgramObject, other: ProgramObject) -> bool:
    seen = set()
    waiting: List[ProgramObject] = [program_object]
    while waiting:
        part = waiting.pop()
        if part is other:
            return True
        if part not in seen:
            seen.add(part)
            waiting.extend(part.parts)
    return False


def _unite_objects(known: ProgramObjects, more: ProgramObjects) -> ProgramObjects:
    return known if known == more else tuple(dict.fromkeys((*known, *more)))


def _unite_all(known: Tuple[ProgramObjects, ...], more: Sequence[ProgramObjects]) -> Tuple[ProgramObjects, ...]:
    length = max(len(known), len(more))
    padded = [(*values, *((),) * (length - len(values))) for values in (tuple(known), tuple(more))]
    return tuple(_unite_objects(one, other) for one, other in zip(*padded))


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
