"""Let what runs in `forward` make its tensors where those of the model are, instead of on a device that is named.

In a port a tensor on the host meets none of the device. The device of a tensor is the named one wherever the program
ran before, so that nothing else changes.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Dict, Iterator, List

from porting.convert.editing import FileEdits
from porting.convert.program import Program
from porting.convert.trees import Function, ProgramFile, write_node
from porting.source.facts import Call
from porting.source.library import NAMES
from porting.source.patches.homes import find_home
from porting.source.patches.tensors import Tensors
from porting.source.patches.uses import read_tree
from porting.source.rules.factories import list_homeless_calls
from porting.source.rules.names import name_last

__all__ = ["follow_tensors", "name_device"]

_DEVICE = re.compile(r"(?i)(.*_)?(device|dev)$")
# what holds settings, and no tensor
_SETTINGS = re.compile(r"(self\.)?(_?(args|opts?|options|config|cfg|conf|hparams|params|flags|settings))$|(self|cls)$")
_HOLDS_WEIGHTS = re.compile(r"\b(Linear|Conv\w+|Embedding\w*|LSTM\w*|GRU\w*|RNN\w*|\w*Norm\w*|Parameter)\(")
_OF_MODEL = "next(self.parameters()).device"
_MOVES = re.compile(r"\.(cuda|to|type_as)\(")
_WHY = "in a port it is made where the model's tensors are"


def follow_tensors(program: Program, edits: Dict[str, FileEdits]) -> None:
    """Plan the edits of devices in what a model's call runs: of those named, and of factories that name none."""
    for file, function in program.list_forward_functions():
        for node in _iter_named(file, function):
            code = name_device(program, file, node)
            if code:
                edits[file.path].replace(node, code, "device", _WHY)
    for made in list_homeless_calls(program.facts):
        _give_device(program, made, edits)


def _give_device(program: Program, made: Call, edits: Dict[str, FileEdits]) -> None:
    """Give a factory the device that it does not name; not where its random numbers are the host's, and moved later."""
    file, body = program.find_file(made.where.file), made.where.body
    code = "" if file is None else name_device(program, file, made.node)
    is_of_host = name_last(made.name) in NAMES["random"] and body is not None and _MOVES.search(write_node(body))
    if file is not None and code and not is_of_host:
        edits[file.path].add_argument(made.node, "device", code, "device", _WHY)


def name_device(program: Program, file: ProgramFile, node: ast.expr) -> str:
    """Name the device of a tensor for a factory, or in the place of a device's name; empty where none is known.

    A factory's tensor goes to one that it provably meets, and all else where the module's weights are. Outside of
    `forward` no device is named.
    """
    function = file.find_function(node)
    if function is None or not any(function is one for _file, one in program.list_forward_functions()):
        return ""
    source = read_tree(Path(file.path).read_bytes())
    above = next(file.iter_above(node))
    is_named = isinstance(above, ast.keyword) and above.arg == "device"
    call = next(file.iter_above(above)) if is_named else node
    makes_tensor = isinstance(call, ast.Call) and write_node(call.func) != "torch.device"
    home = find_home(source, file.unit.place_of(call), is_named=is_named) if makes_tensor else None
    if home is not None and home.is_proven:
        return f"{home.tensor}.device"
    owner = file.find_class(function)
    own = "" if owner is None else "\n".join(write_node(one) for _file, one in program.iter_classes(owner.name))
    if _HOLDS_WEIGHTS.search(own) and function.args.args[:1] and function.args.args[0].arg == "self":
        return _OF_MODEL
    tensors = Tensors(function, modules=source.modules, last_line=function.lineno).parameters
    moved = write_node(above.func) if isinstance(above, ast.Call) else ""
    return next((f"{name}.device" for name in tensors if not moved.startswith(f"{name}.")), "")


def _iter_named(file: ProgramFile, function: Function) -> Iterator[ast.expr]:
    """Iterate over the expressions of a function that name a device and do not ask a tensor, or a caller, for it."""
    own = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    own |= {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}
    owner = file.find_class(function)
    asked = {one.name for one in owner.body if isinstance(one, ast.FunctionDef)} if owner is not None else set()
    waiting: List[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            is_named = node.id not in own and bool(_DEVICE.match(node.id))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            is_named = bool(_DEVICE.match(node.attr) and _SETTINGS.match(write_node(node.value)))
            is_named = is_named and node.attr not in asked
        elif isinstance(node, ast.IfExp):
            is_named = all(isinstance(one, ast.Constant) and _is_text(one) for one in (node.body, node.orelse))
        else:
            is_named = isinstance(node, ast.Call) and write_node(node.func) == "torch.device"
        if isinstance(node, ast.expr) and is_named:
            if not isinstance(next(file.iter_above(node), None), (ast.Attribute, ast.Compare)):
                yield node
        else:
            waiting += ast.iter_child_nodes(node)


def _is_text(node: ast.Constant) -> bool:
    return isinstance(node.value, str) and bool(re.match(r"(cuda|cpu)(:\d+)?$", node.value))
