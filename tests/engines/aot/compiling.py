"""A program that compiles `step.program` of a folder into `out`, for so many threads; a fork of a process that can."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from porting.engines.compiled.compile_settings import CompileSettings

if __name__ == "__main__":
    from porting.engines.aot.compiler import compile_here

    os.chdir(sys.argv[1])
    os.environ.update(TORCHINDUCTOR_CACHE_DIR=os.path.abspath("cache"), TORCHINDUCTOR_COMPILE_THREADS="1", LC_ALL="C")
    Path("out").mkdir()
    compile_here(Path("step.program"), Path("out"), settings=CompileSettings(num_threads=int(sys.argv[2])))
