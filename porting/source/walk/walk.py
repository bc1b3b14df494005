"""Keep the state of a walk: its place in the program, the variables, what is being called; dispatch by syntax."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any, Callable, ContextManager, Dict, FrozenSet, List, Mapping, Optional, Sequence, Set, Tuple, Type

from porting.diagnostics import Place
from porting.source.facts import Call, Kind, Loop, LoopKind, ProgramObject, ProgramObjects, Statement, Where
from porting.source.project import Module, Project, Unit
from porting.source.walk.fact_collector import FactCollector
from porting.source.walk.guesses import Uses, find_uses
from porting.source.walk.store import Store, Writes
from porting.source.walk.values import UNKNOWN, Class, Constant, Function, Object, Scope, Value

__all__ = ["Evaluator", "Executor", "Flow", "Frame", "Walk"]

Evaluator = Callable[["Walk", Any], Value]
Executor = Callable[["Walk", Any], None]


_NOTHING: Mapping[Any, Value] = {}
_NO_FRAME: Any = None


class Flow:
    """How a block of statements ends: it goes on, or leaves its loop, its function or the program."""

    ON = ""
    LOOP = "loop"
    FUNCTION = "function"
    RAISED = "raised"


@dataclass(eq=False)
class Frame:
    """A function, or the top level of a module, that is being walked."""

    unit: Unit
    module: Module
    variables: Scope
    name: str = ""
    scopes: Tuple[Scope, ...] = ()
    """The locals of the functions around it, the innermost first."""
    key: int = 0
    """Tells apart the ways of calls that lead here."""
    function: Optional[Function] = None
    outer_names: Dict[str, Scope] = field(default_factory=dict)
    """The scopes of the names that it declares `global` or `nonlocal`."""
    returned: List[Value] = field(default_factory=list)
    yielded: List[Value] = field(default_factory=list)
    exits: List[Writes] = field(default_factory=list)
    """What branches had written that returned."""
    is_class: bool = False
    class_defined: Optional[Class] = None
    """The class whose body this is."""


@dataclass
class Walk:
    """A walk through one project.

    The functions of the other files of this package take the walk as their first argument. `evaluators` and
    `executors` are the table of syntax, which breaks the circle between them.
    """

    project: Project
    evaluators: Mapping[Type[ast.AST], Evaluator]
    executors: Mapping[Type[ast.AST], Executor]
    most_steps: int
    most_walks: int
    collector: FactCollector = field(default_factory=FactCollector)
    store: Store = field(default_factory=Store)
    globals: Dict[Module, Scope] = field(default_factory=dict)
    frames: Tuple[Frame, ...] = ()
    frame: Frame = _NO_FRAME
    """The last of these: the function or module that is being walked."""
    loops: Tuple[Loop, ...] = ()
    guards: Tuple[ast.expr, ...] = ()
    in_forward: bool = False
    without_gradients: bool = False
    in_try: bool = False
    programs: FrozenSet[str] = frozenset()
    """The program that is being walked, as a set of one; none in what nothing calls."""
    mains: Set[Module] = field(default_factory=set)
    """The modules that were walked as programs of their own."""
    asks_nothing: bool = False
    """Whether no value is asked for: where the program gives up, or asks only whether there is one."""
    is_main: bool = True
    """Whether the module that is being walked is the program and not imported."""
    flow: str = Flow.ON
    loop_exits: List[List[Writes]] = field(default_factory=list)
    modes: Scope = field(default_factory=lambda: {"evaluation": (Constant.of(False),)})
    """Whether the last `train()` or `eval()` was which."""
    objects: Dict[Any, Object] = field(default_factory=dict)
    lambdas: Dict[Any, Function] = field(default_factory=dict)
    classes: Dict[Any, Class] = field(default_factory=dict)
    modules: Dict[Module, Object] = field(default_factory=dict)
    """The modules that were imported, as values."""
    methods: Dict[str, List[Class]] = field(default_factory=dict)
    """The classes that define a method of a name."""
    instances: Dict[Class, List[Object]] = field(default_factory=dict)
    by_program_object: Dict[ProgramObject, Object] = field(default_factory=dict)
    guessed: Dict[ProgramObject, bool] = field(default_factory=dict)
    """What was taken for a tensor though nothing tells, as parameters of `forward`, and whether it may be a number."""
    walks: Dict[ast.AST, int] = field(default_factory=dict)
    """How often the body of each function was walked."""
    results: Dict[ast.AST, Value] = field(default_factory=dict)
    functions: List[Function] = field(default_factory=list)
    """All functions that were defined, in order."""
    deferred: List[Tuple[Module, Unit, Sequence[ast.stmt]]] = field(default_factory=list)
    """What stands under `if __name__ == "__main__"` in programs that others import."""
    loop_facts: Dict[ast.AST, Loop] = field(default_factory=dict)
    negations: Dict[ast.expr, ast.expr] = field(default_factory=dict)
    num_steps: int = 0
    num_keys: int = 0
    keys: Dict[Tuple[int, ast.AST], int] = field(default_factory=dict)
    ways: Dict[Tuple[int, ast.AST], List[Tuple[Tuple[ast.expr, ...], int]]] = field(default_factory=dict)
    uses: Dict[ast.AST, Uses] = field(default_factory=dict)
    last_stand: object = None
    last_where: Where = Where("")

    def evaluate(self, node: Optional[ast.AST]) -> Value:
        """Say what an expression may be, and record what happens in it."""
        if node is None:
            return UNKNOWN
        self.num_steps += 1
        evaluator = self.evaluators.get(type(node))
        return evaluator(self, node) if evaluator is not None else UNKNOWN

    def run(self, statements: Sequence[ast.stmt]) -> None:
        """Walk statements one after the other, until one of them leaves the block."""
        guards = self.guards
        for statement in statements:
            self.num_steps += 1
            executor = self.executors.get(type(statement))
            if executor is not None:
                executor(self, statement)
            if self.flow != Flow.ON:
                break
        self.guards = guards

    def record_call(
        self,
        node: ast.Call,
        *,
        name: str,
        receiver: ProgramObjects,
        arguments: Tuple[ProgramObjects, ...],
        keywords: Mapping[str, ProgramObjects],
    ) -> Call:
        """Record a call that stands here."""
        call = self.collector.find_call(node)
        if call is None:
            order = self.collector.num_facts
            call = Call(node, self.place_of(node), name, self.where, receiver, arguments, keywords, order=order)
            self.collector.add_call(call)
        else:
            where = call.where if self.stands_as(call.where) else self.where
            given = Call(node, call.place, name, where, receiver, arguments, keywords)
            self.collector.merge_call(call, given)
        return call

    def record_statement(
        self,
        node: ast.AST,
        objects: ProgramObjects,
        targets: ProgramObjects = (),
        *,
        shown: Optional[ast.AST] = None,
        asks: str = "",
    ) -> None:
        """Record a statement that stands here; `shown` is the part of it that is shown, if not all."""
        known = self.collector.find_statement(node)
        if known is None:
            statement = Statement(node, self.place_of(shown or node), self.where, objects, targets, asks)
            self.collector.add_statement(statement)
        else:
            where = known.where if self.stands_as(known.where) else self.where
            self.collector.merge_statement(known, where, objects, targets)

    def place_of(self, node: ast.AST) -> Place:
        """Say where a node of the function that is being walked stands."""
        return self.frame.unit.place_of(node)

    @property
    def where(self) -> Where:
        """Where the walk stands, one for all facts in a row that stand there."""
        frame, mode = self.frame, self.modes.get("evaluation", UNKNOWN)
        around = (self.loops, self.guards, self.in_forward, self.without_gradients, mode, self.programs)
        if self.last_stand != (frame, around):
            self.last_stand = (frame, around)
            self.last_where = Where(
                file=frame.unit.file,
                function=frame.name,
                loops=self.loops,
                guards=self.guards,
                in_forward=self.in_forward,
                without_gradients=self.without_gradients,
                in_evaluation=len(mode) == 1 and mode[0] == _IN_EVALUATION,
                ways=((self.guards, self.programs),),
                body=None if frame.function is None else frame.function.node,
            )
        return self.last_where

    def stands_as(self, where: Where) -> bool:
        """Tell whether the walk stands as it stood when a fact was found, which saves to merge the two."""
        return (
            where.loops == self.loops
            and (self.guards, self.programs) in where.ways
            and where.in_forward == self.in_forward
            and where.without_gradients == self.without_gradients
            and not where.in_evaluation
        )

    def find_uses(self, scope: ast.AST) -> Uses:
        """Find what is done with the names of a scope of the file that is being walked."""
        if scope not in self.uses:
            self.uses[scope] = find_uses(scope, self.frame.unit.lines)
        return self.uses[scope]

    def set_mode(self, *, evaluation: bool) -> None:
        """Remember that `eval()` or `train()` was called."""
        self.store.write(self.modes, "evaluation", (Constant.of(evaluation),))

    def wrap(self, program_object: ProgramObject) -> Object:
        """Give the one `Object` of a program object."""
        known = self.by_program_object.get(program_object)
        if known is None:
            known = self.by_program_object[program_object] = Object(program_object)
        return known

    def make(
        self,
        node: ast.AST,
        kind: Kind,
        *,
        name: str,
        parts: ProgramObjects = (),
        call: Optional[Call] = None,
        label: Any = "",
        is_guess: bool = False,
    ) -> Object:
        """Make the program object that an expression of the function that is being walked makes."""
        key = (node, self.frame.key, kind, name, label)
        program_object = self.collector.find_object(key, parts)
        if program_object is None:
            place = self._place_made(node, call)
            program_object = self.collector.make_object(
                key, kind, name=name, place=place, parts=parts, call=call, is_guess=is_guess
            )
        return self.wrap(program_object)

    def derive(
        self, node: ast.AST, parts: ProgramObjects, *, name: str, call: Optional[Call] = None, label: Any = ""
    ) -> Object:
        """Make what is computed of tensors."""
        key = (node, self.frame.key, "derived", label)
        program_object = self.collector.find_object(key, parts)
        if program_object is None:
            place = self._place_made(node, call)
            program_object = self.collector.derive_object(key, parts, name=name, place=place, call=call)
        return self.wrap(program_object)

    def _place_made(self, node: ast.AST, call: Optional[Call]) -> Place:
        return call.place if call is not None and call.node is node else self.place_of(node)

    def make_container(
        self, node: ast.AST, values: Mapping[Any, Value] = _NOTHING, *, label: Any = "", anew: bool = False
    ) -> Object:
        """Make the container that an expression makes, with these values.

        What it held on another way stays, unless it is made `anew`.
        """
        known = self.objects.setdefault((node, self.frame.key, "container", label), Object(elements={}))
        assert known.elements is not None
        for key in list(known.elements) if anew else ():
            self.store.write(known.elements, key, None)
        for key, value in values.items():
            self.store.write(known.elements, key, value)
        return known

    def negate(self, test: ast.expr) -> ast.expr:
        """Give the negation of a test, the same one each time."""
        if test not in self.negations:
            self.negations[test] = ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=test), test)
        return self.negations[test]

    def extend_key(self, node: ast.AST, body: ast.AST) -> int:
        """Number the way of calls that goes on from here through `node` into `body`.

        Calls of which only one is made, as in the two branches of an `if`, are one way.
        """
        step = (self.frame.key, node)
        if step not in self.keys:
            ways = self.ways.setdefault((self.frame.key, body), [])
            key = next((key for guards, key in ways if self._excludes_way(guards)), None)
            if key is None:
                self.num_keys += 1
                key = self.num_keys
                ways.append((self.guards, key))
            self.keys[step] = key
        return self.keys[step]

    def _excludes_way(self, guards: Tuple[ast.expr, ...]) -> bool:
        """Tell whether the walk stands under the contrary of one of these tests."""
        return any(self.negations.get(guard) in self.guards for guard in guards if guard in self.negations) or any(
            self.negations.get(guard) in guards for guard in self.guards if guard in self.negations
        )

    def attempt(self, part: Callable[[], object]) -> None:
        """Walk a part of the program that the rest does not need; one nested deeper than Python's stack is left."""
        try:
            with self.store.without_branches():
                part()
        except RecursionError:
            self.collector.left.append(self.frame.unit.file)
        self.flow = Flow.ON

    def list_loops_of_library(self, node: ast.AST) -> Tuple[Loop, ...]:
        """List the loops around a function that a library's trainer calls for each batch: its own is one of them."""
        return (*self.loops, self.loop_facts.setdefault(node, Loop(node, LoopKind.BATCHES)))

    def inside(self, frame: Frame, **context: Any) -> ContextManager[None]:
        """Stand in a function or at the top level of a module or a class for a while."""
        return self.standing(frames=(*self.frames, frame), frame=frame, **context)

    def standing(self, **context: Any) -> ContextManager[None]:
        """Stand elsewhere for a while: `frames`, `loops`, `guards`, `in_forward`, `without_gradients`."""
        return _Stand(self.__dict__, context)


@dataclass
class _Stand:
    """A context in which some of what an object holds is something else; in a third of the time of a generator."""

    held: Dict[str, Any]
    changes: Dict[str, Any]

    def __enter__(self) -> None:
        before = {name: self.held[name] for name in self.changes}
        self.held.update(self.changes)
        self.changes = before

    def __exit__(self, *_fault: object) -> None:
        self.held.update(self.changes)


_IN_EVALUATION = Constant.of(True)
