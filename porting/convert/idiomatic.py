"""Plan a port whose call is the training step: the loss moves into it, and the optimizer is handed over.

The loop keeps two branches: what it did stays as it was for every other device, and a port makes the step by one call.
A program whose step cannot be made so is left as it is, with the reason.
"""

from __future__ import annotations

import ast
from typing import Dict, List, Sequence, Set

from porting.convert.bindings import Binding, Undecided, is_looked_at
from porting.convert.changing_values import list_changes
from porting.convert.device_enum import find_enum
from porting.convert.device_option import WHY_ENVIRONMENT, DeviceOption, add_device_option
from porting.convert.editing import FileEdits
from porting.convert.evaluation import port_evaluations
from porting.convert.guards import guard_statements
from porting.convert.loss_cut import read_outputs
from porting.convert.losses import PortedLoss, make_loss
from porting.convert.minimal import MOST_SHAPES, import_guarded
from porting.convert.names import collect_reads, collect_writes, drop_moves, substitute
from porting.convert.places import PortPlace, find_place
from porting.convert.program import Program
from porting.convert.sites import Role
from porting.convert.steps import find_step
from porting.convert.training_step import Helper, StepError, TrainingStep
from porting.convert.trees import ProgramFile, write_node

__all__ = ["choose_option", "port_steps"]

_WHY_STEP = "a port's call makes the whole step"
_WIDTH = 96
_LOOKED_AT = "the model is copied or saved as a whole, or its type is asked for, behind the place of the port"
_REFUSAL = 'raise ValueError("a port makes a step in each call: accumulate by its options")'


def choose_option(program: Program, edits: Dict[str, FileEdits]) -> DeviceOption:
    """Plan the choice of the device: by the project's own enum where the port can ask it, else by `--device`."""
    found = find_enum(program)
    if found is not None:
        try:
            place = find_place(program, find_step(program))
        except StepError:
            return add_device_option(program, edits)
        test = found.test_at(place.file, place.anchor)
        option = found.find_option(program, test) if test else None
        if option is not None:
            found.add_member(edits[found.file.path])
            return option
    return add_device_option(program, edits)


def port_steps(program: Program, option: DeviceOption, edits: Dict[str, FileEdits]) -> List[Undecided]:
    """Plan the edits that let a port make the program's training steps; return what is left."""
    try:
        step = find_step(program)
        place = find_place(program, step)
        if is_looked_at(program, Binding(place.file, place.model, before=place.anchor)):
            raise StepError(step.file, step.call, _LOOKED_AT, "save its `state_dict()`, and copy the plain model")
        changes = list_changes(program, [*step.loss_units, step.file.get_statement(step.backward)])
        if changes:
            return changes
        loss = make_loss(step, place)
        again = _list_again(step)
        imports = {file.path: {"PortedModel"} for file in port_evaluations(program, step, edits)}
    except StepError as error:
        return [error.left]
    writer = _Writer(program, option, edits, imports)
    writer.write_step(step, again, returns_loss=not loss.argument)
    writer.write_port(step, place, loss)
    for path, names in imports.items():
        import_guarded(edits[path], names)
    return []


def _list_again(step: TrainingStep) -> List[str]:
    """List the statements of the loss that the loop needs behind a port's call, too: what it logs beside the loss."""
    own = {one for unit in [*step.loss_units, *step.host, step.unit] for one in ast.walk(unit)}
    others = [node for node in ast.walk(step.scope) if isinstance(node, ast.Name) and node not in own]
    read = {node.id for node in others if isinstance(node.ctx, ast.Load)}
    outside = {*step.outputs, step.loss_name}
    needed = {name for unit in step.loss_units for name in collect_writes(unit)} & read - outside
    chosen: List[ast.stmt] = []
    for unit in reversed(step.loss_units):
        if collect_writes(unit) & needed:
            if step.loss_name in collect_writes(unit) or step.loss_name in collect_reads(unit):
                raise StepError(step.file, unit, f"`{needed.pop()}` is made of the loss, and is read later")
            chosen.insert(0, unit)
            needed |= collect_reads(unit)
    return [line for unit in chosen for line in write_node(step.read_unit(unit)).split("\n")]


class _Writer:
    """Writes the edits of one step; it keeps which names each file imports."""

    def __init__(
        self, program: Program, option: DeviceOption, edits: Dict[str, FileEdits], imports: Dict[str, Set[str]]
    ) -> None:
        self._program, self._option, self._edits, self._imports = program, option, edits, imports
        self._enum = find_enum(program) if option.words else None

    def _test_at(self, file: ProgramFile, node: ast.AST, model: str) -> str:
        """Write the test that tells a port, in the project's words where it has them there."""
        own = self._enum.test_at(file, node) if self._enum is not None else ""
        if own:
            return own
        self._imports.setdefault(file.path, set()).add("PortedModel")
        return f"isinstance({model}, PortedModel)"

    def write_step(self, step: TrainingStep, again: Sequence[str], *, returns_loss: bool) -> None:
        """Write the branches of the training step, and those of the helper that calls the model for it."""
        test = self._test_at(step.file, step.backward, step.model)
        marked: Dict[ast.stmt, str] = dict.fromkeys(step.host, "")
        if not returns_loss:
            marked.update(dict.fromkeys([*step.loss_units, step.unit], ""))
            call = _write_call(step, step.labels, step.outputs)
            if step.helper is not None:
                names = ", ".join(read_outputs(step.file, step.helper.calls[0]))
                call = f"{names}, {step.loss_name} = {step.file.text_of(step.helper.calls[0])}"
                self._write_helper(step, step.helper)
            marked[step.position or step.unit] = "\n".join([call, *again])
        edits = self._edits[step.file.path]
        guard_statements(edits, getattr(step.scope, "body", []), marked, test, _WHY_STEP)
        if step.accumulation is not None:
            assert isinstance(step.accumulation.iter, ast.Call)
            number = step.file.text_of(step.accumulation.iter.args[0])
            code = f"if {test} and {number} != 1:\n    {_REFUSAL}"
            edits.insert_before(step.accumulation, code, "step", "each call of a port makes a step")

    def _write_helper(self, step: TrainingStep, helper: Helper) -> None:
        """Write the branch of a helper: the device is called behind what the helper makes of the labels."""
        edits, body = self._edits[helper.file.path], helper.function.body
        test = " and ".join(
            [self._test_at(helper.file, helper.unit, step.model), *helper.tests, f"{step.model}.training"]
        )
        begin = body[1] if ast.get_docstring(helper.function) else body[0]
        edits.insert_before(begin, f"makes_step = {test}", "step", _WHY_STEP)
        guard_statements(edits, body, {helper.unit: ""}, "makes_step", _WHY_STEP)
        names = dict(zip(read_outputs(step.file, helper.calls[0]), helper.elements))
        call = _write_call(step, [names[one] for one in step.labels], [names[one] for one in step.outputs])
        code = f"if makes_step:\n    {call}\n    return {', '.join(helper.elements)}, {step.loss_name}"
        edits.insert_before(helper.returned, code, "step", "the port's call returns the loss, too")

    def write_port(self, step: TrainingStep, place: PortPlace, loss: PortedLoss) -> None:
        """Write the port where model and optimizer are there."""
        imports = self._imports.setdefault(place.file.path, set())
        imports.add("to_ipu")
        keywords = {"optimizer": place.optimizer, **loss.keywords}
        if step.max_norm is not None:
            names = {name: place.texts[name] for name in collect_reads(step.max_norm)}
            keywords["max_grad_norm"] = substitute(step.max_norm, names)[0]
        if self._may_change_shapes():
            imports.add("PortOptions")
            keywords["options"] = f"PortOptions(max_executables={MOST_SHAPES})"
        keywords.update(self._name_device())
        given = [place.model, loss.argument, *(f"{name}={value}" for name, value in keywords.items())]
        port = _write_assignment(place.model, [one for one in given if one])
        if place.loader:
            port.append(f"{place.model}.warm_up({place.loader})")
        lines = [*(loss.definition.split("\n") if loss.definition else ()), *port]
        code = "\n".join([f"if {self._option.test}:", *(f"    {line}" if line else "" for line in lines)])
        edits = self._edits[place.file.path]
        why = "the loss is a part of the port, and the optimizer is the device's"
        insert = edits.insert_before if place.is_before else edits.insert_after
        insert(place.anchor, code, "port", why)
        if place.is_partial:
            self._write_inference(place)
        if "os.environ" in self._option.test:
            edits.add_import("import os", why=WHY_ENVIRONMENT)

    def _write_inference(self, place: PortPlace) -> None:
        """Write the port of runs that have no optimizer, behind the branch that makes one."""
        above = place.file.get_statement(next(place.file.iter_above(place.anchor)))
        if isinstance(above, ast.If) and not above.orelse and place.file.list_blocks(above):
            self._imports[place.file.path].add("PortedModel")
            test = f"{self._option.test} and not isinstance({place.model}, PortedModel)"
            given = [place.model, *(f"{name}={value}" for name, value in self._name_device().items())]
            code = f"if {test}:\n    {place.model} = to_ipu({', '.join(given)})"
            self._edits[place.file.path].insert_after(above, code, "port", "without an optimizer it infers")

    def _name_device(self) -> Dict[str, str]:
        """Name the device where the program's option tells an IPU from its simulator."""
        return {"device": self._option.device} if self._option.device else {}

    def _may_change_shapes(self) -> bool:
        """Tell whether batches may be of several sizes: those of torch's loaders, and of an evaluation."""
        return bool(self._program.list_sites(Role.LOADER) or self._program.list_sites(Role.EVALUATION))


def _write_assignment(model: str, given: Sequence[str]) -> List[str]:
    """Write the call of `to_ipu`: in one line, or with an argument in each."""
    line = f"{model} = to_ipu({', '.join(given)})"
    return [line] if len(line) <= _WIDTH else [f"{model} = to_ipu(", *(f"    {one}," for one in given), ")"]


def _write_call(step: TrainingStep, labels: Sequence[str], outputs: Sequence[str]) -> str:
    """Write the call of a port: the model's arguments, the labels, and the names of output and loss."""
    target = f"({', '.join(outputs)})" if len(outputs) > 1 else outputs[0]
    file = step.file if step.helper is None else step.helper.file
    named = [(f"{one.arg}=" if one.arg else "**") + file.text_of(one.value) for one in step.call.keywords]
    given = drop_moves(", ".join([*map(file.text_of, step.call.args), *labels, *named]))
    return f"{target}, {step.loss_name} = {step.model}({given})"
