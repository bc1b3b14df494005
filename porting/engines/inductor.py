"""The engine `inductor`: the same programs with Inductor's wrapper in Python, for devices that `aot` does not serve.

On a CUDA device a program is replayed as a CUDA graph, which takes the launching of its kernels off the host. That
part is written against the documentation of torch and has not run on a GPU in the tests of this project; on a machine
without one everything else runs on the processor. Loading imports Inductor (some 2 s) and compiles nothing, since the
folder holds Inductor's cache with the compiled kernels; for the processor Inductor wants the C++ compiler to be there
all the same, because its version is a part of their names. Each process loads a private copy of the folder, so that
one that cannot be written to will do.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional

import torch

from .aot import LoadedProgram, ProgramLoadError, read_facts
from .call_layout import TensorSpec
from .compile_process import compile_in_child
from .compile_settings import CompileFailure, CompileLimits, CompileReport, CompileSettings
from .cuda_graphs import CudaGraphRunner

__all__ = ["ARTIFACT", "compile_program", "load_artifact", "load_program"]

ARTIFACT = "artifact"
"""The folder with Inductor's cache of the one program."""

_COMPILER = "porting.engines.inductor_compiler"


def compile_program(
    program_file: Path,
    folder: Path,
    *,
    settings: CompileSettings,
    limits: CompileLimits = CompileLimits(),  # noqa: B008 - frozen
    progress: Optional[Callable[[float], None]] = None,
) -> CompileReport:
    """Compile a program into `folder`, which is made and holds only what loading needs; raises CompileFailure."""
    if settings.device == "cuda" and not torch.cuda.is_available():
        raise CompileFailure("error", "there is no CUDA device on this machine")
    return compile_in_child(
        program_file, folder, compiler=_COMPILER, settings=settings, limits=limits, progress=progress
    )


def load_program(folder: Path) -> LoadedProgram:
    """Load what `compile_program` left in `folder`; raises ProgramLoadError."""
    facts = read_facts(folder)
    arguments = [TensorSpec.from_dict(spec) for spec in facts["arguments"]]
    device = str(facts.get("device", "cpu"))
    if device == "cuda" and not torch.cuda.is_available():
        raise ProgramLoadError(folder, "it is for a CUDA device, and there is none")
    run = load_artifact(folder, options=facts.get("options", {}))
    if device == "cuda" and facts.get("cuda_graphs"):
        run = CudaGraphRunner(run, written=facts["written"])
    return LoadedProgram(run, arguments, device=device)


def load_artifact(folder: Path, *, options: Mapping[str, Any]) -> Callable[[List[torch.Tensor]], List[torch.Tensor]]:
    """Load Inductor's cache from a private copy of it, which the process removes when it ends.

    `options` are those that it was compiled with: the kernels are named after the compiler's command line.
    """
    import torch._inductor  # takes seconds, which only this engine should cost
    from torch._inductor import cpu_vec_isa
    from torch._inductor.standalone_compile import CompiledArtifact

    if not (folder / ARTIFACT).is_dir():
        raise ProgramLoadError(folder, f"`{ARTIFACT}` is missing")
    copy = Path(tempfile.mkdtemp(prefix="porting-program-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    shutil.copytree(folder / ARTIFACT, copy / ARTIFACT)
    instruction_set: Any = cpu_vec_isa.VecISA
    check, instruction_set.check_build = instruction_set.check_build, _as_compiled
    try:
        with torch._inductor.config.patch(dict(options)):
            artifact = CompiledArtifact.load(path=str(copy / ARTIFACT), format="unpacked")
    except Exception as error:
        raise ProgramLoadError(folder, f"Inductor cannot load it: {type(error).__name__}: {error}") from error
    finally:
        instruction_set.check_build = check
    return lambda tensors: list(artifact(*tensors))


def _as_compiled(_isa: Any, _code: str) -> bool:
    # which instructions there are was found out when the program was compiled, for this processor
    return True
