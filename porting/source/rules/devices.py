"""Devices: what moves or wraps a model, what needs CUDA, and what joins processes for GPUs."""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Sequence

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, Thing
from porting.source.rules.guards import mentions, normalise_guard, split_guards
from porting.source.rules.names import name_last
from porting.source.rules.reading import Reading
from porting.source.rules.scope import Programs, rule
from porting.source.rules.things import tell_guess

__all__ = ["find_cuda_devices", "find_cuda_only", "find_gpu_processes", "find_gpu_wrappers", "find_moved_ports"]

_MOVES = ("to", "cuda", "cpu", "half", "float", "double", "bfloat16", "type", "xpu")
_WRAPPER = re.compile(
    r"(torch|apex|fairscale|deepspeed)\.(\w+\.)*(data_parallel|(Data|DistributedData|FullyShardedData)Parallel|compile)"
    r"|torch\.distributed\.(\w+\.)*fully_shard"
)


def find_moved_ports(reading: Reading) -> Iterator[Finding]:
    """D003: a port is moved, cast or wrapped."""
    for call in reading.facts.calls if reading.ports else ():
        things = [thing for argument in call.arguments for thing in argument]
        wraps = _is_port(things) and any(_WRAPPER.fullmatch(name) for name in (call.name, *call.other_names))
        moves = call.is_method(*_MOVES) and _is_port(call.receiver)
        if moves or wraps:
            yield reading.report("D003", call.place)


def _is_port(things: Sequence[Thing]) -> bool:
    """Tell whether it is a port whatever way the program has come, and not the bare model on another one."""
    kinds = {thing.kind for thing in things if thing.kind in (Kind.MODULE, Kind.PORT)}
    return kinds == {Kind.PORT}


@rule(Programs.PLAIN)
def find_gpu_wrappers(reading: Reading) -> Iterator[Finding]:
    """D012: a module is wrapped for GPUs."""
    for call in reading.facts.calls:
        # what is called is the wrapped model where it is a thing
        names = () if call.is_on(Kind.MODULE) else (call.name, *call.other_names)
        if any(_WRAPPER.fullmatch(name) or name_last(name) == "convert_sync_batchnorm" for name in names):
            yield reading.report("D012", call.place)
        elif call.is_method("compile") and call.is_on(Kind.MODULE):
            yield reading.report("D012", call.place, guess=tell_guess(call.receiver))


_JOINS = re.compile(
    r"torch\.distributed\.(\w+\.)*init_process_group|torch\.multiprocessing\.(\w+\.)*(spawn|start_processes|Process)"
    r"|deepspeed\.(initialize|init_distributed)|horovod\.torch\.init"
)


@rule(Programs.PLAIN)
def find_gpu_processes(reading: Reading) -> Iterator[Finding]:
    """D018: processes are started or joined."""
    for call in reading.facts.calls:
        if any(_JOINS.fullmatch(name) for name in (call.name, *call.other_names)):
            yield reading.report("D018", call.place)


_CUDA_CALL = re.compile(
    r"torch\.cuda\.((\w+\.)*(set_device|synchronize|Event|Stream|stream|init|current_stream|CUDAGraph|graph)"
    r"|get_device_(name|properties|capability)|current_device|mem_get_info|\w+Tensor)"
)
_GUARD = r"cuda|gpu|device|distributed|ddp|nccl|apex|amp|parallel|rank"
_CONTRARY = r"no_?cuda|cpu"
_DEVICE_LINE = re.compile(
    r"""^\s*(?:self\.|args\.|cfg\.)?\w*(?:device|DEVICE)\w*\s*=\s*['"]cuda(:\d+)?['"]\s*(#.*)?$"""
)


def find_cuda_only(reading: Reading) -> Iterator[Finding]:
    """D013: code that fails on a machine without CUDA."""
    for call in reading.facts.calls:
        if (
            _needs_cuda(call)
            and not call.is_on(Kind.PORT)
            and not any(map(_asks_for_cuda, split_guards(call.where.guards)))
        ):
            yield reading.report("D013", call.place)


@rule(Programs.PLAIN)
def find_cuda_devices(reading: Reading) -> Iterator[Finding]:
    """D013: a line names CUDA as the device."""
    for file in reading.files:
        yield from _find_device_lines(reading, file)


def _asks_for_cuda(guard: ast.expr) -> bool:
    """Tell whether a condition holds only where there is CUDA, or may be there."""
    if not normalise_guard(guard)[1]:
        return mentions((guard,), _CONTRARY) or _excludes_none(guard) and mentions((guard,), _GUARD)
    return mentions((guard,), _GUARD)


def _excludes_none(guard: ast.expr) -> bool:
    """Tell whether a condition, which says no, is that a number of a device or process is there: `local_rank != -1`."""
    while isinstance(guard, ast.UnaryOp) and isinstance(guard.op, ast.Not):
        guard = guard.operand
    if not isinstance(guard, ast.Compare) or len(guard.ops) != 1:
        return False
    none = guard.comparators[0]
    is_negative = isinstance(none, ast.UnaryOp) and isinstance(none.op, ast.USub)
    return is_negative or isinstance(none, ast.Constant) and none.value is None


def _needs_cuda(call: Call) -> bool:
    names = {call.name, *call.other_names, *(thing.name for thing in call.result)}
    if all(_CUDA_CALL.fullmatch(name) for name in names):
        return True
    if call.is_method("cuda"):
        return call.is_on(Kind.MODULE, Kind.CRITERION, Kind.BATCH, Kind.TENSOR, Kind.OUTPUT) or not call.receiver
    if call.name.startswith("torch.") or call.is_method("to"):
        names_device = call.name == "torch.device" or call.is_method("to")
        values = [*(call.node.args[:1] if names_device else ()), *_list_devices(call)]
        return any(isinstance(value, ast.Constant) and str(value.value).startswith("cuda") for value in values)
    return name_last(call.name) == "Trainer" and "lightning" in call.name and _asks_for_gpus(call)


def _list_devices(call: Call) -> List[ast.expr]:
    return [word.value for word in call.node.keywords if word.arg == "device"]


def _asks_for_gpus(call: Call) -> bool:
    words = {word.arg: getattr(word.value, "value", None) for word in call.node.keywords}
    return words.get("accelerator") in ("gpu", "cuda") or bool(words.get("gpus"))


def _find_device_lines(reading: Reading, file: str) -> Iterator[Finding]:
    lines = reading.read_lines(file)
    for number, line in enumerate(lines, start=1):
        before = lines[number - 2] if number > 1 else ""
        if _DEVICE_LINE.match(line) and not re.match(r"\s*(if|elif|else)\b", before):
            column = len(line) - len(line.lstrip()) + 1
            yield reading.report("D013", Place(file, number, column))
