"""Write a PopTorch program with `to_ipu`: executors, options, loaders and optimizers by their counterparts.

What the executor's call does besides, and the loop does once more, goes. What has no counterpart is left, by line.
"""

from __future__ import annotations

import ast
from typing import Dict, Iterator, List, Mapping, Optional, Set

from porting.convert.bindings import Undecided
from porting.convert.editing import FileEdits
from porting.convert.program import Program
from porting.convert.trees import ProgramFile, find_keyword, list_targets, write_node
from porting.source.facts import Call, Kind, ProgramObject

__all__ = ["is_of_poptorch", "port_executors"]

_TRAINING, _INFERENCE, _LOADER = "poptorch.trainingModel", "poptorch.inferenceModel", "poptorch.DataLoader"
_OPTIONS: Mapping[str, str] = {
    "deviceIterations": "device_iterations",
    "replicationFactor": "replicas",
    "gradientAccumulation": "accumulation",
    "randomSeed": "seed",
    "enableExecutableCaching": "cache_dir",
}
"""The options of PopTorch that are a value of `PortOptions` each."""
_MODES = {"All": "all", "Final": "final", "Sum": "sum", "EveryN": "every_n", "Default": "default"}
_GROUPS = ("Training", "Precision")
_METHODS: Mapping[str, str] = {
    "detachFromDevice": "detach",
    "attachToDevice": "attach",
    "copyWeightsToHost": "copy_weights_to_host",
    "copyWeightsToDevice": "copy_weights_to_device",
}
_SAME = ("compile", "destroy", "eval", "train", "state_dict", "load_state_dict", "parameters", "named_parameters")
_NEEDLESS = ("poptorch.setLogLevel",)
_OF_TORCH = ("lr", "momentum", "dampening", "nesterov", "weight_decay", "betas", "eps", "alpha", "centered", "params")
_REDUCED = {"mean": ".mean()", "sum": ".sum()", "none": ""}
_GUARDED = """
try:
    import poptorch
except ImportError:  # what is left of it runs with PopTorch alone
    poptorch = None
"""
_WHY = "a port trains on an IPU, and on the simulator where there is none"


def is_of_poptorch(program: Program) -> bool:
    """Tell whether a program makes executors of PopTorch."""
    names = (_TRAINING, _INFERENCE)
    return any(call.name in names and program.find_file(call.where.file) for call in program.facts.calls)


def port_executors(program: Program, edits: Dict[str, FileEdits]) -> List[Undecided]:
    """Plan the edits of a PopTorch program, and return what is left."""
    writer = _Writer(program, edits)
    for call in writer.iter_calls():
        writer.change(call)
    for file in program.files.values():
        writer.finish_file(file)
    return writer.left


class _Writer:
    """Writes the edits; it keeps which uses of the vendor's module have been replaced."""

    def __init__(self, program: Program, edits: Dict[str, FileEdits]) -> None:
        self._program = program
        self._edits = edits
        self._done: Set[int] = set()
        self._names: Dict[str, Set[str]] = {}
        self.left: List[Undecided] = []

    def iter_calls(self) -> Iterator[Call]:
        """Iterate over the calls in the program's files, each once."""
        seen: Set[int] = set()
        for call in self._program.facts.calls:
            if id(call.node) not in seen and self._program.find_file(call.where.file) is not None:
                seen.add(id(call.node))
                yield call

    def change(self, call: Call) -> None:
        """Write a call in the words of this package, if it is of PopTorch."""
        file = self._program.find_file(call.where.file)
        assert file is not None
        makers = {
            _TRAINING: self._write_training,
            _INFERENCE: self._write_inference,
            _LOADER: self._write_loader,
            "poptorch.identity_loss": self._write_loss,
        }
        if call.name in makers and not call.receiver:
            makers[call.name](file, call)
        elif call.name.startswith("poptorch.optim."):
            self._write_optimizer(file, call)
        elif call.name.startswith("poptorch."):
            self._write_other(file, call)
        elif call.is_on(Kind.OPTIONS):
            self._write_option(file, call)
        elif call.is_on(Kind.PORT) and call.name[:1] == ".":
            self._write_method(file, call)
        elif self._is_done_by_call(call):
            self._remove(file, call.node, "the port's call makes the whole step")

    # -- edits ---------------------------------------------------------------------------------------------------------

    def _replace(
        self, file: ProgramFile, node: ast.expr, code: str, why: str, *, part: Optional[ast.expr] = None
    ) -> None:
        self._edits[file.path].replace(node, code, "port", why, part=part)
        self._names.setdefault(file.path, set()).update(one for one in ("PortOptions", "to_ipu") if one in code)
        kept = {id(one) for one in ast.walk(part)} if part is not None else set()
        self._done |= {id(one) for one in ast.walk(node)} - kept

    def _remove(self, file: ProgramFile, node: ast.AST, why: str) -> None:
        statement = file.get_statement(node)
        self._edits[file.path].remove(statement, "step", why)
        self._done |= {id(one) for one in ast.walk(statement)}

    def _leave(self, file: ProgramFile, node: ast.AST, reason: str, advice: str) -> None:
        self._done |= {id(one) for one in ast.walk(node)}
        self.left.append(Undecided(file.path, getattr(node, "lineno", 1), reason, advice))

    def _say(self, node: Optional[ast.AST]) -> str:
        """Write an argument in the words of this package."""
        return "" if node is None else write_node(node).replace("poptorch.Options()", "PortOptions()")

    def _write_other(self, file: ProgramFile, call: Call) -> None:
        """Write what has a word of its own, or none, in this package."""
        if call.name == "poptorch.Options" and not call.node.args:
            self._replace(file, call.node, "PortOptions()", "the port's options")
        elif call.name == "poptorch.AsynchronousDataAccessor" and call.node.args:
            self._replace(file, call.node, "PART", "loading processes read ahead", part=call.node.args[0])
        elif call.name in _NEEDLESS and isinstance(file.get_statement(call.node), ast.Expr):
            self._remove(file, call.node, "findings say what the log would")

    # -- executors -----------------------------------------------------------------------------------------------------

    def _write_training(self, file: ProgramFile, call: Call) -> None:
        model, options, optimizer = (
            _find(call.node, n, key) for n, key in enumerate(("model", "options", "optimizer"))
        )
        configured = self._say(optimizer) or self._find_configured(call)
        words = [self._say(model)]
        words += [f"optimizer={configured}"] if configured else []
        words += [f"options={self._say(options)}"] if options is not None else []
        self._replace(file, call.node, f"to_ipu({', '.join(words)})", _WHY)

    def _find_configured(self, call: Call) -> str:
        """Find the optimizer that the program has made for a model, and has not handed to its executor."""
        models = [one for given in call.arguments[:1] or [call.keywords.get("model", ())] for one in given]
        made = [
            one
            for one in self._program.facts.list_program_objects(Kind.OPTIMIZER)
            if any(part in models or any(inner in models for inner in part.parts) for part in one.parts)
        ]
        if len(made) != 1 or made[0].call is None or made[0].call.where.function != call.where.function:
            return ""
        file = self._program.find_file(made[0].call.where.file)
        statement = None if file is None else file.get_statement(made[0].call.node)
        targets = [] if statement is None else list_targets(statement)
        is_before = statement is not None and statement.lineno < call.node.lineno
        return targets[0] if len(targets) == 1 and is_before else ""

    def _write_inference(self, file: ProgramFile, call: Call) -> None:
        """Let a port infer: the one that trains the model where it is at hand, else one more of the same weights."""
        model, options = (_find(call.node, n, key) for n, key in enumerate(("model", "options")))
        models = [one for given in call.arguments[:1] or [call.keywords.get("model", ())] for one in given]
        ports = [
            one
            for one in self._program.facts.list_program_objects(Kind.PORT)
            if one.name == _TRAINING and any(part in models for part in one.parts)
        ]
        name = self._name_before(file, call, ports[0]) if len(ports) == 1 else ""
        own = ports[0].call if name else None
        if own is not None and self._say(options) == self._say(_find(own.node, 1, "options")):
            self._replace(file, call.node, f"{name}.inference()", "inference of the port that has the weights")
            return
        words = [self._say(model)] + ([f"options={self._say(options)}"] if options is not None else [])
        self._replace(file, call.node, f"to_ipu({', '.join(words)}).inference()", _WHY)

    def _name_before(self, file: ProgramFile, call: Call, port: ProgramObject) -> str:
        """Name a port where a call stands, behind it in the same function; empty where it has no name there."""
        made = port.call
        if made is None or self._program.find_file(made.where.file) is not file:
            return ""
        statement = file.get_statement(made.node)
        targets = list_targets(statement)
        is_here = file.find_function(made.node) is file.find_function(call.node) and statement.lineno < call.node.lineno
        if len(targets) != 1 or not is_here:
            return ""
        between = [one.lineno for one in file.iter_assignments(targets[0], file.find_function(call.node) or file.tree)]
        is_last = not any(statement.lineno < line < call.node.lineno for line in between)
        return targets[0] if is_last else ""

    def _write_method(self, file: ProgramFile, call: Call) -> None:
        """Write a method of an executor by the port's own name of it."""
        function, name = call.node.func, call.name[1:]
        assert isinstance(function, ast.Attribute)
        is_training = all(one.name == _TRAINING for one in call.receiver)
        statement = file.get_statement(call.node)
        is_known = name == "setOptimizer" and len(call.node.args) == 1 and isinstance(call.node.args[0], ast.Name)
        is_alone = isinstance(statement, ast.Expr) and statement.value is call.node
        if name in _METHODS and is_training:
            code = f"PART.{_METHODS[name]}"
            self._edits[file.path].replace(function, code, "port", "the port's own word", part=function.value)
        elif name in ("detachFromDevice", "attachToDevice") and is_alone:
            self._edits[file.path].replace(
                function, "PART.destroy" if name[0] == "d" else "PART.compile", "port", _WHY, part=function.value
            )
        elif name == "copyWeightsToHost" and is_alone:
            self._remove(file, call.node, "whoever looks at the weights has them")
        elif is_known and is_alone:
            self._remove(file, call.node, "a port sees the changes of its optimizer by itself")
        elif name not in _SAME:
            advice = (
                "change the optimizer that the port was given"
                if name == "setOptimizer"
                else "see `porting explain D003`"
            )
            self._leave(file, call.node, f"`{name}` of an executor has no counterpart", advice)

    def _is_done_by_call(self, call: Call) -> bool:
        """Tell whether a call does once more what an executor's call has done."""
        ports = self._program.facts.list_program_objects(Kind.PORT)
        if not any(one.name == _TRAINING for one in ports):
            return False
        if call.is_method("backward"):
            return bool(call.receiver) and all(one.name == _TRAINING for one in call.receiver)
        return call.is_method("step", "zero_grad") and call.is_on(Kind.OPTIMIZER) and self._is_of_port(call)

    def _is_of_port(self, call: Call) -> bool:
        """Tell whether the loop around a call calls an executor, and no plain model."""
        loops = {id(one.node) for one in call.where.loops}
        inside = [one for one in self.iter_calls() if loops & {id(loop.node) for loop in one.where.loops}]
        return any(one.name == _TRAINING and one.is_on(Kind.PORT) for one in inside)

    # -- options, data, optimizers, losses -----------------------------------------------------------------------------

    def _write_option(self, file: ProgramFile, call: Call) -> None:
        """Write the setting of an option: options are replaced, as they do not change."""
        function, name = call.node.func, call.name[1:]
        setting = self._say_setting(call)
        holder = function.value if isinstance(function, ast.Attribute) else None
        if isinstance(holder, ast.Attribute) and holder.attr in _GROUPS:
            holder = holder.value
        if name == "clone" and holder is not None:
            self._replace(file, call.node, "PART", "options do not change", part=holder)
            return
        if not setting or not isinstance(holder, (ast.Name, ast.Call, ast.Attribute)):
            self._leave(file, call.node, f"the option `{name}` has no counterpart", "see the values of `PortOptions`")
            return
        statement = file.get_statement(call.node)
        is_alone = isinstance(statement, ast.Expr) and statement.value is call.node
        if name == "randomSeed":
            code = f"torch.manual_seed({self._say(call.node.args[0])})"
            self._edits[file.path].insert_before(statement, code, "port", "PopTorch seeds the host, too")
        is_first = isinstance(holder, ast.Call) and write_node(holder) == "poptorch.Options()"
        if is_first:
            self._replace(file, call.node, f"PortOptions({setting})", "the port's options")
            return
        code = f"PART.replace({setting})"
        target = _find_target(holder)
        if is_alone and not target:
            self._leave(file, call.node, f"what `{name}` sets has no name", "assign the options that it returns")
            return
        self._replace(file, call.node, code, "the port's options", part=holder)
        if is_alone:
            self._edits[file.path].assign(statement, target)

    def _say_setting(self, call: Call) -> str:
        """Say a setting of PopTorch's options as keywords of `PortOptions`; empty where there are none."""
        name, given = call.name[1:], [self._say(one) for one in call.node.args]
        word = given[0].rpartition(".")[2] if given else ""
        if name in _OPTIONS and len(given) == 1:
            return f"{_OPTIONS[name]}={given[0]}"
        if name == "outputMode" and word in _MODES and len(given) < 3:
            return f'output_mode="{_MODES[word]}"' + (f", output_every={given[1]}" if len(given) == 2 else "")
        if name == "accumulationAndReplicationReductionType" and word in ("Mean", "Sum"):
            return f'reduction="{word.lower()}"'
        return "half_partials=True" if name == "setPartialsType" and word in ("half", "float16") else ""

    def _write_loader(self, file: ProgramFile, call: Call) -> None:
        """Write a loader of combined batches as torch's, with the rows of a call of the port in each batch."""
        options, dataset = _find(call.node, 0, "options"), _find(call.node, 1, "dataset")
        rows = _find(call.node, 2, "batch_size")
        if options is None or dataset is None or len(call.node.args) > 3:
            self._leave(file, call.node, "the loader's options are not told here", "`ported.dataloader(dataset, ...)`")
            return
        others = [one for one in call.node.keywords if one.arg not in ("options", "dataset", "batch_size", "mode")]
        unknown = next((one.arg for one in others if one.arg not in _OF_LOADER), None)
        if unknown is not None:
            advice = "`ported.dataloader(dataset, ...)`, or torch's own loader"
            self._leave(file, call.node, f"`{unknown}` of PopTorch's loader has no counterpart", advice)
            return
        size = f"{_bracket(rows)} * {self._say(options)}.micro_batches_per_call"
        if isinstance(options, ast.Call) and write_node(options) == "poptorch.Options()":
            size = _bracket(rows)
        words = [f"batch_size={size}", *(f"{one.arg}={write_node(one.value)}" for one in others)]
        # PopTorch's default
        words += [] if any(one.arg == "drop_last" for one in others) else ["drop_last=True"]
        code = f"torch.utils.data.DataLoader({self._say(dataset)}, {', '.join(words)})"
        self._replace(file, call.node, code, "a batch has the rows of a call of the port")

    def _write_optimizer(self, file: ProgramFile, call: Call) -> None:
        given = [one.arg or "**" for one in call.node.keywords]
        unknown = next((one for one in given if one not in _OF_TORCH), None)
        kind = call.name.rpartition(".")[2]
        if unknown is not None or kind not in ("SGD", "Adam", "AdamW", "RMSprop"):
            advice = "a port takes it where PopTorch is; scaling of the loss is `PortOptions(precision=)`"
            self._leave(file, call.node, f"`{unknown or kind}` of PopTorch's optimizers is not torch's", advice)
            return
        self._replace(file, call.node.func, f"torch.optim.{kind}", "the port makes the device's optimizer of it")

    def _write_loss(self, file: ProgramFile, call: Call) -> None:
        loss, reduction = _find(call.node, 0, "loss"), _find(call.node, 1, "reduction")
        word = reduction.value if isinstance(reduction, ast.Constant) else None
        if loss is None or word not in _REDUCED:
            self._leave(
                file, call.node, "the reduction of the loss is not told here", "write it with torch's functions"
            )
            return
        self._replace(file, call.node, f"PART{_REDUCED[str(word)]}", "a port marks the loss by itself", part=loss)

    # -- imports -------------------------------------------------------------------------------------------------------

    def finish_file(self, file: ProgramFile) -> None:
        """Change the imports of a file, and leave each use of PopTorch's that is still there."""
        edits = self._edits[file.path]
        imports = [
            one
            for one in ast.walk(file.tree)
            if isinstance(one, ast.Import) and [alias.name for alias in one.names] == ["poptorch"]
        ]
        others = [one for one in ast.walk(file.tree) if isinstance(one, ast.ImportFrom) and one.module]
        for other in others:
            if str(other.module).partition(".")[0] in ("poptorch", "popdist", "poptorch_geometric"):
                self._leave(file, other, f"`{other.module}` has no counterpart", "see `porting explain D003`")
        used = [one for one in ast.walk(file.tree) if isinstance(one, ast.Name) and one.id == "poptorch"]
        lines: Set[int] = set()
        for name in used:
            if id(name) not in self._done and name.lineno not in lines:
                lines.add(name.lineno)
                above = next(file.iter_above(name))
                self._leave(
                    file, name, f"`{write_node(above)}` has no counterpart", "stages are `PortOptions(stages=)`"
                )
        is_left = any(one.path == file.path and "poptorch" in file.unit.lines[one.line - 1] for one in self.left)
        for one in imports:
            edits.remove(one, "import", "what is left of it is guarded" if is_left else "the port needs it no more")
        if imports and is_left:
            edits.add_import(_GUARDED, why="it is on machines with IPUs alone")
        names = sorted(self._names.get(file.path, ()))
        if names:
            edits.add_import(f"from porting import {', '.join(names)}", why=_WHY)
        if edits.edits:
            edits.add_import("import torch", why="its loaders and optimizers take the place of PopTorch's")


_OF_LOADER = ("shuffle", "num_workers", "drop_last", "collate_fn", "pin_memory", "persistent_workers", "worker_init_fn")


def _find(call: ast.Call, place: int, name: str) -> Optional[ast.expr]:
    given = find_keyword(call, name)
    return call.args[place] if given is None and len(call.args) > place else given


def _find_target(holder: ast.expr) -> str:
    """Find the name of the options that a chain of settings begins with."""
    while isinstance(holder, ast.Call) and isinstance(holder.func, ast.Attribute):
        holder = holder.func.value
        if isinstance(holder, ast.Attribute) and holder.attr in _GROUPS:
            holder = holder.value
    return write_node(holder) if isinstance(holder, (ast.Name, ast.Attribute)) else ""


def _bracket(node: Optional[ast.expr]) -> str:
    text = "1" if node is None else write_node(node)
    return text if node is None or isinstance(node, (ast.Constant, ast.Name, ast.Attribute, ast.Call)) else f"({text})"
