"""What names of PyTorch's libraries, and of programs, stand for: the tables of `libraries.txt`, and sets of names."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Pattern, Sequence, Tuple

from porting.source.facts import Kind

__all__ = [
    "NO_GRADIENT_CONTEXTS",
    "PASSING",
    "RETURNING_SELF",
    "SEQUENCES",
    "TENSOR_HOST_METHODS",
    "TENSOR_HOST_NAMES",
    "TENSOR_KINDS",
    "Row",
    "find_class_kind",
    "find_kinds",
    "find_method_kind",
    "find_result_kinds",
    "is_known_library",
    "is_of_python",
    "read_tables",
]

TENSOR_KINDS: FrozenSet[Kind] = frozenset({Kind.LOSS, Kind.OUTPUT, Kind.BATCH, Kind.TENSOR})


class Row(NamedTuple):
    """A row of a table: what a name is that the pattern fits, several kinds for a tuple, and names that it is for."""

    kinds: Tuple[Kind, ...]
    pattern: Pattern[str]
    examples: Tuple[str, ...]


@functools.lru_cache(maxsize=1)
def read_tables() -> Mapping[str, Sequence[Row]]:
    """Read the tables of `libraries.txt`, by the names of their sections."""
    tables: Dict[str, List[Row]] = {}
    rows: List[Row] = []
    for line in (Path(__file__).parent / "libraries.txt").read_text("utf-8").splitlines():
        if line.startswith("["):
            rows = tables.setdefault(line[1:].partition("]")[0], [])
        elif line and not line.startswith("#"):
            kinds, pattern, examples = line.split()
            rows.append(Row(tuple(map(Kind, kinds.split(","))), re.compile(pattern), tuple(examples.split(","))))
    return tables


@functools.lru_cache(maxsize=16384)
def find_kinds(table: str, name: str) -> Tuple[Kind, ...]:
    """Find what a name is by the first row of a table that it fits; nothing where none does."""
    return next((row.kinds for row in read_tables()[table] if row.pattern.fullmatch(name)), ())


def find_result_kinds(name: str) -> Tuple[Kind, ...]:
    """Find what a call of a qualified name returns; nothing where the table does not say.

    >>> find_result_kinds("torch.optim.SGD")
    (<Kind.OPTIMIZER: 'optimizer'>,)
    """
    return find_kinds("calls", name)


def find_class_kind(name: str) -> Optional[Kind]:
    """Find what an instance of a class is that derives from a library's class of this name.

    >>> find_class_kind("torch.nn.Module")
    <Kind.MODULE: 'module'>
    """
    return next(iter(find_kinds("classes", name)), None)


def find_method_kind(kind: Kind, method: str) -> Optional[Kind]:
    """Find what a method of a thing of this kind returns; None where the table does not say."""
    return next(iter(find_kinds("methods", f"{kind.value}.{method}")), None)


RETURNING_SELF = frozenset(
    {"to", "cuda", "cpu", "half", "float", "double", "bfloat16", "train", "eval", "requires_grad_", "type"}
    | {"share_memory", "apply", "to_empty", "ipu", "xpu", "npu", "to_bettertransformer", "compile_", "set_epoch"}
)
"""Methods of modules, ports and optimizers that return what they are called on."""

TENSOR_HOST_METHODS = frozenset(
    {"item", "tolist", "numpy", "size", "dim", "numel", "ndimension", "is_floating_point", "data_ptr", "stride"}
    | {"backward", "is_contiguous", "get_device", "element_size", "nelement", "register_hook", "keys", "__len__"}
)
"""Methods of tensors that return no tensor."""

TENSOR_HOST_NAMES = frozenset(
    {"shape", "dtype", "device", "ndim", "requires_grad", "is_cuda", "grad_fn", "is_leaf", "layout"}
)
"""Attributes of tensors that are no tensors."""

NO_GRADIENT_CONTEXTS = frozenset(
    {"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad", "torch.autograd.inference_mode"}
    | {"torch.autograd.grad_mode.no_grad", "torch.autograd.grad_mode.inference_mode"}
)

SEQUENCES: Mapping[str, str] = {
    "torch.nn.Sequential": "chain",
    "torch.nn.ModuleList": "list",
    "torch.nn.ModuleDict": "dict",
}
"""Modules that hold modules: one that calls them one after the other, and those that are gone through."""

# What goes through what it is given, with the number of the argument.
PASSING: Dict[str, int] = {
    "tqdm.tqdm": 0,
    "tqdm.auto.tqdm": 0,
    "tqdm.notebook.tqdm": 0,
    "tqdm.std.tqdm": 0,
    "tqdm.autonotebook.tqdm": 0,
    "tqdm.tqdm_notebook": 0,
    "tqdm.rich.tqdm": 0,
    "rich.progress.track": 0,
    "fastprogress.progress_bar": 0,
    "fastprogress.master_bar": 0,
    "progressbar.progressbar": 0,
    "builtins.iter": 0,
    "builtins.list": 0,
    "builtins.tuple": 0,
    "builtins.reversed": 0,
    "builtins.sorted": 0,
    "builtins.set": 0,
    "itertools.islice": 0,
    "itertools.cycle": 0,
    "itertools.chain": 0,
    "itertools.takewhile": 1,
    "copy.deepcopy": 0,
    "copy.copy": 0,
    "torch.nn.utils.clip_grad_norm_": -1,
}

_OF_TORCH = frozenset(
    {"torch", "torchvision", "porting", "poptorch", "accelerate", "lightning", "pytorch_lightning", "transformers"}
    | {"ignite", "timm", "popdist", "torchmetrics", "deepspeed", "tokenizers", "datasets", "evaluate", "torchaudio"}
)
_OF_PYTHON = frozenset(
    {"builtins", "numpy", "math", "os", "random", "time", "json", "pandas", "re", "argparse", "pathlib", "sklearn"}
    | {"datetime", "collections", "itertools", "sys", "csv", "pickle", "yaml", "matplotlib", "scipy", "cv2", "PIL"}
    | {"tqdm", "rich", "gym", "gymnasium", "logging", "subprocess", "threading", "queue", "typing", "functools"}
)


def is_of_python(name: str) -> bool:
    """Tell a name of Python's own libraries, or of those that know nothing of torch.

    >>> is_of_python("numpy.random.rand"), is_of_python("torch.nn")
    (True, False)
    """
    return name.partition(".")[0] in _OF_PYTHON


def is_known_library(name: str) -> bool:
    """Tell a name of a library of which is known what its classes are.

    >>> is_known_library("torch.nn.Linear"), is_known_library("src.networks.UNet")
    (True, False)
    """
    return name.partition(".")[0] in _OF_TORCH or is_of_python(name)
