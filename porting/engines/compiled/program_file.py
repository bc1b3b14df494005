"""A program as one file: how it travels to the process that compiles it.

The first line names the format, its version, and the length and checksum of the rest, which is JSON: a listing of the
graph's operators with their arguments, and what the program's arguments look like. Nothing of a file is executed when
it is read: operators are looked up among those that torch has registered, and names must be plain identifiers.
"""

from __future__ import annotations

import base64
import hashlib
import json
import keyword
import math
import operator
import re
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping

import torch

from ...support.atomic_files import write_atomically
from .call_layout import TensorSpec
from .programs import Program

__all__ = ["FORMAT_VERSION", "ProgramFileError", "read_program", "write_program"]

FORMAT_VERSION = 1

_MAGIC = "porting-program"
_MAX_HEADER = 200
_HEADER = re.compile(rb"porting-program (\d{1,9}) length=(\d{1,15}) sha256=([0-9a-f]{64})\n")

# Operators that reach out of the process: no tracing makes them, and no file may.
_REFUSED = ("aten::from_file", "aten::_from_file")

_DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_FLAGS: Mapping[str, Any] = {
    str(flag): flag
    for flag in (
        torch.strided,
        torch.contiguous_format,
        torch.preserve_format,
        torch.channels_last,
        torch.channels_last_3d,
    )
}


class ProgramFileError(ValueError):
    """A program cannot be written to a file, or a file holds none that can be read; `reason` says why, as a clause."""

    def __init__(self, path: Path, reason: str) -> None:
        """Name the file and the reason."""
        super().__init__(f"program file `{path}`: {reason}")
        self.path = path
        self.reason = reason


class _UnfitError(Exception):
    """A part of a graph or of a file that is not as it must be."""


def write_program(program: Program, path: Path) -> None:
    """Write `program` to `path`, whole or not at all.

    Raises ProgramFileError for a part that no file can hold, such as a Python function, and OSError for a full disk.
    """
    try:
        data = _program_to_data(program)
    except _UnfitError as error:
        raise ProgramFileError(path, str(error)) from None
    content = json.dumps(data, separators=(",", ":"), allow_nan=False).encode()
    digest = hashlib.sha256(content).hexdigest()
    header = f"{_MAGIC} {FORMAT_VERSION} length={len(content)} sha256={digest}\n"
    write_atomically(path, header.encode() + content)


def read_program(path: Path) -> Program:
    """Read the program that `write_program` wrote.

    Raises ProgramFileError for a file that is damaged, incomplete, of another version, or holds what this torch lacks,
    and OSError where there is none.
    """
    try:
        return _program_from_data(json.loads(_check_content(path.read_bytes())))
    except _UnfitError as error:
        raise ProgramFileError(path, str(error)) from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, RuntimeError, TypeError, ValueError) as error:
        raise ProgramFileError(path, f"it describes no program: {type(error).__name__}: {error}") from error


def _check_content(data: bytes) -> bytes:
    """Return what follows the header, after all checks."""
    header = _HEADER.match(data[:_MAX_HEADER])
    if header is None:
        is_one = data.startswith(_MAGIC.encode())
        raise _UnfitError("its first line is damaged" if is_one else "it is no program file")
    if int(header[1]) != FORMAT_VERSION:
        raise _UnfitError(f"it has version {int(header[1])} of the format, this is version {FORMAT_VERSION}")
    content = data[header.end() :]
    if len(content) != int(header[2]):
        raise _UnfitError(f"it is incomplete: {len(content)} of {int(header[2])} bytes are there")
    if hashlib.sha256(content).hexdigest().encode() != header[3]:
        raise _UnfitError("it is damaged: its checksum is wrong")
    return content


# -- a program as data -------------------------------------------------------------------------------------------------


def _program_to_data(program: Program) -> Dict[str, Any]:
    constants: Dict[str, Any] = {}
    for node in program.module.graph.nodes:
        if node.op == "get_attr":
            value = getattr(program.module, str(node.target), None)
            if not isinstance(value, torch.Tensor):
                raise _UnfitError(f"the graph holds `{node.target}`, which is no tensor")
            constants[str(node.target)] = _tensor_to_data(value)
    return {
        "role": program.role,
        "arguments": [spec.to_dict() for spec in program.arguments],
        "written": list(program.written),
        "num_results": program.num_results,
        "has_halves": program.has_halves,
        "constants": constants,
        "nodes": [_node_to_data(node) for node in program.module.graph.nodes],
    }


def _program_from_data(data: Mapping[str, Any]) -> Program:
    module = torch.nn.Module()
    for name, value in data["constants"].items():
        module.register_buffer(_check_identifier(name), _tensor_from_data(value))
    graph = _graph_from_data(data["nodes"], constants=set(data["constants"]))
    arguments = tuple(map(TensorSpec.from_dict, data["arguments"]))
    num_placeholders = sum(node.op == "placeholder" for node in graph.nodes)
    if num_placeholders != len(arguments):
        raise _UnfitError(f"the graph takes {num_placeholders} tensors and {len(arguments)} are described")
    if not all(isinstance(index, int) and 0 <= index < len(arguments) for index in data["written"]):
        raise _UnfitError("it writes to arguments that it does not have")
    results = graph.output_node().args[0]
    if not isinstance(results, tuple) or len(results) != data["num_results"]:
        raise _UnfitError("the number of its results is wrong")
    return Program(
        role=str(data["role"]),
        module=torch.fx.GraphModule(module, graph),
        arguments=arguments,
        written=tuple(data["written"]),
        num_results=len(results),
        has_halves=bool(data["has_halves"]),
    )


def _node_to_data(node: torch.fx.Node) -> Dict[str, Any]:
    data: Dict[str, Any] = {"op": node.op, "name": node.name}
    if node.op == "call_function":
        data["target"] = _name_target(node.target)
        data["kwargs"] = {name: _to_data(value) for name, value in node.kwargs.items()}
    elif node.op == "get_attr":
        data["target"] = str(node.target)
    elif node.op not in ("placeholder", "output"):
        raise _UnfitError(f"the graph has a node of the kind `{node.op}`")
    data["args"] = [_to_data(value) for value in node.args]
    return data


def _graph_from_data(data: List[Mapping[str, Any]], *, constants: Any) -> torch.fx.Graph:
    graph = torch.fx.Graph()
    nodes: Dict[str, torch.fx.Node] = {}
    for item in data:
        name, op = _check_identifier(item["name"]), item["op"]
        if name in nodes or (nodes and op == "output" and item is not data[-1]):
            raise _UnfitError(f"the graph has `{name}` twice or goes on after its end")
        args = tuple(_from_data(value, nodes) for value in item["args"])
        if op == "call_function":
            kwargs = {_check_identifier(key): _from_data(value, nodes) for key, value in item["kwargs"].items()}
            nodes[name] = graph.create_node(op, _find_target(item["target"]), args, kwargs, name=name)
        elif op == "placeholder" and not args:
            nodes[name] = graph.create_node(op, name, name=name)
        elif op == "get_attr" and item["target"] in constants:
            nodes[name] = graph.create_node(op, item["target"], name=name)
        elif op == "output" and len(args) == 1:
            nodes[name] = graph.create_node(op, "output", args, name=name)
        else:
            raise _UnfitError(f"the graph has a node `{name}` of an unknown kind")
    if not data or data[-1]["op"] != "output":
        raise _UnfitError("the graph has no end")
    graph.lint()
    return graph


def _check_identifier(name: Any) -> str:
    """Return a name that may become part of a program; fx writes graphs as Python source."""
    if not isinstance(name, str) or not name.isascii() or not name.isidentifier() or keyword.iskeyword(name):
        raise _UnfitError(f"{name!r} is no name")
    return name


# -- operators ---------------------------------------------------------------------------------------------------------


def _name_target(target: Any) -> str:
    if target is operator.getitem:
        return "getitem"
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    raise _UnfitError(f"the graph calls `{getattr(target, '__name__', target)}`, which is no operator of torch")


def _find_target(name: str) -> Callable[..., Any]:
    if name == "getitem":
        return operator.getitem
    parts = str(name).split(".")
    if len(parts) != 3 or not all(part.isidentifier() for part in parts):
        raise _UnfitError(f"{name!r} is no name of an operator")
    namespace, packet, overload = parts
    if not torch._C._dispatch_has_kernel(f"{namespace}::{packet}" + ("" if overload == "default" else f".{overload}")):
        raise _UnfitError(f"this torch has no operator `{name}`")
    found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    if not isinstance(found, torch._ops.OpOverload) or found._schema.name in _REFUSED:
        raise _UnfitError(f"the operator `{name}` may not be in a program")
    return found


# -- values ------------------------------------------------------------------------------------------------------------


def _to_data(value: Any) -> Any:
    """Describe an argument; what JSON has no word for is a dictionary with the single key of its kind."""
    if type(value) in (type(None), bool, int, str):
        return value
    if isinstance(value, torch.fx.Node):
        return {"node": value.name}
    for kind, content in _DESCRIBED.items():
        if isinstance(value, kind):
            return content(value)
    raise _UnfitError(f"an operator takes {value!r}, of the type `{type(value).__name__}`")


def _find_flag(value: Any) -> Dict[str, str]:
    if str(value) not in _FLAGS:
        raise _UnfitError(f"an operator takes `{value}`")
    return {"flag": str(value)}


_DESCRIBED: Mapping[type, Callable[[Any], Any]] = {
    float: lambda value: value if math.isfinite(value) else {"float": repr(value)},
    complex: lambda value: {"complex": [repr(value.real), repr(value.imag)]},
    tuple: lambda value: {"tuple": list(map(_to_data, value))},
    list: lambda value: {"list": list(map(_to_data, value))},
    dict: lambda value: {"dict": [[_to_data(key), _to_data(item)] for key, item in value.items()]},
    slice: lambda value: {"slice": list(map(_to_data, (value.start, value.stop, value.step)))},
    torch.device: lambda value: {"device": str(value)},
    torch.dtype: lambda value: {"dtype": str(value)},
    torch.layout: _find_flag,
    torch.memory_format: _find_flag,
}


def _from_data(data: Any, nodes: Mapping[str, torch.fx.Node]) -> Any:
    if not isinstance(data, dict):
        if data is None or isinstance(data, (bool, int, str, float)):
            return data
        raise _UnfitError("an argument has no kind")
    (kind, value), *others = data.items()
    if others:
        raise _UnfitError("an argument has several kinds")
    if kind == "node":
        return nodes[value]
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](value, lambda item: _from_data(item, nodes))
    return _VALUES[kind](value)


_CONTAINERS: Mapping[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
    "tuple": lambda value, read: tuple(map(read, value)),
    "list": lambda value, read: list(map(read, value)),
    "dict": lambda value, read: {read(key): read(item) for key, item in value},
    "slice": lambda value, read: slice(*map(read, value)),
}
_VALUES: Mapping[str, Callable[[Any], Any]] = {
    "float": float,
    "complex": lambda value: complex(float(value[0]), float(value[1])),
    "device": torch.device,
    "dtype": lambda value: _DTYPES[value],
    "flag": lambda value: _FLAGS[value],
}


def _tensor_to_data(value: torch.Tensor) -> Dict[str, Any]:
    if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
        raise _UnfitError("a constant of the graph is no plain tensor of the host")
    spec = TensorSpec.of(value, name="")
    flat = value.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    content = flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""
    if sys.byteorder != "little":
        raise _UnfitError("constants can only be kept on little-endian machines")
    return {**spec.to_dict(), "content": base64.b64encode(content).decode()}


def _tensor_from_data(data: Mapping[str, Any]) -> torch.Tensor:
    spec = TensorSpec.from_dict(data)
    content = base64.b64decode(data["content"], validate=True)
    flat = torch.frombuffer(bytearray(content), dtype=spec.dtype) if content else torch.empty(0, dtype=spec.dtype)
    wanted = flat.reshape(spec.shape)
    laid_out = torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype)
    return laid_out.copy_(wanted)
