"""Let a program that was written for GPUs run without one, and leave to the port what GPUs needed wrappers for.

What is guarded already stays as it is; on a machine with a GPU nothing changes.
"""

from __future__ import annotations

import ast
import re
from typing import Dict, Iterator, List

from porting.convert.bindings import Undecided
from porting.convert.device_option import PROCESS_LINES, WHY_ENVIRONMENT, DeviceOption
from porting.convert.editing import FileEdits
from porting.convert.forward_devices import name_device
from porting.convert.program import Program
from porting.convert.trees import ProgramFile, find_keyword, write_node

__all__ = ["free_of_cuda"]

_HAS_GPU = "torch.cuda.is_available()"
_DEVICE = re.compile(r"cuda(:\d+)?$")
_RANK = re.compile(r"(^|\.|_)(local_rank|rank|gpu|gpu_id|device_id)$")
"""What programs call the number of a process's GPU."""
_COUNT = "torch.cuda.device_count"
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "DDP", "compile", "script")
_NO_MOVE = re.compile(r"torch\.cuda\.|(torch\.)?nn\.Module\.")  # the method itself, as an override calls it
_STATEMENTS = ("set_device", "synchronize", "reset_peak_memory_stats", "reset_max_memory_allocated", "ipc_collect")
_TENSORS = re.compile(r"torch\.cuda\.(\w+Tensor)$")
_WHY_HOST = "without a GPU it stays on the host"


def free_of_cuda(program: Program, option: DeviceOption, edits: Dict[str, FileEdits]) -> List[Undecided]:
    """Plan the edits of all that only a GPU can do and nothing guards; return what is left."""
    left: List[Undecided] = []
    is_wrapped = any(one in file.unit.text for file in program.files.values() for one in ("DataParallel", "DDP("))
    for path, file_edits in edits.items():
        file = program.find_file(path)
        if file is None or "torch" not in file.unit.text:
            continue
        for node in ast.walk(file.tree):
            if isinstance(node, ast.Call):
                _change_call(program, file, node, option, file_edits)
            elif isinstance(node, ast.Constant) and _is_device(file, node):
                if not _is_guarded(file, node):
                    _require_torch(file_edits)
                    where = name_device(program, file, node) or f'WHOLE if {_HAS_GPU} else "cpu"'
                    file_edits.replace(node, where, "cuda", _WHY_HOST)
            elif isinstance(node, ast.Attribute) and not _is_guarded(file, node):
                if is_wrapped and node.attr == "module" and isinstance(node.ctx, ast.Load):
                    _unwrap(node, option, file_edits)
                _change_type(node, file_edits)
    return left


def _change_call(program: Program, file: ProgramFile, call: ast.Call, option: DeviceOption, edits: FileEdits) -> None:
    name = write_node(call.func)
    last = name.rpartition(".")[2]
    statement = file.get_statement(call)
    if _is_of_processes(file, call, name):
        edits.add_import("import os", why=WHY_ENVIRONMENT)
        _change_processes(file, call, option, edits)
    elif _is_guarded(file, call):
        return
    elif last == "cuda" and isinstance(call.func, ast.Attribute) and not _NO_MOVE.match(name):
        _require_torch(edits)
        where = call.args[0] if call.args else find_keyword(call, "device")
        gpu = '"cuda"' if where is None else f"{file.text_of(where)}"
        home = name_device(program, file, call) or f'{gpu} if {_HAS_GPU} else "cpu"'
        edits.replace(call, f"PART.to({home})", "cuda", _WHY_HOST, part=call.func.value)
    elif last == "to" and call.args and _RANK.search(write_node(call.args[0])):
        _require_torch(edits)
        edits.replace(call.args[0], f'WHOLE if {_HAS_GPU} else "cpu"', "cuda", _WHY_HOST)
    elif name.startswith("torch.cuda.") and last in _STATEMENTS and isinstance(statement, ast.Expr):
        edits.guard(statement, statement, f"not {_HAS_GPU}", "", "cuda", "it is for a GPU alone")


def _is_of_processes(file: ProgramFile, call: ast.Call, name: str) -> bool:
    """Tell whether a call makes or counts processes, or wraps a model for them or for a compiler."""
    last = name.rpartition(".")[2]
    return last == "init_process_group" or name == _COUNT or last in _WRAPPERS and _is_wrapper(file, call, name)


def _change_processes(file: ProgramFile, call: ast.Call, option: DeviceOption, edits: FileEdits) -> None:
    """Let a port be one process, without a wrapper around its model."""
    name = write_node(call.func)
    if name == _COUNT:
        if option.sets_process:
            edits.replace(call, f"(1 if {option.test} else WHOLE)", "process", "a port has one process")
    elif not name.endswith("init_process_group"):
        edits.replace(call, f"PART if {option.test} else WHOLE", "wrapper", "a port needs none", part=call.args[0])
    else:
        if not option.sets_process:
            code = f"if {option.test}:  # one process, unless a launcher has said otherwise\n{PROCESS_LINES}"
            edits.insert_before(file.get_statement(call), code, "process", "a port has replicas instead")
        for node in [*call.args[:1], *(one.value for one in call.keywords if one.arg == "backend")]:
            if isinstance(node, ast.Constant) and node.value == "nccl":
                edits.replace(node, f'"nccl" if {_HAS_GPU} else "gloo"', "process", "NCCL is for GPUs alone")


def _is_wrapper(file: ProgramFile, call: ast.Call, name: str) -> bool:
    """Tell whether a call wraps a model; `re.compile` and the like do not."""
    if not call.args or isinstance(call.args[0], ast.Starred):
        return False
    return name.rpartition(".")[2] not in ("compile", "script") or name in ("torch.compile", "torch.jit.script")


def _unwrap(node: ast.Attribute, option: DeviceOption, edits: FileEdits) -> None:
    """Let `model.module` be the model itself, where a port has no wrapper around it."""
    edits.add_import("import os", why=WHY_ENVIRONMENT)
    edits.replace(node, f"(PART if {option.test} else WHOLE)", "wrapper", "a port needs none", part=node.value)


def _change_type(node: ast.Attribute, edits: FileEdits) -> None:
    found = _TENSORS.match(write_node(node))
    if found is not None:
        edits.replace(node, f"(torch.cuda.{found[1]} if {_HAS_GPU} else torch.{found[1]})", "cuda", _WHY_HOST)


def _is_device(file: ProgramFile, node: ast.Constant) -> bool:
    """Tell whether a text is the name of a GPU that a tensor or module is moved to."""
    if not isinstance(node.value, str) or not _DEVICE.match(node.value):
        return False
    above = next(file.iter_above(node))
    if isinstance(above, ast.keyword):
        return above.arg in ("device", "map_location")
    if isinstance(above, ast.Call):
        return write_node(above.func).rpartition(".")[2] in ("to", "device") and above.args[:1] == [node]
    return isinstance(above, ast.Assign) and all("device" in write_node(one).lower() for one in above.targets)


def _is_guarded(file: ProgramFile, node: ast.AST) -> bool:
    """Tell whether a test of a GPU, or of an option for one, stands around a node."""
    inner = node
    for above in file.iter_above(node):
        if isinstance(above, (ast.If, ast.IfExp, ast.While)) and inner is not above.test:
            test = write_node(above.test).lower()
            if any(word in test for word in ("cuda", "gpu", "device", "is_available")):
                return True
        if isinstance(above, ast.keyword) and above.arg == "type" or isinstance(above, (ast.Compare, ast.BoolOp)):
            return True
        if isinstance(above, ast.Call) and "add_argument" in write_node(above.func):
            return True
        inner = above
    return any("is_available" in text for text in _iter_tests_before(file, node))


def _iter_tests_before(file: ProgramFile, node: ast.AST) -> Iterator[str]:
    """Iterate over the tests of the function around a node that end it: `if not torch.cuda.is_available(): return`."""
    function = file.find_function(node)
    for one in [] if function is None else function.body:
        if isinstance(one, ast.If) and one.lineno < getattr(node, "lineno", 0):
            if isinstance(one.body[-1], (ast.Return, ast.Raise)):
                yield write_node(one.test)


def _require_torch(edits: FileEdits) -> None:
    edits.add_import("import torch", why="whether there is a GPU is asked for")
