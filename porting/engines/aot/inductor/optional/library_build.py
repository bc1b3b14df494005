"""Build kernels and what calls them at once, with a runtime of a few functions.

Torch compiles the two one after the other, and with what calls the kernels its runtime, which loads constants, folds
them and shares models between threads. `runtime.h` does what a program of this package needs. Kernels of many lines are
several sources, as many as there are processors.

What is changed here are Inductor's internals. Where they look different from what is known, and where the result does
not compile or cannot be loaded, torch builds the program in its own way.
"""

from __future__ import annotations

import inspect
import logging
import re
import shlex
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

import torch

from .....support.bound_process import find_free_memory
from .....support.process import usable_cores
from .....torch_insides.exchanged import exchanged
from .....torch_insides.inductor import (
    LIBRARIES,
    AotCodeCompiler,
    CppBuilder,
    CppTorchDeviceOptions,
    config,
    pick_library_isa,
)
from .....torch_insides.programs import ProgramRunner

__all__ = [
    "choose_level_of_calls",
    "choose_number_of_sources",
    "compile_library",
    "own_library_build",
    "split_kernels",
    "write_calls",
]

_logger = logging.getLogger("porting")

_RUNTIME = Path(__file__).with_name("runtime.h")

# Torch's runtime: the headers of a device, then the functions by which a program is run.
_START = "#include <torch/csrc/inductor/aoti_include/cpu.h>"
_END = '} // extern "C"'
_FUNCTION = re.compile(r"\bAOTIRuntimeError\s+(AOTInductor\w+)\(([^)]*)\)")
# The functions that `runtime.h` has for torch to call, with the types of the arguments that it takes for granted.
_CONTAINER = "AOTInductorModelContainerHandle"
_KNOWN = {
    "AOTInductorModelContainerCreateWithDevice": f"{_CONTAINER}*, size_t, const char*, const char*",
    "AOTInductorModelContainerDelete": _CONTAINER,
    "AOTInductorModelContainerRun": f"{_CONTAINER}, AtenTensorHandle*, size_t, AtenTensorHandle*, size_t, "
    "AOTInductorStreamHandle, AOTIProxyExecutorHandle",
    "AOTInductorModelContainerGetNumOutputs": f"{_CONTAINER}, size_t*",
    "AOTInductorModelContainerGetNumConstants": f"{_CONTAINER}, size_t*",
    "AOTInductorModelContainerGetCallSpec": f"{_CONTAINER}, const char**, const char**",
}
# The C++ that torch asks for is newer than what its headers need, and its library longer.
_FLAGS = ("-std=c++17", "-w")
# Each kernel begins with it.
_KERNEL_START = "#include <torch/csrc/inductor/cpp_prefix.h>"
# What the compiler takes, in seconds: for the headers, and for a character of kernels, or of what calls them.
_SECONDS_OF_KERNELS, _SECONDS_OF_CALLS = 1.1, 0.7
_SECONDS_OF_CHARACTER = {"kernels": 6e-6, "": 1.5e-5, "-O1": 5e-6, "-O0": 4e-6}
_MOST_AT_ONCE = 4
# what a compiler takes for a large source
_BYTES_OF_COMPILER = 1 << 30
# At a lower level than that of the kernels the calls of a step of 40 us lose it a tenth of its speed. Beside operators
# that write so much each they are nothing; and to optimize very many takes minutes.
_BYTES_OF_LARGE_OPERATOR, _MANY_OPERATORS = 32 << 10, 1000


class _Source(NamedTuple):
    """C++ and the level at which it is optimized, that of the kernels where it is empty."""

    text: str
    level: str = ""


def choose_level_of_calls(graph: torch.fx.Graph) -> str:
    """Return the flag of the compiler for what calls the kernels of `graph`; empty for that of the kernels.

    Its nodes need values (`meta["val"]`).

    >>> choose_level_of_calls(torch.fx.Graph())
    ''
    """
    values = (node.meta.get("val") for node in graph.nodes if node.op == "call_function")
    sizes = [value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor)]
    if len(sizes) >= _MANY_OPERATORS:
        return "-O0"
    return "-O1" if sum(sizes) > _BYTES_OF_LARGE_OPERATOR * len(sizes) else ""


@contextmanager
def own_library_build(*, level_of_calls: str) -> Iterator[None]:
    """Let Inductor build libraries as this module does while the context lasts, if it is one that is known.

    MissingPart for a torch without the classes.
    """
    LIBRARIES.require()
    names = ["graph", "wrapper_code", "kernel_code", "serialized_extern_kernel_nodes", "device_type"]
    if not set(names) <= set(inspect.signature(AotCodeCompiler.compile).parameters):
        yield
        return
    original = AotCodeCompiler.compile

    def build(graph: Any, wrapper_code: str, kernel_code: str, nodes: Optional[str], **others: Any) -> Any:
        library = None
        if others.get("device_type") == "cpu" and not graph.constants and not graph.torchbind_constants:
            try:
                library = _build_library(wrapper_code, kernel_code, nodes, level_of_calls)
            except (AttributeError, TypeError) as error:  # an Inductor with other classes for its commands
                _logger.info("torch builds the program: %s", error)
        return original(graph, wrapper_code, kernel_code, nodes, **others) if library is None else str(library)

    with exchanged(AotCodeCompiler, "compile", lambda _original: staticmethod(build)):
        yield


def _build_library(wrapper: str, kernels: str, nodes: Optional[str], level_of_calls: str) -> Optional[Path]:
    """Build the library where Inductor was told to; None if that fails."""
    calls = write_calls(wrapper)
    if calls is None:
        return None
    at_once = max(1, int(min(usable_cores(), _MOST_AT_ONCE, find_free_memory() / _BYTES_OF_COMPILER)))
    num_sources = choose_number_of_sources(len(kernels), len(calls), level_of_calls, at_once=at_once)
    sources = [_Source(calls, level_of_calls), *map(_Source, split_kernels(kernels, num_sources))]
    library = Path(config.aot_inductor.output_path)
    library.parent.mkdir(parents=True, exist_ok=True)
    # here, because Inductor's settings are those of a thread
    commands = [_prepare_source(source, library.with_suffix(f".{i}.cpp")) for i, source in enumerate(sources)]
    objects = [library.with_suffix(f".{i}.o") for i in range(len(sources))]
    try:
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(_run_command, commands))
        _link_library(_write_command(library, objects))
        ProgramRunner(str(library), 1)
    except RuntimeError as error:
        _logger.info("torch builds the program: %s", str(error)[:2000])
        return None
    if nodes:  # under the name that torch gives them
        library.with_suffix(".wrapper.json").write_text(nodes, encoding="utf-8")
    return library


def compile_library(source: str, library: Path) -> None:
    """Compile C++ as that of a program is compiled; RuntimeError with what the compiler says if that fails."""
    file = library.with_suffix(".cpp")
    file.write_text(source, encoding="utf-8")
    _link_library([*_write_command(library, [file]), *_FLAGS])


def _prepare_source(source: _Source, file: Path) -> List[str]:
    """Write a source into `file`, and return the command that makes an object beside it."""
    file.write_text(source.text, encoding="utf-8")
    command = _write_command(file.with_suffix(".o"), [file], compile_only=True)
    return [*command, *_FLAGS, *filter(None, [source.level])]


def _write_command(target: Path, sources: Sequence[Path], **options: Any) -> List[str]:
    """Return the command that makes `target`, with Inductor's settings of this thread."""
    of_torch = CppTorchDeviceOptions(vec_isa=pick_library_isa(), device_type="cpu", aot_mode=True, **options)
    builder = CppBuilder(target.stem, [*map(str, sources)], of_torch, output_dir=str(target.parent))
    return shlex.split(builder.get_command_line())


def _link_library(command: Sequence[str]) -> None:
    """Run a command that links, with a linker that looks through torch's libraries in a third of the time if it can."""
    name = next((name for name in ("lld", "gold") if shutil.which(f"ld.{name}")), "")
    if name:
        with suppress(RuntimeError):  # the compiler may not know it
            _run_command([*command, f"-fuse-ld={name}"])
            return
    _run_command(command)


def _run_command(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace"))


def choose_number_of_sources(kernels: int, calls: int, level_of_calls: str, *, at_once: int) -> int:
    """Return in how many sources so many characters of kernels compile soonest, beside what calls them.

    `at_once` compilers run.

    >>> choose_number_of_sources(100_000, 100_000, "", at_once=2)
    1
    >>> choose_number_of_sources(2_000_000, 100_000, "-O0", at_once=4)
    3
    """

    def estimate_seconds(num_sources: int) -> float:
        of_kernels = _SECONDS_OF_KERNELS + kernels / num_sources * _SECONDS_OF_CHARACTER["kernels"]
        busy = [_SECONDS_OF_CALLS + calls * _SECONDS_OF_CHARACTER[level_of_calls]] + [0.0] * (at_once - 1)
        for _source in range(num_sources):
            busy[busy.index(min(busy))] += of_kernels
        return max(busy)

    return min(range(1, at_once + 1), key=estimate_seconds)


def split_kernels(kernels: str, num_sources: int) -> List[str]:
    """Return the kernels in `num_sources` of about the same size, or fewer where there are not so many kernels.

    >>> split_kernels("void kernel() {}", 2)
    ['void kernel() {}']
    """
    first, *others = re.split(f"^(?={re.escape(_KERNEL_START)})", kernels, flags=re.MULTILINE)
    sources = [first] + [""] * (num_sources - 1)
    done = len(first)
    for kernel in others:
        middle = done + len(kernel) // 2
        sources[middle * num_sources // len(kernels)] += kernel
        done += len(kernel)
    return [source for source in sources if source]


def write_calls(wrapper: str) -> Optional[str]:
    """Return what calls the kernels with the runtime of this package, from a `wrapper` with torch's.

    None for a runtime that is not known.
    """
    runtime, end, calls = wrapper.partition(f"\n{_END}\n")
    functions = _collect_functions(runtime)
    is_known = functions.items() >= _KNOWN.items() and runtime.lstrip().startswith(_START)
    if not end or not is_known:
        return None
    own = _RUNTIME.read_text(encoding="utf-8")
    # Torch looks for all of them when it loads a library; those that are about constants are never called.
    others = [name for name in functions if f"PORTING_EXPORT {name}(" not in own]
    stubs = "\n".join(f"PORTING_EXPORT {name}() {{ return 1; }}" for name in others)
    return "\n".join([own, stubs, calls])


def _collect_functions(runtime: str) -> Dict[str, str]:
    """Return the types of the arguments of each function by which torch runs a program."""
    found = {}
    for name, arguments in _FUNCTION.findall(re.sub(r"//[^\n]*", "", runtime)):
        types = (re.sub(r"\s*\b\w+$", "", " ".join(argument.split())) for argument in arguments.split(","))
        found[name] = ", ".join(types)
    return found
