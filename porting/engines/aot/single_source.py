"""A program as one C++ source: its kernels, what calls them, and a runtime of a few functions instead of torch's.

Torch compiles the kernels and what calls them apart, each with thousands of lines of headers, and with each program the
runtime that loads constants, folds them and shares models between threads. Both sources together and `runtime.h`, which
does what a program of this package needs, take the compiler half of the time.

What is changed here are Inductor's internals. Where they look different from what is known, and where the result does
not compile or cannot be loaded, torch builds the program in its own way.
"""

from __future__ import annotations

import inspect
import logging
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any, Dict, Optional

import torch
from torch._inductor import codecache, config, cpp_builder
from torch._inductor.cpu_vec_isa import pick_vec_isa

__all__ = ["install_single_source", "join_sources"]

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


def install_single_source() -> bool:
    """Let Inductor, in this process, build programs from one source; tell whether it does.

    It is not for large programs: what calls their kernels must not be optimized, which would take minutes.
    """
    compiler: Any = getattr(codecache, "AotCodeCompiler", None)
    original = getattr(compiler, "compile", None)
    names = ["graph", "wrapper_code", "kernel_code", "serialized_extern_kernel_nodes", "device_type"]
    if original is None or not set(names) <= set(inspect.signature(original).parameters):
        return False

    def build(graph: Any, wrapper_code: str, kernel_code: str, nodes: Optional[str], **others: Any) -> Any:
        library = None
        if others.get("device_type") == "cpu" and not graph.constants and not graph.torchbind_constants:
            try:
                library = _build_library(wrapper_code, kernel_code, nodes)
            except (AttributeError, TypeError) as error:  # an Inductor with other classes for its commands
                _logger.info("torch builds the program: %s", error)
        return original(graph, wrapper_code, kernel_code, nodes, **others) if library is None else str(library)

    compiler.compile = staticmethod(build)
    return True


def _build_library(wrapper: str, kernels: str, nodes: Optional[str]) -> Optional[Path]:
    """Build the library where Inductor was told to; None if that fails."""
    source = join_sources(wrapper, kernels)
    if source is None:
        return None
    library = Path(config.aot_inductor.output_path)
    library.parent.mkdir(parents=True, exist_ok=True)
    file = library.with_suffix(".cpp")
    file.write_text(source, encoding="utf-8")
    options = cpp_builder.CppTorchDeviceOptions(vec_isa=pick_vec_isa(), device_type="cpu", aot_mode=True)
    builder = cpp_builder.CppBuilder(library.stem, str(file), options, output_dir=str(library.parent))
    command = [*shlex.split(builder.get_command_line()), *_FLAGS]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        _logger.info("torch builds the program: %s", done.stderr.decode(errors="replace")[:2000])
        return None
    if nodes:  # under the name that torch gives them
        library.with_suffix(".wrapper.json").write_text(nodes, encoding="utf-8")
    try:
        torch._C._aoti.AOTIModelContainerRunnerCpu(str(library), 1)
    except RuntimeError as error:
        _logger.info("torch builds the program: %s", error)
        return None
    return library


def join_sources(wrapper: str, kernels: str) -> Optional[str]:
    """Return one source of what calls the kernels and the kernels; None for a runtime that is not known."""
    runtime, end, calls = wrapper.partition(f"\n{_END}\n")
    functions = _find_functions(runtime)
    is_known = functions.items() >= _KNOWN.items() and runtime.lstrip().startswith(_START)
    if not end or not is_known:
        return None
    own = _RUNTIME.read_text(encoding="utf-8")
    # Torch looks for all of them when it loads a library; those that are about constants are never called.
    others = [name for name in functions if f"PORTING_EXPORT {name}(" not in own]
    stubs = "\n".join(f"PORTING_EXPORT {name}() {{ return 1; }}" for name in others)
    # All has one level of optimization: what calls the kernels at a lower one lost a tenth of a small step's speed.
    return "\n".join([kernels, own, stubs, calls])


def _find_functions(runtime: str) -> Dict[str, str]:
    """Return the types of the arguments of each function by which torch runs a program."""
    found = {}
    for name, arguments in _FUNCTION.findall(re.sub(r"//[^\n]*", "", runtime)):
        types = (re.sub(r"\s*\b\w+$", "", " ".join(argument.split())) for argument in arguments.split(","))
        found[name] = ", ".join(types)
    return found
