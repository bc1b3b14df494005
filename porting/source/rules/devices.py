"""Judge what a program does with devices.

What moves or wraps a model, asks for CUDA or joins processes for GPUs is not needed by a port.
"""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Sequence

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, ProgramObject
from porting.source.rules.guards import asks_for_cuda
from porting.source.rules.names import name_last
from porting.source.rules.program_objects import tell_guess
from porting.source.rules.reading import Reading
from porting.source.rules.scope import MAY_BE_BARE, Programs, rule

__all__ = ["iter_cuda_devices", "iter_cuda_only", "iter_gpu_processes", "iter_gpu_wrappers", "iter_moved_ports"]

_MOVES = ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "type", "xpu")
_WRAPPER = re.compile(
    r"(torch|apex|fairscale|deepspeed)\.(\w+\.)*(data_parallel|(Data|DistributedData|FullyShardedData)Parallel|compile)"
    r"|torch\.distributed\.(\w+\.)*fully_shard|ignite\.distributed\.(\w+\.)*auto_model"
)


def iter_moved_ports(reading: Reading) -> Iterator[Finding]:
    """D003: a port is moved, cast or wrapped."""
    kept = {one.node.value for one in reading.facts.statements if isinstance(one.node, ast.Assign)}
    for call in reading.facts.calls if reading.ports else ():
        objects = [one for argument in call.arguments for one in argument]
        wraps = _is_port(objects) and any(_WRAPPER.fullmatch(name) for name in (call.name, *call.other_names))
        moves = call.is_method(*_MOVES) and _is_moved(reading, call, is_kept=call.node in kept)
        if moves or wraps:
            yield reading.report("D003", call.place, note=MAY_BE_BARE if reading.may_be_bare(call) else "")


def _is_port(objects: Sequence[ProgramObject]) -> bool:
    """Tell whether it is a port whatever way the program has come, and not the bare model on another one."""
    kinds = {one.kind for one in objects if one.kind in (Kind.MODULE, Kind.PORT)}
    return kinds == {Kind.PORT}


def _is_moved(reading: Reading, call: Call, *, is_kept: bool) -> bool:
    """Tell whether a port is moved; one that may be the bare model, if what comes out takes its place."""
    ports = [one for one in reading.list_met(call) if one.kind is Kind.PORT]
    if is_kept:
        return bool(ports) and (_is_port(call.receiver) or not asks_for_cuda(call.where.guards))
    # PopTorch's executor passes on what casts the weights of its model in place
    casts = call.is_method("half", "float", "double", "bfloat16") and all(map(_is_of_poptorch, ports))
    return _is_port(call.receiver) and not casts


def _is_of_poptorch(port: ProgramObject) -> bool:
    return port.name.startswith("poptorch.")


@rule(Programs.PLAIN)
def iter_gpu_wrappers(reading: Reading) -> Iterator[Finding]:
    """D012: a module is wrapped for GPUs."""
    for call in reading.facts.calls:
        # what is called is the wrapped model where it is a program object
        names = () if call.is_on(Kind.MODULE) else (call.name, *call.other_names)
        if any(_WRAPPER.fullmatch(name) or name_last(name) == "convert_sync_batchnorm" for name in names):
            yield reading.report("D012", call.place)
        elif call.is_method("compile") and call.is_on(Kind.MODULE):
            yield reading.report("D012", call.place, guess=tell_guess(call.receiver))


_JOINS = re.compile(
    r"torch\.distributed\.(\w+\.)*init_process_group|torch\.multiprocessing\.(\w+\.)*(spawn|start_processes|Process)"
    r"|deepspeed\.(initialize|init_distributed)|horovod\.torch\.init"
    r"|ignite\.distributed\.(\w+\.)*(Parallel|spawn|initialize)"
)


@rule(Programs.PLAIN)
def iter_gpu_processes(reading: Reading) -> Iterator[Finding]:
    """D018: processes are started or joined."""
    for call in reading.facts.calls:
        if any(_JOINS.fullmatch(name) for name in (call.name, *call.other_names)):
            yield reading.report("D018", call.place)


_CUDA_CALL = re.compile(
    r"torch\.cuda\.((\w+\.)*(set_device|synchronize|Event|Stream|stream|init|current_stream|CUDAGraph|graph)"
    r"|get_device_(name|properties|capability)|current_device|mem_get_info|\w+Tensor)"
)
_DEVICE_LINE = re.compile(
    r"""^\s*(?:self\.|args\.|cfg\.)?\w*(?:device|DEVICE)\w*\s*=\s*['"]cuda(:\d+)?['"]\s*(#.*)?$"""
)


def iter_cuda_only(reading: Reading) -> Iterator[Finding]:
    """D013: code that fails on a machine without CUDA."""
    for call in reading.facts.calls:
        if _needs_cuda(call) and not call.is_on(Kind.PORT):
            if not asks_for_cuda(call.where.guards) and not _is_asked_beside(reading, call):
                yield reading.report("D013", call.place)


def _is_asked_beside(reading: Reading, call: Call) -> bool:
    """Tell whether the line of a call asks whether there is CUDA, as where two devices are compared."""
    lines = reading.read_lines(call.place.file)[call.place.line - 1 : call.place.line]
    return any("cuda.is_available(" in line for line in lines)


@rule(Programs.PLAIN)
def iter_cuda_devices(reading: Reading) -> Iterator[Finding]:
    """D013: a line names CUDA as the device."""
    for file in reading.files:
        yield from _iter_device_lines(reading, file)


def _needs_cuda(call: Call) -> bool:
    names = (call.name, *call.other_names, *(one.name for one in call.result))
    if all(map(_CUDA_CALL.fullmatch, names)):
        return True
    if call.is_method("cuda"):
        return call.is_on(Kind.MODULE, Kind.CRITERION, Kind.BATCH, Kind.TENSOR, Kind.OUTPUT) or not call.receiver
    if call.name.startswith("torch.") or call.is_method("to"):
        names_device = call.name == "torch.device" or call.is_method("to")
        values = [*(call.node.args[:1] if names_device else ()), *_list_devices(call)]
        return any(map(_names_cuda, values))
    return False


def _names_cuda(node: ast.expr) -> bool:
    """Tell whether a text names CUDA, or one of its devices by a number that is computed."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        return _names_cuda(node.func.value)
    first = node.values[0] if isinstance(node, ast.JoinedStr) and node.values else node
    return isinstance(first, ast.Constant) and str(first.value).startswith("cuda")


def _list_devices(call: Call) -> List[ast.expr]:
    return [word.value for word in call.node.keywords if word.arg == "device"]


def _iter_device_lines(reading: Reading, file: str) -> Iterator[Finding]:
    lines = reading.read_lines(file)
    for number, line in enumerate(lines, start=1):
        before = lines[number - 2] if number > 1 else ""
        if "cuda" in line and _DEVICE_LINE.match(line) and not re.match(r"\s*(if|elif|else)\b", before):
            column = len(line) - len(line.lstrip()) + 1
            yield reading.report("D013", Place(file, number, column))
