"""Load a program that the engine `aot` has compiled, in milliseconds, and run it.

Loading needs torch but neither Inductor nor a C++ compiler. A library may be moved and renamed with its folder. Its
code takes the shapes, strides and dtypes of its arguments for granted, so that `LoadedLibrary` compares them before
each run; it needs no alignment beyond that of the dtype. It also takes for granted that an argument which is written to
shares no memory with another, which only its caller can know. An index out of bounds is an IndexError, and whatever
else goes wrong in a run is an exception too; tensors that the program had already written to have then changed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, List, Sequence, Tuple

import torch

from ...torch_insides.programs import ProgramRunner
from ..compiled import ctc_losses  # noqa: F401 - declares an operator that a library may call
from ..compiled.call_layout import TensorSpec

__all__ = ["LEFT_OUT", "LIBRARY", "OPERATORS", "RUNNER", "LibraryLoadError", "LoadedLibrary", "load_library"]

LIBRARY = "program.so"
"""The library."""

OPERATORS = "program.json"
"""The operators that the library leaves to torch's dispatcher, where there are any; beside it and named like it."""

RUNNER = "runner.json"
"""What the program takes and returns, and the torch that it is for."""


LEFT_OUT = "left_out"
"""In `RUNNER`, what would have made the program faster and this torch lacks, a sentence each."""


class LibraryLoadError(RuntimeError):
    """A folder holds no library that this process can load; `reason` says why, as a clause."""

    def __init__(self, folder: Path, reason: str) -> None:
        """Name the folder and the reason."""
        super().__init__(f"compiled program `{folder}`: {reason}")
        self.folder = folder
        self.reason = reason


class LoadedLibrary:
    """A compiled program in a library: takes its arguments, writes to some of them, and returns its results."""

    def __init__(
        self,
        run: Callable[[List[torch.Tensor]], List[torch.Tensor]],
        arguments: Sequence[TensorSpec],
        *,
        left_out: Sequence[str] = (),
    ) -> None:
        """Wrap `run`, which believes that it gets what `arguments` describe, in the processor's memory.

        `left_out` are sentences about what would have made it faster, had torch been another.
        """
        self.arguments = tuple(arguments)
        self.left_out = tuple(left_out)
        self._run = run
        self._expected: Tuple[Any, ...] = tuple((spec.shape, spec.stride, spec.dtype, True) for spec in arguments)

    def __call__(self, tensors: Sequence[torch.Tensor]) -> List[torch.Tensor]:
        """Run the program; TypeError for other tensors than it was compiled for, IndexError for a bad index."""
        # One tuple against one tuple: in steps of microseconds a loop that explains would show. `_explain_mismatch`
        # does that when they differ.
        given = tuple((tensor.shape, tensor.stride(), tensor.dtype, tensor.is_cpu) for tensor in tensors)
        if given != self._expected:
            raise TypeError(self._explain_mismatch(tensors))
        try:
            return self._run(list(tensors))
        except RuntimeError as error:
            if str(error).startswith("index out of bounds"):
                raise IndexError("an index of the batch, such as a label or a token, is out of bounds") from error
            raise

    def _explain_mismatch(self, tensors: Sequence[torch.Tensor]) -> str:
        if len(tensors) != len(self.arguments):
            return f"the program takes {len(self.arguments)} tensors and got {len(tensors)}"
        for tensor, spec in zip(tensors, self.arguments):
            given = TensorSpec.of(tensor, name=spec.name)
            if given != spec:
                wanted, found = (
                    f"a tensor of shape {list(one.shape)}, strides {list(one.stride)} and {one.dtype}"
                    for one in (spec, given)
                )
                return f"the program was compiled for {wanted} as `{spec.name}` and got {found}"
        return "the program was compiled for tensors in the processor's memory"


def load_library(folder: Path) -> LoadedLibrary:
    """Load what the compiler left in `folder`; raises LibraryLoadError, also for a program of another torch.

    The files must be as they were written, which whoever keeps them must check: a damaged library can end the process.
    """
    try:
        facts = json.loads((folder / RUNNER).read_bytes())
        version, arguments = facts["torch"], facts["arguments"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LibraryLoadError(folder, f"`{RUNNER}` is missing or damaged") from error
    # The library calls into torch by an interface that may change with every version.
    if version != torch.__version__:
        raise LibraryLoadError(folder, f"it is for torch {version}, this is {torch.__version__}")
    if not isinstance(arguments, list):
        raise LibraryLoadError(folder, f"`{RUNNER}` is damaged")
    path = folder / LIBRARY
    if not path.is_file():
        raise LibraryLoadError(folder, f"`{LIBRARY}` is missing")
    try:
        # an absolute path: the system looks for a bare name among its own libraries
        # One model instance: calls of a device come one after another.
        runner = ProgramRunner(str(path.resolve()), 1)
    except (RuntimeError, AttributeError) as error:
        raise LibraryLoadError(folder, f"`{LIBRARY}` cannot be loaded: {str(error).splitlines()[0]}") from error
    left_out = [str(loss) for loss in facts.get(LEFT_OUT, ())]
    return LoadedLibrary(runner.run, list(map(TensorSpec.from_dict, arguments)), left_out=left_out)
