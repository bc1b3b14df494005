"""Hold what is known of the program that is converted: its files, the facts of the walk, and the sites of its training.

Conversions ask it where models are called and where the names they are called by are bound.
"""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Type, TypeVar

from porting.convert.sites import Role, Site
from porting.convert.trees import Function, ProgramFile, list_bases, write_node
from porting.diagnostics import ExecutableError
from porting.source.facts import Call, Facts, Kind, ProgramObject
from porting.source.project import Project, read_programs
from porting.source.walk import collect_facts

__all__ = ["Found", "Program", "read_program"]

Node = TypeVar("Node", bound=ast.AST)

_OF_OPTIMIZER = {"step": Role.STEP, "zero_grad": Role.ZERO_GRAD}
_METHODS = {Role.BACKWARD: "backward", Role.STEP: "step", Role.ZERO_GRAD: "zero_grad", Role.SCHEDULE: "step"}
_WRAPPERS = (".DataParallel", ".DistributedDataParallel", "torch.compile")
_CLIPS = ("torch.nn.utils.clip_grad_norm_", "torch.nn.utils.clip_grad_value_")


@dataclass(frozen=True, eq=False)
class Found:
    """A site with the call that it is, in its file."""

    site: Site
    file: ProgramFile
    call: ast.Call


@dataclass
class Program:
    """A program that is converted: `script` is the file that is started, `root` the folder of the project."""

    root: str
    script: str
    project: Project
    facts: Facts
    files: Dict[str, ProgramFile] = field(default_factory=dict)
    sites: List[Found] = field(default_factory=list)
    _orders: Dict[int, int] = field(default_factory=dict)
    _in_forward: Optional[List[Tuple[ProgramFile, Function]]] = None

    def list_sites(self, *roles: Role) -> List[Found]:
        """List the sites of some roles in the order of the facts."""
        return [found for found in self.sites if found.site.role in roles]

    def find_file(self, path: str) -> Optional[ProgramFile]:
        """Find a file of the project by its path; None for a library's."""
        return self.files.get(os.path.realpath(path))

    @property
    def main(self) -> ProgramFile:
        """The file that is started."""
        return self.files[os.path.realpath(self.script)]

    def add_sites(self, sites: Iterable[Site]) -> None:
        """Add the sites that a run has shown; those that are known already stay as they are."""
        known = {(id(found.call), found.site.role) for found in self.sites}
        # a scaler's step makes that of the optimizer which it is given
        known |= {(id(call.node), Role.STEP) for call in self.facts.calls if call.is_on(Kind.SCALER)}
        for site in sites:
            file = self.find_file(site.path)
            call = None if file is None else file.find_call(site.line, site.column, _METHODS.get(site.role, ""))
            if file is not None and call is not None and (id(call), site.role) not in known:
                self.sites.append(Found(site, file, call))

    def list_facts(self, *nodes: ast.AST) -> List[Call]:
        """List what the walk says of some calls."""
        return [call for call in self.facts.calls if call.node in nodes]

    def list_forward_functions(self) -> List[Tuple[ProgramFile, Function]]:
        """List the functions of the program that a model's call runs."""
        if self._in_forward is None:
            bodies = {call.where.body: call.where.file for call in self.facts.calls if call.where.in_forward}
            found = [(self.find_file(path), body) for body, path in bodies.items()]
            kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
            self._in_forward = [(file, body) for file, body in found if file is not None and isinstance(body, kinds)]
        return self._in_forward

    def iter_callers(self, file: ProgramFile, function: Function) -> Iterator[Tuple[ProgramFile, ast.Call]]:
        """Iterate over the calls of one of the program's functions, as the walk has followed them."""
        name = file.name_function(function)
        owner = file.find_class(function)
        seen = set()
        for call in self.facts.calls:
            is_named = name == call.name or name in call.other_names
            is_method = owner is not None and call.is_method(function.name) and self._may_be_on(call, owner)
            if (is_named or is_method) and id(call.node) not in seen:
                seen.add(id(call.node))
                caller = self.find_file(call.where.file)
                if caller is not None:
                    yield caller, call.node

    def _may_be_on(self, call: Call, owner: ast.ClassDef) -> bool:
        """Tell whether a method's call may be on a class: one on `self` is on its own class or a heir."""
        kinds = {one.name.rpartition(".")[2] for one in call.receiver if one.kind is Kind.MODULE and not one.is_guess}
        own = {id(node) for kind in kinds for _file, node in self.iter_classes(kind)}
        if own:
            return id(owner) in own
        function, caller = call.node.func, self.find_file(call.where.file)
        if caller is None or not (isinstance(function, ast.Attribute) and write_node(function.value) == "self"):
            return True
        around = caller.find_class(call.node)
        if around is None:
            return False
        families = [{id(node) for _file, node in self.iter_classes(one.name)} for one in (around, owner)]
        return id(owner) in families[0] or id(around) in families[1]

    def iter_makings(self, call: ast.Call) -> Iterator[Tuple[ProgramFile, ast.Call]]:
        """Iterate over the calls that make the models which a call may call, or which hold what it calls."""
        modules = self.facts.list_program_objects(Kind.MODULE)
        inner = [one for fact in self.list_facts(call) for one in fact.receiver]
        whole: List[ProgramObject] = []
        while inner:
            one = inner.pop()
            holders = [made for made in modules if one in made.parts]
            inner += holders
            whole += [] if holders or one in whole else [one]
        for made in whole:
            file = None if made.place is None else self.find_file(made.place.file)
            if file is not None and made.place is not None:
                node = file.find_call(made.place.line, (made.place.column or 0) - 1)
                if node is not None:
                    yield file, node

    def get_order(self, node: ast.AST, choose: Callable[..., int] = max) -> int:
        """Return when the walk came to the last call in a statement, or to another one; 0 for one without."""
        if not self._orders:
            # of what a program comes to; functions that nothing calls are walked last
            self._orders = {id(call.node): call.order for call in self.facts.calls if call.where.programs}
        return choose((self._orders[id(one)] for one in ast.walk(node) if id(one) in self._orders), default=0)

    def iter_classes(self, name: str) -> Iterator[Tuple[ProgramFile, ast.ClassDef]]:
        """Iterate over the classes of a name, and over their bases in the program."""
        for file, node in self.iter_nodes(ast.ClassDef):
            if node.name == name:
                yield file, node
                for base in list_bases(node):
                    if base != name:
                        yield from self.iter_classes(base)

    def iter_nodes(self, kind: Type[Node]) -> Iterator[Tuple[ProgramFile, Node]]:
        """Iterate over the nodes of a kind in all files."""
        for file in self.files.values():
            for node in ast.walk(file.tree):
                if isinstance(node, kind):
                    yield file, node


def read_program(root: str, script: str) -> Program:
    """Read a script and all that it imports of its project; nothing is run."""
    project = read_programs([script])
    facts = collect_facts(project)
    program = Program(os.path.realpath(root), script, project, facts)
    for module in project.modules.values():
        if module.units and module.path.endswith(".py"):
            program.files[os.path.realpath(module.path)] = ProgramFile(module.units[0], module.name)
    if program.find_file(script) is None:
        found = next(iter(project.findings), None)
        is_notebook = script.endswith(".ipynb")
        fault = "is a notebook" if is_notebook else "could not be read"
        remedy = f"make a script of it: `jupyter nbconvert --to script {script}`"
        raise ExecutableError.of(
            "E020",
            message=f"`{script}` {fault}" + (f": {found.message}" if found is not None else ""),
            place=None if found is None else found.place,
            help=remedy if is_notebook else "convert a script that this Python can parse",
        )
    program.sites = list(_iter_sites(program, program.facts.calls, _collect_trained(program.facts)))
    return program


def _iter_sites(program: Program, calls: Sequence[Call], trained: Sequence[ProgramObject]) -> Iterator[Found]:
    seen = set()
    # what no program comes to is not its training, unless the walk has found no way at all
    reached = [call for call in calls if call.where.programs]
    is_known = any(_find_role(call, trained) is Role.FORWARD for call in reached)
    for call in reached if is_known else calls:
        role = _find_role(call, trained)
        file = program.find_file(call.where.file)
        if role is None or file is None or (id(call.node), role) in seen:
            continue
        seen.add((id(call.node), role))
        place = call.place
        owner = next((id(one) for one in (*call.receiver, *call.result)), 0)
        site = Site(role, os.path.realpath(place.file), place.line, (place.column or 0) - 1, owner, call.name)
        yield Found(site, file, call.node)


def _find_role(call: Call, trained: Sequence[ProgramObject]) -> Optional[Role]:
    if call.where.in_forward:
        return None
    method = call.name[1:] if call.name[:1] == "." else ""
    if method == "backward" and call.is_on(Kind.LOSS, Kind.OUTPUT, Kind.TENSOR, Kind.SCALER):
        return Role.BACKWARD
    if method in _OF_OPTIMIZER and call.is_on(Kind.OPTIMIZER):
        return _OF_OPTIMIZER[method]
    if method == "step" and call.is_on(Kind.SCHEDULER):
        return Role.SCHEDULE
    if call.name in _CLIPS:
        return Role.CLIP
    if any(one.kind is Kind.OPTIMIZER for one in call.result):
        return Role.OPTIMIZER
    if any(one.kind is Kind.LOADER for one in call.result):
        return Role.LOADER
    # a method of the model's, as `self.make_layers(...)`, has a name of its own
    is_call = any(one.kind is Kind.MODULE and one.name == call.name for one in call.receiver)
    if is_call and _is_model(call, trained):
        return Role.EVALUATION if call.where.without_gradients else Role.FORWARD
    return None


def _is_model(call: Call, trained: Sequence[ProgramObject]) -> bool:
    """Tell whether a call is of a model: of what an optimizer trains, or of a class of the user's."""
    wrapped = [part for one in call.receiver if one.name.endswith(_WRAPPERS) for part in one.parts]
    if any(one in trained for one in (*call.receiver, *wrapped)):
        return True
    return not trained and not call.name.startswith("torch.nn.")


def _collect_trained(facts: Facts) -> List[ProgramObject]:
    """Collect the modules that optimizers were given, and those that these are parts of."""
    waiting = [part for one in facts.list_program_objects(Kind.OPTIMIZER) for part in one.parts]
    found: List[ProgramObject] = []
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.append(one)
            waiting += one.parts
    return found
