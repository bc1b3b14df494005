"""Hold the facts of a program that rules read: its objects, calls and statements, and where each of them stands.

A *program object* is what a value may be: the model, its optimizer, a batch. The walk through a program makes one where
it is constructed and carries it through assignments, attributes of `self`, arguments and results of the program's
functions. A value may be several, as after a branch, and none where nothing is known of it. While facts are collected
the walk amends them, as objects and calls point to each other; rules only read them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Dict, FrozenSet, List, Mapping, Optional, Tuple

from porting.diagnostics import Place

__all__ = [
    "Call",
    "Facts",
    "Import",
    "Kind",
    "Loop",
    "LoopKind",
    "ProgramObject",
    "ProgramObjects",
    "Statement",
    "Way",
    "Where",
]


class Kind(str, Enum):
    """What a value is, as far as a port cares."""

    MODULE = "module"
    """An `nn.Module` of the user's or of a library, not ported."""
    PORT = "port"
    """What `to_ipu`, `poptorch.trainingModel` or `poptorch.inferenceModel` returned; its name tells which."""
    CRITERION = "criterion"
    """A loss module, or a function of the user's that returns a loss."""
    OPTIMIZER = "optimizer"
    SCHEDULER = "scheduler"
    SCALER = "scaler"
    """A `GradScaler`."""
    DATASET = "dataset"
    SAMPLER = "sampler"
    LOADER = "loader"
    """torch's `DataLoader`."""
    PORT_LOADER = "port-loader"
    """PopTorch's or porting's loader."""
    BATCH = "batch"
    """What a loader yields, and its parts."""
    OUTPUT = "output"
    """What a module or a port returned, and what was computed of it."""
    LOSS = "loss"
    """What a criterion returned, and what was computed of it."""
    TENSOR = "tensor"
    OPTIONS = "options"
    """`PortOptions` or `poptorch.Options`."""
    PARAMETERS = "parameters"
    STATE = "state"
    """A `state_dict`, or a dictionary that holds one."""
    DEVICE = "device"
    WRITER = "writer"
    """What writes files or logs: a `SummaryWriter`, an open file, a logger of experiments."""
    OTHER = "other"
    """A program object of a library that no rule has a word for; its name tells what it is."""


@dataclass(eq=False)
class ProgramObject:
    """A value that the program makes: its kind, what made it, where, and of which other objects.

    `name` is the qualified name of what was called: `torch.optim.SGD`, `train.Net`, `poptorch.trainingModel`. `parts`
    are the objects that it was made of: an optimizer's module, a port's module, optimizer and options, a loader's
    dataset, the module that computed an output, the criterion and outputs of a loss.
    """

    kind: Kind
    name: str = ""
    place: Optional[Place] = None
    parts: Tuple[ProgramObject, ...] = ()
    call: Optional[Call] = None
    """The call that made it, whose keywords tell its settings."""
    is_guess: bool = False
    """Whether nothing but a name tells what it is."""


ProgramObjects = Tuple[ProgramObject, ...]


class LoopKind(str, Enum):
    """What a loop goes through."""

    EPOCHS = "epochs"
    BATCHES = "batches"
    OTHER = "other"


@dataclass(eq=False)
class Loop:
    """A loop around a fact, and what it goes through."""

    node: ast.AST
    kind: LoopKind
    objects: ProgramObjects = ()


Way = Tuple[Tuple[ast.expr, ...], FrozenSet[str]]
"""A way to a fact: its guards, and the programs that take it."""


@dataclass(eq=False)
class Where:
    """Where a fact stands: around it in the source, and around it when it runs.

    `loops` and `guards` go through the calls of the program's own functions: a step in `train_one_epoch` stands in the
    loop over epochs that calls it. `guards` are the tests of the `if`s that have to hold, negated ones wrapped in
    `ast.Not`.
    """

    file: str
    function: str = ""
    """The qualified name of the function of the program's that the fact stands in; empty at a module's top level."""
    loops: Tuple[Loop, ...] = ()
    guards: Tuple[ast.expr, ...] = ()
    in_forward: bool = False
    """Whether a module's `forward`, what it calls, or a function that a port moves there is what runs here."""
    without_gradients: bool = False
    """Whether it stands under `torch.no_grad()` or `inference_mode()`."""
    in_evaluation: bool = False
    """Whether the last `train()` or `eval()` on the way here was an `eval()`."""
    ways: Tuple[Way, ...] = ()
    """The ways that lead here; `guards` are those that all have."""

    @cached_property
    def programs(self) -> FrozenSet[str]:
        """The programs that come here, by their files; none is known of what nothing calls."""
        return frozenset(program for way in self.ways for program in way[1])

    body: Optional[ast.AST] = field(default=None, compare=False, repr=False)
    """The node of that function."""


@dataclass(eq=False)
class Call:
    """A call: of what, on what, with what, and what comes out.

    `name` is the qualified name (`torch.nn.functional.cross_entropy`, `train.evaluate`) of a function, class or object
    that is called (`train.Net` for `model(x)`, whose `receiver` is the model); for a method it is a dot and its name,
    as `.backward`, and `receiver` what it is called on.
    """

    node: ast.Call
    place: Place
    name: str
    where: Where
    receiver: ProgramObjects = ()
    arguments: Tuple[ProgramObjects, ...] = ()
    keywords: Mapping[str, ProgramObjects] = field(default_factory=dict)
    result: ProgramObjects = ()
    other_names: Tuple[str, ...] = ()
    """What else it may call, where that is not certain."""
    order: int = 0
    """Counts the facts in the order in which the program would come to them."""

    @property
    def given(self) -> ProgramObjects:
        """The objects of all its arguments."""
        return tuple(one for objects in (*self.arguments, *self.keywords.values()) for one in objects)

    def is_method(self, *names: str) -> bool:
        """Tell whether it calls one of these methods of something."""
        return self.name[:1] == "." and self.name[1:] in names

    def is_on(self, *kinds: Kind) -> bool:
        """Tell whether what it is called on may be of one of these kinds."""
        # asked by each rule of each call, of which most are on nothing
        return bool(self.receiver) and any(one.kind in kinds for one in self.receiver)


@dataclass(eq=False)
class Statement:
    """A statement or expression other than a call that rules look at: an assignment, a comparison, an `if`, a `print`.

    `objects` are those of the value that it assigns, tests or compares. `targets` are the objects that are assigned to:
    what the name held before, or what the attribute or element belongs to.
    """

    node: ast.AST
    place: Place
    where: Where
    objects: ProgramObjects = ()
    targets: ProgramObjects = ()
    asks: str = ""
    """What Python asks the tensors of the node for, if the node is an expression of `Facts.reads`."""


@dataclass(frozen=True, eq=False)
class Import:
    """An import of a module: its qualified name, and whether a `try` or an `if` guards it."""

    node: ast.AST
    place: Place
    name: str
    is_guarded: bool
    where: Where


@dataclass
class Facts:
    """All that happens in a program, each fact once for each place, in the order in which the program comes to them."""

    calls: List[Call] = field(default_factory=list)
    statements: List[Statement] = field(default_factory=list)
    reads: List[Statement] = field(default_factory=list)
    """The expressions whose tensors Python asks for their `value`, their `text` or, by a mask, for a new `shape`.

    Of weights it asks for `data` or `grad`, and of a module's own lists and dictionaries for its `parts`.
    """
    imports: List[Import] = field(default_factory=list)
    objects: List[ProgramObject] = field(default_factory=list)
    unread: List[Call] = field(default_factory=list)
    """Calls of what no file that was read can be: an import by a name that is computed, or a text that is run."""
    left: List[str] = field(default_factory=list)
    """The files of which a part was left, as it was nested too deeply."""
    main_parts: List[Place] = field(default_factory=list)
    """Where the `__main__` parts of imported files stand, which an import does not run."""
    functions: List[ast.AST] = field(default_factory=list)
    """The functions that are defined; those that were entered are `entered`."""
    entered: List[ast.AST] = field(default_factory=list)
    _listed: Dict[Tuple[Kind, ...], List[ProgramObject]] = field(default_factory=dict)
    _methods: Dict[str, List[Call]] = field(default_factory=dict)

    def list_program_objects(self, *kinds: Kind) -> List[ProgramObject]:
        """List the objects of these kinds, in the order in which they are made; rules ask for them of each call."""
        if kinds not in self._listed:
            self._listed[kinds] = [one for one in self.objects if one.kind in kinds]
        return self._listed[kinds]

    def list_methods(self, *names: str) -> List[Call]:
        """List the calls of methods of these names, in the order in which they are made."""
        if not self._methods:
            for call in self.calls:
                self._methods.setdefault(call.name, []).append(call)
        found = [call for name in names for call in self._methods.get(f".{name}", ())]
        return found if len(names) == 1 else sorted(found, key=lambda call: call.order)

    @property
    def is_ported(self) -> bool:
        """Whether the program makes a port anywhere."""
        return any(one.kind is Kind.PORT for one in self.objects)
