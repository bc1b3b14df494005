"""A program as rules read it: whether it has a port, which code is the port's, which loops train, what a code says."""

from __future__ import annotations

import ast
from functools import cached_property
from typing import Dict, FrozenSet, Iterable, List, Optional, Sequence, Set, Tuple, Union

from porting.diagnostics import CODES, Finding, Place, Severity
from porting.source.facts import Call, Facts, Kind, Loop, LoopKind, ProgramObject, Statement, Where
from porting.source.files import Unit, list_nodes, list_statements
from porting.source.rules.guards import are_exclusive, excludes_ports
from porting.source.rules.names import is_backward, is_for_ports
from porting.source.rules.program_objects import (
    collect_loss_parts,
    collect_modules,
    go_through_parts,
    is_of_no_module,
    make_guess,
    share_module,
)
from porting.source.rules.reach import Reach, share_program
from porting.source.rules.wordings import read_wordings

__all__ = ["Reading"]


class Reading:
    """The facts of a program, and what several rules ask about them; `units` are its files as they were read.

    `configurations` are the paths and texts of those that it makes something of.
    """

    def __init__(
        self, facts: Facts, units: Iterable[Unit] = (), configurations: Sequence[Tuple[str, str]] = ()
    ) -> None:
        self.facts = facts
        self.configurations = configurations
        self._units = {unit.file: unit for unit in units}
        self._nodes: Dict[ast.AST, FrozenSet[int]] = {}
        self._parts: Dict[ProgramObject, Tuple[ProgramObject, ...]] = {}
        self.found: Dict[object, Tuple[Finding, ...]] = {}
        """What rules have found, by the rule."""

    # ---------------------------------------------------------------- what kind of program

    @cached_property
    def is_ported(self) -> bool:
        """Whether it has a port, or is a part of a program that has one."""
        return self.facts.is_ported or any(is_for_ports(one.name) for one in self.facts.imports)

    @cached_property
    def has_host_loop(self) -> bool:
        """Whether its loop stays on the host by intention: nothing in it is a fault."""
        is_of_library = any(one.name.startswith("porting.integrations") for one in self.facts.imports)
        return is_of_library or bool(self.host_ports)

    @cached_property
    def has_device_calls(self) -> bool:
        """Whether calls of a plain module go to a device, which leave it the object that it is."""
        return any(call.name == "porting.integrations.DeviceCalls" for call in self.facts.calls)

    @cached_property
    def host_ports(self) -> List[ProgramObject]:
        """The ports whose loss and optimizer are on the host."""
        return [port for port in self.ports if _is_host_loop(port)]

    @cached_property
    def ports(self) -> List[ProgramObject]:
        """The ports that it makes."""
        return self.facts.list_program_objects(Kind.PORT)

    @cached_property
    def training_ports(self) -> List[ProgramObject]:
        """The ports that train: not those for inference, nor what only makes one."""
        made = [port for port in self.ports if port.name.endswith(("trainingModel", "to_ipu"))]
        used = {
            part
            for call in self.facts.calls
            if not call.is_method("inference")
            for one in call.receiver
            for part in (self.go_through(one) if one.kind is Kind.MODULE else (one,))
        }
        return [port for port in made if port.name.endswith("trainingModel") or port in used]

    @cached_property
    def ported_modules(self) -> Set[ProgramObject]:
        """The modules that are in a port that trains."""
        return collect_modules(self.training_ports)

    @cached_property
    def trained_modules(self) -> Set[ProgramObject]:
        """The modules that an optimizer has; none where that is not known."""
        optimizers = self.facts.list_program_objects(Kind.OPTIMIZER)
        return {part for optimizer in optimizers for part in self.go_through(optimizer) if part.kind is Kind.MODULE}

    @cached_property
    def calls_by_node(self) -> Dict[ast.AST, Call]:
        """The calls by the nodes of the source that make them."""
        return {call.node: call for call in self.facts.calls}

    @cached_property
    def statements_by_function(self) -> Dict[Tuple[str, str], List[Statement]]:
        """The statements by file and function."""
        found: Dict[Tuple[str, str], List[Statement]] = {}
        for statement in self.facts.statements:
            found.setdefault((statement.place.file, statement.where.function), []).append(statement)
        return found

    @cached_property
    def module_calls(self) -> List[Call]:
        """The calls of modules, and of their methods, outside `forward`."""
        return [call for call in self.facts.calls if call.is_on(Kind.MODULE) and not call.where.in_forward]

    @cached_property
    def is_of_poptorch(self) -> bool:
        """Whether it uses PopTorch by itself, whose tracing helps itself where ours asks for more."""
        return any(port.name.startswith("poptorch.") for port in self.ports)

    @cached_property
    def reach(self) -> Reach:
        """What of it programs come to, and which files are for it."""
        return Reach(self.facts)

    # ---------------------------------------------------------------- program objects

    def go_through(self, program_object: ProgramObject) -> Tuple[ProgramObject, ...]:
        """List a program object and all that it is made of."""
        if program_object not in self._parts:
            self._parts[program_object] = tuple(go_through_parts((program_object,)))
        return self._parts[program_object]

    def is_made_of(self, objects: Iterable[ProgramObject], wanted: Iterable[ProgramObject]) -> bool:
        """Tell whether one of the objects is, or is made of, one of those wanted."""
        sought = set(wanted)
        return any(part in sought for one in objects for part in self.go_through(one))

    @cached_property
    def loss_parts(self) -> Set[ProgramObject]:
        """The tensors that losses are computed of, beginning with a model's outputs; none where the host does that."""
        losses = [] if self.host_ports or self.has_device_calls else self.facts.list_program_objects(Kind.LOSS)
        return collect_loss_parts(losses)

    # ---------------------------------------------------------------- where

    def contains(self, node: ast.AST, inner: ast.AST) -> bool:
        """Tell whether a node stands in another one."""
        if node not in self._nodes:
            self._nodes[node] = frozenset(map(id, list_nodes(node)))
        return id(inner) in self._nodes[node]

    def contains_line(self, node: ast.stmt, line: int) -> bool:
        """Tell whether a function or class goes over a line."""
        return bool(node.lineno <= line <= (node.end_lineno or node.lineno))

    def is_excluded(self, where: Where) -> bool:
        """Tell whether it runs only where no port does."""
        is_for_others = bool(where.ways) and all(excludes_ports(guards) for guards, _ in where.ways)
        return is_for_others or self._is_beside(self.ports, where)

    def _is_beside(self, ports: List[ProgramObject], where: Where) -> bool:
        makers = [port.call.where.guards for port in ports if port.call is not None]
        guards = where.guards
        if where.in_forward:
            # a `forward` is walked for the first of its callers: what holds around that one tells nothing of the others
            guards = tuple(guard for guard in guards if id(guard) in self._inside_forwards)
        return bool(makers) and all(are_exclusive(maker, guards) for maker in makers)

    @cached_property
    def _inside_forwards(self) -> Set[int]:
        bodies = {statement.where.body for statement in self.facts.statements if statement.where.in_forward}
        return {id(part) for body in bodies if body is not None for part in list_nodes(body)}

    def is_skipped(self, place: Place) -> bool:
        """Tell whether a place is in the `__main__` part of an imported file, which does not run."""
        parts = (part for part in self.facts.main_parts if part.file == place.file)
        return any(part.line <= place.line <= (part.end_line or part.line) for part in parts)

    def is_judged(self, place: Place, *, of_steps: bool) -> bool:
        """Tell whether what stands at a place is the port's business, in a program that has one."""
        facts = self._facts_by_place.get(place, [])
        steps = self.list_calls(place) if of_steps else []
        if steps:
            return any(map(self.concerns_port, steps))
        return not facts or not all(self.is_excluded(fact.where) for fact in facts)

    def is_missed(self, place: Optional[Place]) -> bool:
        """Tell whether no program is known that comes to a place, though one comes to where a port is made."""
        return self.reach.is_missed(self._facts_by_place.get(place, ()) if place is not None else ())

    def list_calls(self, place: Place) -> List[Call]:
        """List the calls that stand at a place."""
        return [fact for fact in self._facts_by_place.get(place, []) if isinstance(fact, Call)]

    @cached_property
    def _facts_by_place(self) -> Dict[Place, List[Union[Call, Statement]]]:
        found: Dict[Place, List[Union[Call, Statement]]] = {}
        facts: List[Union[Call, Statement]] = [*self.facts.calls, *self.facts.statements, *self.facts.reads]
        for fact in facts:
            found.setdefault(fact.place, []).append(fact)
        return found

    @cached_property
    def port_calls(self) -> List[Call]:
        """The calls of ports that train."""
        called = [call for call in self.facts.calls if not call.name.startswith(".") and not call.where.in_forward]
        return [call for call in called if self._calls_port(call) and not self.is_excluded(call.where)]

    def _calls_port(self, call: Call) -> bool:
        """Tell whether a port is called, or a module around one."""
        ports = set(self.training_ports)
        wrapped = (part for one in call.receiver if one.kind is Kind.MODULE for part in self.go_through(one))
        return bool(ports & {*call.receiver, *wrapped})

    @cached_property
    def backward_calls(self) -> List[Call]:
        """The calls of `backward`, however they are written."""
        return [call for call in self.facts.calls if not call.where.in_forward and is_backward(call)]

    def tell_uncalled(self, call: Call, others: Iterable[Call]) -> str:
        """Say that no program is known that comes to a call and to one of others, where programs are known."""
        programs = {program for other in others for program in other.where.programs}
        if programs & call.where.programs or not programs | call.where.programs:
            return ""
        return "no program was found that comes here and joins its instances"

    def may_meet(self, one: Where, other: Where) -> bool:
        """Tell whether one run of a program may come to both."""
        return share_program(one, other) and not are_exclusive(one.guards, other.guards)

    def list_met(self, call: Call) -> List[ProgramObject]:
        """List what a call is on in some run: nothing that is made only where the call is not."""
        made = ((one, one.call) for one in call.receiver)
        return [one for one, maker in made if maker is None or self.may_meet(maker.where, call.where)]

    @cached_property
    def _port_loops(self) -> Set[ast.AST]:
        return {loop.node for call in self.port_calls for loop in call.where.loops}

    @cached_property
    def has_trainer(self) -> bool:
        """Whether a library's trainer has the loop over batches."""
        return any(_is_of_library(loop) for call in self.facts.calls for loop in call.where.loops)

    @cached_property
    def step_functions(self) -> Set[str]:
        """The functions that make one step, and are called in no loop that is known: a closure, a trainer's method."""
        return {call.where.function for call in self.backward_calls if call.where.function and not call.where.loops}

    @cached_property
    def guards_of_steps(self) -> Set[ast.expr]:
        """The conditions under which all optimizers of a loop make their steps, as where gradients are accumulated."""
        places = [call.where for call in self.optimizer_steps]
        return {
            guard
            for where in places
            for guard in where.guards
            if not any(guard not in other.guards and _share_rounds(where, other) for other in places)
        }

    @cached_property
    def optimizer_steps(self) -> List[Call]:
        """The calls of `step` of optimizers, and of what scales their gradients."""
        return [call for call in self.facts.list_methods("step") if call.is_on(Kind.OPTIMIZER, Kind.SCALER)]

    def concerns_port(self, call: Call) -> bool:
        """Tell whether a call of the training loop is one of a port's: always, in a program without one.

        A plain loop beside a port, as for another device, is none of its business.
        """
        if not self.is_ported:
            return True
        if self.has_host_loop or not self.training_ports or self.is_excluded(call.where):
            return False
        if self._is_beside(self.training_ports, call.where):
            return False
        objects = (*call.receiver, *(one for argument in call.arguments for one in argument))
        if self.is_made_of(objects, self.training_ports):
            return True
        if any(map(is_of_no_module, call.receiver)):
            return False
        if self._is_of_another_optimizer(call):
            return False
        modules = collect_modules(objects)
        are_known = bool(modules) and all(part.call is not None for part in modules)
        if are_known and not share_module(objects, self.training_ports):
            return False
        loops = call.where.loops
        if loops and loops[-1].node in self._port_loops:
            return True
        return not self.port_calls and self.is_made_of(objects, self.ported_modules)

    def _is_of_another_optimizer(self, call: Call) -> bool:
        """Tell whether an optimizer is called that no port has, of another model, though each port has one."""
        optimizers = [one for one in call.receiver if one.kind is Kind.OPTIMIZER and one.call is not None]
        given = [{part for part in port.parts if part.kind is Kind.OPTIMIZER} for port in self.training_ports]
        is_other = bool(optimizers) and all(given) and not any(own & set(optimizers) for own in given)
        return is_other and not share_module(optimizers, self.training_ports)

    def may_be_bare(self, call: Call) -> bool:
        """Tell whether a call of the step may be one of the bare model, which on another way is in a port."""
        objects = (*call.receiver, *(one for argument in call.arguments for one in argument))
        called = (Kind.PORT, Kind.MODULE)
        parts = go_through_parts(objects, follow=lambda one: () if one.kind in called else one.parts)
        return {part.kind for part in parts}.issuperset(called)

    def find_batch_loop(self, where: Where) -> Optional[Loop]:
        """Find the innermost loop around a fact whose rounds are steps, or batches of a validation."""
        return next((loop for loop in reversed(where.loops) if self._goes_through_batches(loop)), None)

    def _goes_through_batches(self, loop: Loop) -> bool:
        is_of_batches = loop.kind is LoopKind.BATCHES and (bool(loop.objects) or _is_of_library(loop))
        return loop.node in self._step_loops or is_of_batches

    @cached_property
    def _step_loops(self) -> Set[ast.AST]:
        """The innermost loops around backward passes, steps and calls of models."""
        steps = (*self.backward_calls, *self.optimizer_steps)
        innermost = [call.where.loops[-1] for call in steps if call.where.loops]
        for call in self.facts.calls:
            is_call = call.is_on(Kind.MODULE, Kind.PORT) and not call.name.startswith(".") and not call.where.in_forward
            loop = call.where.loops[-1] if is_call and call.where.loops else None
            is_over_layers = loop is not None and bool(set(loop.objects) & set(call.receiver))
            if loop is not None and loop.kind is not LoopKind.EPOCHS and not is_over_layers:
                innermost.append(loop)
        return {loop.node for loop in innermost}

    # ---------------------------------------------------------------- source

    @property
    def files(self) -> List[str]:
        """The files of the program, and the cells of its notebooks."""
        return list(self._units)

    @cached_property
    def files_of_loops(self) -> Dict[ast.AST, str]:
        """The file, or cell, of each loop."""
        trees = ((file, self.parse(file)) for file in self.files)
        return {
            node: file
            for file, tree in trees
            if tree is not None
            for node in list_statements(tree)
            if isinstance(node, (ast.For, ast.While))
        }

    def read_lines(self, file: str) -> Tuple[str, ...]:
        """Read the lines of a file, or of a notebook's cell."""
        return self._units[file].lines if file in self._units else ()

    def read_text(self, place: Place) -> str:
        """Read what stands at a place, in one line."""
        return self._units[place.file].text_at(place) if place.file in self._units else ""

    def parse(self, file: str) -> Optional[ast.Module]:
        """Give the syntax of a file of the program."""
        return self._units[file].tree if file in self._units else None

    # ---------------------------------------------------------------- findings

    def report(
        self,
        code: str,
        place: Place,
        *,
        fault: str = "",
        note: str = "",
        label: str = "",
        remedy: str = "",
        guess: str = "",
    ) -> Finding:
        """Make a finding: a fault in a program with a port, what a port will need in one without.

        A `remedy` stands in the place of the usual help of the code. A finding that rests on a `guess`, as nothing but
        a name tells what something is, is a note that says so.
        """
        wording = read_wordings()[code]
        usual = CODES[code].severity
        plain = Severity.WARNING if usual is Severity.ERROR else Severity.NOTE
        helps = [remedy or wording.help]
        if wording.shown is not None and not remedy:
            helps.append(f"`porting recipe show {wording.shown[0]} --step {wording.shown[1]}` shows it")
        message = fault or (CODES[code].title if self.is_ported else wording.needs)
        found = Finding(code, message, place, label, [note] if note else [], helps, usual if self.is_ported else plain)
        return make_guess(found, guess) if guess else found


def _share_rounds(one: Where, other: Where) -> bool:
    """Tell whether one round of a loop may come to both."""
    return one.loops[-1:] == other.loops[-1:] and not are_exclusive(one.guards, other.guards)


def _is_of_library(loop: Loop) -> bool:
    """Tell whether a loop is a library's, around the function that it calls."""
    return isinstance(loop.node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _is_host_loop(port: ProgramObject) -> bool:
    keywords = port.call.node.keywords if port.call is not None else []
    return any(word.arg == "loop" and getattr(word.value, "value", None) == "host" for word in keywords)
