"""Give a program the choice of its device: `--device ipu|sim|cpu|cuda`, by the options that it has or beside them.

The choice reaches the files of the program by an environment variable, so that workers and launched processes have it,
too, and no function gets another parameter.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from porting.convert.editing import FileEdits
from porting.convert.program import Program
from porting.convert.trees import ProgramFile
from porting.source.facts import Call

__all__ = ["DeviceOption", "add_device_option"]

CHOICES = ("ipu", "sim", "cpu", "cuda")
_VARIABLE = "PORT_DEVICE"
_HELP = "ipu, or sim, the simulator of an IPU: train a port"
_KEPT = "the choice of the device is kept where all files find it"
_PROCESS = (
    ("RANK", "0"),
    ("LOCAL_RANK", "0"),
    ("WORLD_SIZE", "1"),
    ("MASTER_ADDR", "127.0.0.1"),
    ("MASTER_PORT", "29500"),
)
_OWN_PARSER = """
# `--device` is taken out of the command line before the program reads the rest of it
_device_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
_device_parser.add_argument("{flag}", choices=({choices}))
_device, sys.argv[1:] = _device_parser.parse_known_args()
"""


@dataclass(frozen=True)
class DeviceOption:
    """How the device is chosen: the command line's words, the test that a file makes for a port, and its device."""

    flag: str = "--device"
    test: str = f'"{_VARIABLE}" in os.environ'
    device: str = f'os.environ["{_VARIABLE}"]'
    words: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    """The words for each device where a project has its own."""
    sets_process: bool = False
    """Whether a port is told, where the device is chosen, that it is one process, unless a launcher has told it."""

    def make_arguments(self, device: str) -> Tuple[str, ...]:
        """Return what is added to the command line to train on a device."""
        return self.words.get(device, (self.flag, device))


def add_device_option(program: Program, edits: Dict[str, FileEdits]) -> DeviceOption:
    """Plan the edits that add the option to the program that is started."""
    parsed = _find_parsing(program)
    if parsed is None:
        return _add_parser(program, edits[program.main.path])
    file, call, statement = parsed
    name = ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else "args"
    options = [(one, _read_flags(one)) for one in _list_options(program)]
    own = next((one for one, flags in options if "--device" in flags), None)
    if own is None:
        flag = "--device"
        parser = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else "parser"
        code = f'{parser}.add_argument("{flag}", choices=({_quote(CHOICES)}), help="{_HELP}")'
        edits[file.path].insert_before(statement, code, "option", "the command line chooses the device")
        value = f"{name}.device"
    elif _takes_text(own):
        flag = next(one for one in _read_flags(own) if one == "--device")
        owner = program.find_file(own.where.file)
        choices = next((one.value for one in own.node.keywords if one.arg == "choices"), None)
        if isinstance(choices, (ast.List, ast.Tuple)) and owner is not None:
            given = [one.value for one in choices.elts if isinstance(one, ast.Constant)]
            missing = [one for one in ("ipu", "sim") if one not in given]
            inner = ", ".join([*map(ast.unparse, choices.elts), _quote(missing)])
            text = f"[{inner}]" if isinstance(choices, ast.List) else f"({inner})"
            edits[owner.path].replace(
                choices, text, "option", "the option for the device knows the IPU and its simulator"
            )
        dest = next((one.value for one in own.node.keywords if one.arg == "dest"), None)
        value = f"{name}.{dest.value!s}" if isinstance(dest, ast.Constant) else f"{name}.device"
    else:
        # the number of a GPU, most often
        flag = "--accelerator"
        parser = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else "parser"
        code = f'{parser}.add_argument("{flag}", choices=({_quote(CHOICES)}), help="{_HELP}")'
        edits[file.path].insert_before(statement, code, "option", "`--device` is the number of a GPU here")
        value = f"{name}.accelerator"
    is_distributed = _is_distributed(program)
    choice = _make_choice(value, sets_host=own is not None and flag == "--device", sets_process=is_distributed)
    if isinstance(statement, ast.Return):
        edits[file.path].insert_before(statement, f"{name} = {file.text_of(call)}\n{choice}", "option", _KEPT)
        edits[file.path].replace(call, name, "option", _KEPT)
    else:
        edits[file.path].insert_after(statement, choice, "option", _KEPT)
    edits[file.path].add_import("import os", why="the choice of the device is kept in the environment")
    return DeviceOption(flag, sets_process=is_distributed)


def _is_distributed(program: Program) -> bool:
    return any(call.name.endswith(".init_process_group") for call in program.facts.calls)


def _make_choice(value: str, *, sets_host: bool, sets_process: bool) -> str:
    """Write what a choice comes to: a port takes tensors of the host, and GPUs are hidden from the program."""
    lines = [
        f'if {value} in ("ipu", "sim"):',
        f'    os.environ["{_VARIABLE}"] = {value}',
        *(
            f'    os.environ.setdefault("{name}", "{given}")'
            for name, given in ((*_PROCESS, ("MASTER_PORT", "29500")) if sets_process else ())
        ),
        *([f'    {value} = "cpu"  # where the tensors are that a port takes'] if sets_host else []),
        f'if {value} == "cpu" or "{_VARIABLE}" in os.environ:',
        '    os.environ["CUDA_VISIBLE_DEVICES"] = ""',
    ]
    return "\n".join(lines)


def _add_parser(program: Program, edits: FileEdits) -> DeviceOption:
    """Give a program without options the one for the device, by a parser of its own."""
    flag, is_distributed = "--device", _is_distributed(program)
    code = _OWN_PARSER.format(flag=flag, choices=_quote(CHOICES)) + _make_choice(
        "_device.device", sets_host=False, sets_process=is_distributed
    )
    anchor = _find_beginning(edits.file)
    edits.insert_before(anchor, code, "option", "the command line chooses the device")
    for name in ("argparse", "os", "sys"):
        edits.add_import(f"import {name}", why="the option for the device needs it")
    return DeviceOption(flag, sets_process=is_distributed)


def _find_beginning(file: ProgramFile) -> ast.stmt:
    """Find the first statement that does something when the script is started: of its main guard, if it has one."""
    for statement in file.tree.body:
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            return statement.body[0]
    for number, statement in enumerate(file.tree.body):
        is_text = number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_text and not isinstance(statement, (ast.Import, ast.ImportFrom, ast.Try)):
            return statement
    return file.tree.body[-1]


def _list_options(program: Program) -> List[Call]:
    return [call for call in program.facts.calls if call.is_method("add_argument")]


def _read_flags(call: Call) -> List[str]:
    return [one.value for one in call.node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def _takes_text(call: Call) -> bool:
    kind = next((one.value for one in call.node.keywords if one.arg == "type"), None)
    action = next((one.value for one in call.node.keywords if one.arg in ("action", "nargs")), None)
    default = next((one.value for one in call.node.keywords if one.arg == "default"), None)
    is_text = kind is None or isinstance(kind, ast.Name) and kind.id == "str"
    is_number = isinstance(default, ast.Constant) and isinstance(default.value, (int, bool))
    return is_text and action is None and not is_number


def _find_parsing(program: Program) -> Optional[Tuple[ProgramFile, ast.Call, ast.stmt]]:
    """Find where the command line is read: `args = parser.parse_args()`, of an `ArgumentParser`."""
    for call in program.facts.list_methods("parse_args", "parse_known_args"):
        file = program.find_file(call.where.file)
        if file is None or call.node.args or not call.where.programs:
            continue
        if any(one.name == "argparse.ArgumentParser" for one in call.receiver):
            statement = file.get_statement(call.node)
            if isinstance(statement, ast.Return) and statement.value is call.node:
                return file, call.node, statement
            if isinstance(statement, ast.Assign) and statement.value is call.node and len(statement.targets) == 1:
                if isinstance(statement.targets[0], (ast.Name, ast.Attribute)):
                    return file, call.node, statement
    return None


def _quote(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
