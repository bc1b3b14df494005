"""Let the model of a trainer library run on the device, by one line of the integration for it.

The library keeps loop, optimizer, callbacks and checkpoints; without a port its own class is what runs, as before.
"""

from __future__ import annotations

import ast
from typing import Dict, Iterator, List, Mapping, Optional, Set, Tuple

from porting.convert.bindings import Undecided
from porting.convert.device_option import WHY_ENVIRONMENT, DeviceOption
from porting.convert.editing import FileEdits
from porting.convert.program import Program
from porting.convert.trees import ProgramFile, find_keyword, list_targets, write_node

__all__ = ["port_trainers"]

_PACKAGES = ("lightning.pytorch", "pytorch_lightning", "lightning")
_FROM_ARGUMENTS = [f"{package}.Trainer.from_argparse_args" for package in _PACKAGES]
_EVALUATOR = "ignite.engine.create_supervised_evaluator"
_SUPERVISED = ("ignite.engine.create_supervised_trainer", _EVALUATOR)
_SWAPPED = {
    "accelerate.Accelerator": ("accelerate", "Accelerator", "port_device"),
    "transformers.Trainer": ("transformers", "Trainer", "device"),
    "transformers.Seq2SeqTrainer": ("transformers", "Seq2SeqTrainer", "device"),
}
_IMPORT = """
try:
    from porting.integrations{module} import {name}
except ImportError:  # without ipu-porting the program trains as before
    {bound} = None
"""
_WHY = "the library's loop stays, and its model runs on the device"
_WHY_ONE = "a port has one device, which computes in its own precision"
_INSTEAD: Mapping[str, Mapping[str, str]] = {
    "lightning": {
        "accelerator": '"cpu"',
        "devices": "1",
        "num_nodes": "1",
        "precision": '"32-true"',
        "sync_batchnorm": "False",
        "plugins": "None",
    },
    "accelerate": {"mixed_precision": '"no"', "dynamo_backend": '"no"', "dynamo_plugin": "None"},
    "ignite": {"amp_mode": "None", "scaler": "False"},
    "transformers": {
        "fp16": "False",
        "bf16": "False",
        "fp16_full_eval": "False",
        "bf16_full_eval": "False",
        "torch_compile": "False",
        "gradient_checkpointing": "False",
    },
}
"""What a port sets in the place of a library's settings for other devices."""


def port_trainers(program: Program, option: DeviceOption, edits: Dict[str, FileEdits]) -> Optional[List[Undecided]]:
    """Plan the edits of programs of trainer libraries, and return what is left; None for a program of none."""
    calls = list(_iter_calls(program))
    found = [one for one in calls if _is_trainer(one[2])]
    heirs = [one for one in calls if one[2] in _list_heirs(program)]
    instances = [pair for file in program.files.values() for pair in _iter_instantiated(file)]
    instances += [(file, call) for file, call, name in calls if name in _FROM_ARGUMENTS]
    if not found and not heirs and not instances:
        return None
    planner = _Planner(option, edits)
    for file, call, name in found:
        planner.port_call(file, call, name)
    for file, call, name in heirs:
        planner.port_heir(file, call, name.rpartition(".")[2])
    for file, call in instances:
        planner.port_instantiated(file, call)
    for file, call, name in calls:
        if name == "transformers.TrainingArguments":
            planner.change_settings(file, call, "transformers")
    return planner.left


def _iter_calls(program: Program) -> Iterator[Tuple[ProgramFile, ast.Call, str]]:
    """Iterate over the program's calls of functions and classes, each once."""
    seen: Set[int] = set()
    for fact in program.facts.calls:
        file = program.find_file(fact.where.file)
        if file is not None and fact.name[:1] != "." and id(fact.node) not in seen:
            seen.add(id(fact.node))
            yield file, fact.node, _name_as_documented(fact.name)


def _name_as_documented(name: str) -> str:
    """Name what a library defines deeper than it says: `ignite.engine.create_supervised_trainer`."""
    package, last = name.partition(".")[0], name.rpartition(".")[2]
    known = next((one for one in (*_SWAPPED, *_SUPERVISED) if one.startswith(package) and one.endswith(f".{last}")), "")
    return known or name


def _is_trainer(name: str) -> bool:
    return name in (*_SUPERVISED, *_SWAPPED) or name in {f"{package}.Trainer" for package in _PACKAGES}


def _list_heirs(program: Program) -> List[str]:
    """List the program's own classes that inherit from a Trainer of transformers."""
    found: Set[str] = set()
    for file in program.files.values():
        if "transformers" in file.unit.text:
            classes = [one for one in ast.walk(file.tree) if isinstance(one, ast.ClassDef)]
            for one in classes:
                bases = [write_node(base).rpartition(".")[2] for base in one.bases]
                if any(base in ("Trainer", "Seq2SeqTrainer") for base in bases):
                    found.add(f"{file.module_name}.{one.name}")
    return sorted(found)


def _iter_instantiated(file: ProgramFile) -> Iterator[Tuple[ProgramFile, ast.Call]]:
    """Iterate over what Hydra makes of a configuration and the program says to be Lightning's: `trainer: Trainer`."""
    if "lightning" not in file.unit.text:
        return
    for node in ast.walk(file.tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
            is_made = write_node(node.value.func).rpartition(".")[2] == "instantiate"
            if is_made and write_node(node.annotation).rpartition(".")[2] == "Trainer":
                yield file, node.value


class _Planner:
    """Plans the edits of one program's trainers, by file."""

    def __init__(self, option: DeviceOption, edits: Dict[str, FileEdits]) -> None:
        self._option = option
        self._edits = edits
        self._routed: Set[Tuple[str, int, str]] = set()
        self.left: List[Undecided] = []

    def port_call(self, file: ProgramFile, call: ast.Call, name: str) -> None:
        """Port what makes a trainer, by the library that it is of."""
        if name in _SWAPPED:
            self._swap(file, call, name)
        elif name in _SUPERVISED:
            self._route(file, call, call.args[0] if call.args else None)
            self.change_settings(file, call, "ignite")
        else:
            self._give_strategy(file, call)

    def _write(self, file: ProgramFile, module: str, name: str, bound: str) -> FileEdits:
        edits = self._edits[file.path]
        imported = name if name == bound else f"{name} as {bound}"
        code = _IMPORT.format(module=module, name=imported, bound=bound)
        edits.add_import(code, why="without ipu-porting the program trains as before")
        edits.add_import("import os", why=WHY_ENVIRONMENT)
        return edits

    def _leave(self, file: ProgramFile, call: ast.Call, reason: str, advice: str) -> None:
        self.left.append(Undecided(file.path, call.lineno, reason, advice))

    def change_settings(self, file: ProgramFile, call: ast.Call, library: str) -> None:
        """Let a port have its own values of settings that are for other devices."""
        for keyword in call.keywords:
            instead = _INSTEAD[library].get(keyword.arg or "")
            given = write_node(keyword.value).replace("'", '"')
            if instead is not None and given not in (instead, "32", "None", '"auto"'):
                code = f"{instead} if {self._option.test} else WHOLE"
                self._edits[file.path].replace(keyword.value, code, "cuda", _WHY_ONE)
                self._edits[file.path].add_import("import os", why=WHY_ENVIRONMENT)

    def _swap(self, file: ProgramFile, call: ast.Call, name: str) -> None:
        """Let the integration's class of the same name take the place of the library's."""
        library, kind, device = _SWAPPED[name]
        bound = f"Ported{kind}"
        edits = self._write(file, f".{library}", kind, bound)
        edits.add_import("import functools", why="the integration's class gets its device")
        made = f"functools.partial({bound}, {device}={self._option.device})"
        edits.replace(call.func, f"({made} if {self._option.test} else WHOLE)", "port", _WHY)
        self.change_settings(file, call, library)

    def _route(self, file: ProgramFile, call: ast.Call, model: Optional[ast.expr]) -> None:
        """Let the calls of a model run on the device, from before what makes its trainer."""
        model = find_keyword(call, "model") or model
        if not isinstance(model, (ast.Name, ast.Attribute)):
            self._leave(file, call, "the trainer's model has no name here", "give it one, and convert again")
            return
        name = write_node(model)
        function = file.find_function(call)
        key = file.path, 0 if function is None else function.lineno, name
        if key in self._routed:
            return
        self._routed.add(key)
        edits = self._write(file, "", "DeviceCalls", "DeviceCalls")
        code = f"if {self._option.test}:\n    DeviceCalls({name}, device={self._option.device}).install()"
        edits.insert_before(file.get_statement(call), code, "port", _WHY)

    def port_heir(self, file: ProgramFile, call: ast.Call, kind: str) -> None:
        """Route the model of a trainer of the program's own class, behind what makes the trainer."""
        statement = file.get_statement(call)
        targets = list_targets(statement)
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or statement.value is not call or len(targets) != 1:
            advice = f"let `{kind}` inherit from `porting.integrations.transformers.Trainer` for a port"
            self._leave(file, call, f"the trainer of `{kind}` has no name", advice)
            return
        edits = self._write(file, "", "DeviceCalls", "DeviceCalls")
        code = f"if {self._option.test}:\n    DeviceCalls({targets[0]}.model, device={self._option.device}).install()"
        edits.insert_after(statement, code, "port", _WHY)

    def _give_strategy(self, file: ProgramFile, call: ast.Call) -> None:
        """Give a Trainer of Lightning the strategy of the port."""
        strategy = f"make_strategy(device={self._option.device})"
        unpacked = [one.value for one in call.keywords if one.arg is None]
        given = find_keyword(call, "strategy")
        if call.args:
            self._leave(file, call, "the Trainer is given settings by their place", "name them, and convert again")
            return
        edits = self._write(file, ".lightning", "make_strategy", "make_strategy")
        test = self._option.test
        if given is not None and isinstance(given, ast.Constant) and given.value == "auto":
            # what stands in the other order is the user's own word, when the port is taken out again
            edits.replace(given, f"WHOLE if not ({test}) else {strategy}", "port", _WHY)
        elif given is not None:
            edits.replace(given, f"{strategy} if {test} else WHOLE", "port", _WHY)
        elif unpacked:
            own = f'"strategy": {strategy}, "accelerator": "cpu", "devices": 1'
            edits.replace(unpacked[-1], f"({{**WHOLE, {own}}} if {test} else WHOLE)", "port", _WHY)
        else:
            edits.add_argument(call, "strategy", f'{strategy} if {test} else "auto"', "port", _WHY)
        self.change_settings(file, call, "lightning")

    def port_instantiated(self, file: ProgramFile, call: ast.Call) -> None:
        """Give the port's strategy to a Trainer that is made of a configuration, or of a command line."""
        edits = self._write(file, ".lightning", "make_strategy", "make_strategy")
        own = f'"strategy": make_strategy(device={self._option.device})'
        code = f'**({{{own}, "accelerator": "cpu", "devices": 1}} if {self._option.test} else {{}})'
        edits.add_argument(call, "", code, "port", _WHY)
