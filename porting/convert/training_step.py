"""Hold a training step as a conversion has found it, and the reason of one that is left as it is."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import List, Optional, Set

from porting.convert.bindings import Undecided
from porting.convert.names import substitute
from porting.convert.trees import Function, ProgramFile, write_node

__all__ = ["Helper", "StepError", "TrainingStep"]

_KEEP_LOOP = "convert with `--style minimal`, which keeps the loop, or make the step by hand"


class StepError(Exception):
    """A step that is left as it is: the reason, the place, and what a person must do."""

    def __init__(self, file: ProgramFile, node: ast.AST, reason: str, remedy: str = _KEEP_LOOP) -> None:
        super().__init__(reason)
        self.left = Undecided(file.path, getattr(node, "lineno", 1), reason, remedy)


@dataclass(eq=False)
class Helper:
    """A function of the program that calls the model for the step: what it returns, and when it does."""

    file: ProgramFile
    function: Function
    unit: ast.stmt
    """The statement of the model's call, with its other branches."""
    returned: ast.Return
    elements: List[str]
    calls: List[ast.Call]
    """Its calls in the step."""
    tests: List[str]
    """What has to hold for the model's call to be this one."""


@dataclass(eq=False)
class TrainingStep:
    """A training step, as it stands in the program; expressions are those of the function that it stands in."""

    file: ProgramFile
    function: Optional[Function]
    backward: ast.Call
    call: ast.Call
    """The model's call."""
    optimizer: ast.expr
    unit: ast.stmt
    """The statement in which the model, or the helper, is called."""
    loss: ast.expr
    outputs: List[str] = field(default_factory=list)
    """The names of what the model returns."""
    is_nested: bool = False
    """Whether the model's call is a part of an expression, so that its output has no name in the loop."""
    host: List[ast.stmt] = field(default_factory=list)
    """What a device's call does itself, and what scalers do for it."""
    loss_units: List[ast.stmt] = field(default_factory=list)
    prelude: List[ast.stmt] = field(default_factory=list)
    """What a sum begins with before the model is called: `loss = 0`."""
    labels: List[str] = field(default_factory=list)
    constants: Set[str] = field(default_factory=set)
    """Names that the loss reads beside output and labels."""
    position: Optional[ast.stmt] = None
    """The statement in whose place the device is called; that of the forward call where it is None."""
    max_norm: Optional[ast.expr] = None
    helper: Optional[Helper] = None
    accumulation: Optional[ast.For] = None
    """A loop of backward passes before one step, which a port goes through once."""

    @property
    def model(self) -> str:
        """The model, as it is called."""
        function = self.call.func
        is_method = isinstance(function, ast.Attribute) and function.attr == "forward"
        return write_node(function.value if isinstance(function, ast.Attribute) and is_method else function)

    @property
    def scope(self) -> ast.AST:
        """The function that the step stands in, or the top level of its file."""
        return self.function or self.file.tree

    @property
    def loss_name(self) -> str:
        """The name that the loop has for the loss."""
        return self.loss.id if isinstance(self.loss, ast.Name) else "loss"

    def read_unit(self, unit: ast.stmt) -> ast.stmt:
        """Return a statement of the loss, in which the output has a name if it has none in the loop."""
        if unit is not self.unit or not self.is_nested:
            return unit
        return ast.parse("\n".join(substitute(unit, {write_node(self.call): self.outputs[0]}))).body[0]
