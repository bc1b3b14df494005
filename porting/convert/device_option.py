"""Give a program the choice of its device: `--device ipu|sim|cpu|cuda`, by the options that it has or beside them.

The choice reaches the files of the program by an environment variable, so that workers and launched processes have it,
too, and no function gets another parameter.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Dict, Mapping, Optional, Sequence, Tuple

from porting.convert.editing import FileEdits
from porting.convert.program import Program
from porting.convert.trees import ProgramFile, find_keyword, is_main_guard, write_node
from porting.source.facts import Call

__all__ = ["PROCESS_LINES", "VARIABLE", "WHY_ENVIRONMENT", "DeviceOption", "add_device_option"]

WHY_ENVIRONMENT = "the choice of the device is kept in the environment"

CHOICES = ("ipu", "sim", "cpu", "cuda")
VARIABLE = "PORT_DEVICE"
"""The environment variable that has the device of a program's port."""
_HELP = "ipu, or sim, the simulator of an IPU: train a port"
_KEPT = "the choice of the device is kept where all files find it"
_PROCESS = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
PROCESS_LINES = "\n".join(f'    os.environ.setdefault("{name}", "{given}")' for name, given in _PROCESS.items())
"""What tells a program that it is one process, behind an `if`."""
_ASKS_LAUNCHER = re.compile(
    r"""(environ\.get|getenv)\(\s*["'](RANK|WORLD_SIZE)["']|["'](RANK|WORLD_SIZE)["']\s+in\s+os\.environ"""
)
_OWN_PARSER = """
# `{flag}` is taken out of the command line before the program reads the rest of it
_device_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
_device_parser.add_argument("{flag}", dest="device", choices=({choices}), help="{help}")
_device, sys.argv[1:] = _device_parser.parse_known_args()
"""
_OWN_HELP = """
if {"-h", "--help"} & {*sys.argv}:  # beside what the program says itself
    _device_parser.print_help()
"""
_COMMAND_LINES = {
    "absl",
    "argparse",
    "click",
    "docopt",
    "fire",
    "hydra",
    "simple_parsing",
    "transformers",
    "tyro",
    "typer",
}


@dataclass(frozen=True)
class DeviceOption:
    """How the device is chosen: the command line's words, the test that a file makes for a port, and its device."""

    flag: str = "--device"
    test: str = f'"{VARIABLE}" in os.environ'
    device: str = f'os.environ["{VARIABLE}"]'
    words: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    """The words for each device where a project has its own."""
    sets_process: bool = False
    """Whether a port is told, where the device is chosen, that it is one process, unless a launcher has told it."""
    path: str = ""
    """The file in which the device is chosen, behind `statement`, or before it where `is_before`."""
    statement: Optional[ast.stmt] = None
    is_before: bool = False

    def make_arguments(self, device: str) -> Tuple[str, ...]:
        """Return what is added to the command line to train on a device."""
        return self.words.get(device, (self.flag, device))


def add_device_option(program: Program, edits: Dict[str, FileEdits]) -> DeviceOption:
    """Plan the edits that add the option to the program that is started."""
    parsed = _find_parsing(program)
    if parsed is None:
        # an empty script starts nothing
        return _add_parser(program, edits[program.main.path]) if program.main.tree.body else DeviceOption()
    file, call, statement = parsed
    is_kept = isinstance(statement, ast.Assign) and statement.value is call
    name = write_node(statement.targets[0]) if isinstance(statement, ast.Assign) and is_kept else "args"
    options = [one for one in program.facts.calls if one.is_method("add_argument")]
    own = next((one for one in options if "--device" in [getattr(word, "value", "") for word in one.node.args]), None)
    flag, why, value = "--device", "the command line chooses the device", f"{name}.device"
    is_own = own is not None and _takes_text(own)
    if own is not None and is_own:
        dest = find_keyword(own.node, "dest")
        value = f"{name}.{dest.value!s}" if isinstance(dest, ast.Constant) else value
        _extend_choices(program, own, edits)
    elif own is not None:
        # the number of a GPU, most often
        flag, why, value = "--accelerator", "`--device` is the number of a GPU here", f"{name}.accelerator"
    if not is_own:
        parser = write_node(call.func.value) if isinstance(call.func, ast.Attribute) else "parser"
        code = f'{parser}.add_argument("{flag}", choices=({_quote(CHOICES)}), help="{_HELP}")'
        edits[file.path].insert_before(statement, code, "option", why)
    needs_process = _needs_process(program)
    choice = _make_choice(value, sets_host=is_own, sets_process=needs_process)
    if not is_kept:
        edits[file.path].insert_before(statement, f"{name} = {file.text_of(call)}\n{choice}", "option", _KEPT)
        edits[file.path].replace(call, name, "option", _KEPT)
    else:
        edits[file.path].insert_after(statement, choice, "option", _KEPT)
    edits[file.path].add_import("import os", why=WHY_ENVIRONMENT)
    return DeviceOption(flag, sets_process=needs_process, path=file.path, statement=statement, is_before=not is_kept)


def _needs_process(program: Program) -> bool:
    """Tell whether the program is one of several processes in any case, and not only where a launcher has said so."""
    made = [call for call in program.facts.calls if call.name.endswith(".init_process_group")]
    asks = any(_ASKS_LAUNCHER.search(file.unit.text) for file in program.files.values())
    return any(not (asks and _is_conditional(program.find_file(call.where.file), call.node)) for call in made)


def _is_conditional(file: Optional[ProgramFile], call: ast.Call) -> bool:
    """Tell whether an `if` stands around a call, or before it in its function."""
    function = None if file is None else file.find_function(call)
    before = [] if function is None else [one for one in function.body if one.lineno < call.lineno]
    return file is not None and any(isinstance(one, ast.If) for one in (*before, *file.iter_above(call)))


def _extend_choices(program: Program, option: Call, edits: Dict[str, FileEdits]) -> None:
    """Plan the edit that lets the program's own option take the devices of a port."""
    owner, choices = program.find_file(option.where.file), find_keyword(option.node, "choices")
    if isinstance(choices, (ast.List, ast.Tuple)) and owner is not None:
        given = [one.value for one in choices.elts if isinstance(one, ast.Constant)]
        inner = ", ".join([*map(write_node, choices.elts), _quote([one for one in CHOICES[:2] if one not in given])])
        text = f"[{inner}]" if isinstance(choices, ast.List) else f"({inner})"
        why = "the option for the device knows the IPU and its simulator"
        edits[owner.path].replace(choices, text, "option", why)


def _make_choice(value: str, *, sets_host: bool, sets_process: bool) -> str:
    """Write what a choice comes to: a port takes tensors of the host, and GPUs are hidden from the program."""
    lines = [
        f'if {value} in ("ipu", "sim"):',
        f'    os.environ["{VARIABLE}"] = {value}',
        *([PROCESS_LINES] if sets_process else []),
        *([f'    {value} = "cpu"  # where the tensors are that a port takes'] if sets_host else []),
        f'if {value} == "cpu" or "{VARIABLE}" in os.environ:',
        '    os.environ["CUDA_VISIBLE_DEVICES"] = ""',
    ]
    return "\n".join(lines)


def _add_parser(program: Program, edits: FileEdits) -> DeviceOption:
    """Give a program without options the one for the device, by a parser of its own."""
    needs_process = _needs_process(program)
    choice = _make_choice("_device.device", sets_host=False, sets_process=needs_process)
    is_taken = any(re.search(r"""["']--device["']""", file.unit.text) for file in program.files.values())
    flag = "--accelerator" if is_taken else "--device"
    answers = not _COMMAND_LINES.isdisjoint(one.name.partition(".")[0] for one in program.facts.imports)
    parser = _OWN_PARSER.format(flag=flag, choices=_quote(CHOICES), help=_HELP)
    code = parser + (_OWN_HELP.lstrip() if answers else "") + choice
    anchor = _find_beginning(edits.file)
    edits.insert_before(anchor, code, "option", "the command line chooses the device")
    for name in ("argparse", "os", "sys"):
        edits.add_import(f"import {name}", why="the option for the device needs it")
    return DeviceOption(flag, sets_process=needs_process, path=edits.file.path, statement=anchor, is_before=True)


def _find_beginning(file: ProgramFile) -> ast.stmt:
    """Find the first statement that does something when the script is started: of its main guard, if it has one."""
    for statement in file.tree.body:
        if isinstance(statement, ast.If) and is_main_guard(statement):
            return statement.body[0]
    for number, statement in enumerate(file.tree.body):
        is_text = number == 0 and isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if not is_text and not isinstance(statement, (ast.Import, ast.ImportFrom, ast.Try)):
            return statement
    return file.tree.body[-1]


def _takes_text(call: Call) -> bool:
    kind, default = find_keyword(call.node, "type"), find_keyword(call.node, "default")
    is_text = kind is None or isinstance(kind, ast.Name) and kind.id == "str"
    is_number = isinstance(default, ast.Constant) and isinstance(default.value, (int, bool))
    return is_text and not is_number and not {one.arg for one in call.node.keywords} & {"action", "nargs"}


def _find_parsing(program: Program) -> Optional[Tuple[ProgramFile, ast.Call, ast.stmt]]:
    """Find where the command line is read: `args = parser.parse_args()`, of an `ArgumentParser`."""
    for call in program.facts.list_methods("parse_args", "parse_known_args"):
        file = program.find_file(call.where.file)
        if file is None or not call.where.programs or any(isinstance(one, ast.List) for one in call.node.args):
            continue
        if any(one.name == "argparse.ArgumentParser" for one in call.receiver):
            statement = file.get_statement(call.node)
            if _keeps_options(file, call.node, statement):
                return file, call.node, statement
    return None


def _keeps_options(file: ProgramFile, call: ast.Call, statement: ast.stmt) -> bool:
    """Tell whether a statement gives what is read one name, returns it, or hands it on: `main(parser.parse_args())`."""
    if isinstance(statement, ast.Assign) and statement.value is call:
        return len(statement.targets) == 1 and isinstance(statement.targets[0], (ast.Name, ast.Attribute))
    inner = next(one for one in file.iter_above(call) if not isinstance(one, ast.Call))
    return inner is statement and isinstance(statement, (ast.Assign, ast.Expr, ast.Return))


def _quote(words: Sequence[str]) -> str:
    return ", ".join(f'"{word}"' for word in words)
