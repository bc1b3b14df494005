"""Write a program as one file, which travels to the process that compiles it, and read it.

The first line names the format, its version, and the length and checksum of the rest, which is JSON: a listing of the
graph's operators with their arguments, and what the program's arguments look like. Nothing of a file is executed when
it is read: operators are looked up among those that torch has registered, and names must be plain identifiers.
"""

from __future__ import annotations

import hashlib
import json
import operator
import re
from pathlib import Path
from types import MappingProxyType
from typing import Any, Dict, Mapping

import torch

from ...capture.graph_data import Functions, nodes_from_data, nodes_to_data
from ...capture.plain_values import UndescribableError
from ...diagnostics import ExecutableError
from ...support.atomic_files import write_atomically
from .call_layout import TensorSpec, describe_layout
from .programs import Program

__all__ = ["FORMAT_VERSION", "ProgramFileError", "read_program", "write_program"]

FORMAT_VERSION = 2

_MAGIC = "porting-program"
_HEADER = re.compile(rb"porting-program (\d{1,9}) length=(\d{1,15}) sha256=([0-9a-f]{64})\n")

_FUNCTIONS: Functions = MappingProxyType({"getitem": operator.getitem})


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
    except UndescribableError as error:
        value = error.value
        fault = f"an operator takes {value!r}, of the type `{type(value).__name__}`"
        if callable(value):
            fault = f"the graph calls `{getattr(value, '__name__', value)}`, which is no operator of torch"
        raise ProgramFileError(path, fault) from None
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
    except ExecutableError as error:  # an operator that this torch does not have
        raise ProgramFileError(path, str(error.finding.message)) from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, RuntimeError, TypeError, ValueError) as error:
        raise ProgramFileError(path, f"it describes no program: {type(error).__name__}: {error}") from error


def _check_content(data: bytes) -> bytes:
    """Return what follows the header, after all checks."""
    header = _HEADER.match(data[:200])
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
    # Tracing refuses tensors with values, so that no constant has to travel.
    held = [str(node.target) for node in program.module.graph.nodes if node.op == "get_attr"]
    if held:
        raise _UnfitError(f"the graph holds `{held[0]}`, which is no operator's result")
    return {
        "role": program.role,
        "arguments": [describe_layout(spec) for spec in program.arguments],
        "num_results": program.num_results,
        "has_halves": program.has_halves,
        "nodes": nodes_to_data(program.module.graph, functions=_FUNCTIONS),
    }


def _program_from_data(data: Mapping[str, Any]) -> Program:
    graph = nodes_from_data(data["nodes"], functions=_FUNCTIONS)
    graph.lint()
    arguments = tuple(map(TensorSpec.from_dict, data["arguments"]))
    num_placeholders = sum(node.op == "placeholder" for node in graph.nodes)
    if num_placeholders != len(arguments):
        raise _UnfitError(f"the graph takes {num_placeholders} tensors and {len(arguments)} are described")
    results = graph.output_node().args[0]
    if not isinstance(results, tuple) or len(results) != data["num_results"]:
        raise _UnfitError("the number of its results is wrong")
    return Program(
        role=str(data["role"]),
        module=torch.fx.GraphModule(torch.nn.Module(), graph),
        arguments=arguments,
        num_results=len(results),
        has_halves=bool(data["has_halves"]),
    )
