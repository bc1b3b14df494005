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
    "TENSOR_KINDS",
    "TENSOR_METHODS",
    "Row",
    "find_asking",
    "find_class_kind",
    "find_kinds",
    "find_method_kind",
    "find_result_kinds",
    "is_host_name",
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
    if name.partition(".")[0] in _OTHER_FRAMEWORKS:
        return None
    return next(iter(find_kinds("classes", name)), None)


_OTHER_FRAMEWORKS = frozenset(
    {"flax", "haiku", "equinox", "tensorflow", "keras", "paddle", "mxnet", "mindspore", "jax"}
)


def find_method_kind(kind: Kind, method: str) -> Optional[Kind]:
    """Find what a method of a thing of this kind returns; None where the table does not say."""
    return next(iter(find_kinds("methods", f"{kind.value}.{method}")), None)


RETURNING_SELF = frozenset(
    {"to", "cuda", "cpu", "half", "float", "double", "bfloat16", "train", "eval", "requires_grad_", "type"}
    | {"share_memory", "apply", "to_empty", "ipu", "xpu", "npu", "to_bettertransformer", "compile_", "set_epoch"}
)
"""Methods of modules, ports and optimizers that return what they are called on."""

TENSOR_HOST_METHODS = frozenset(
    {"item", "tolist", "numpy", "size", "dim", "numel", "ndimension", "data_ptr", "stride", "storage_offset"}
    | {"backward", "get_device", "element_size", "nelement", "register_hook", "keys", "__len__", "result_type"}
)
"""Methods of tensors that return no tensor."""

_TENSOR_HOST_NAMES = frozenset({"shape", "dtype", "device", "ndim", "requires_grad", "grad_fn", "layout", "names"})


def is_host_name(name: str) -> bool:
    """Tell an attribute or method of tensors, or a function of torch's, that gives no tensor and reads none.

    >>> is_host_name("is_xpu"), is_host_name("numel"), is_host_name("isnan"), is_host_name("is_nonzero")
    (True, True, False, False)
    """
    is_question = name.startswith("is_") and name != "is_nonzero"
    return is_question or name in _TENSOR_HOST_NAMES or name in TENSOR_HOST_METHODS


TENSOR_METHODS = frozenset(
    "abs all amax amin any argmax argmin bool clamp clone count_nonzero cpu cross cumsum detach diff div dot"
    " double eq exp flatten float floor ge gt half int isfinite isinf isnan le log logical_and logical_not"
    " logical_or long lt matmul max mean median min mm mul ne neg norm permute pow prod ravel relu reshape round"
    " sigmoid softmax sqrt square squeeze std sub sum tanh trace transpose trunc unique unsqueeze var view".split()
)
"""Methods that only tensors have, or arrays: of what they are called on nothing else need be known."""

_ASKING: Tuple[Tuple[str, str], ...] = (
    (r"\.(item|tolist|numpy|is_nonzero|equal|allclose|__(bool|int|float|index)__)", "method"),
    (r"builtins\.(int|float|bool|complex|range|slice|hex|oct|bin|chr)|math\.\w+|numpy\.(\w+\.)*\w+", "number"),
    (r"torch\.(is_nonzero|equal|allclose|zeros|ones|empty|rand|randn|eye|arange|linspace|full)", "number"),
    (r"\.(repeat|expand|narrow|new_(zeros|ones|empty|full)|topk|unflatten|reshape)", "number of a tensor"),
    (r"builtins\.(any|all|min|max|sorted)", "elements"),
    (r"torch\.(tensor|Tensor|FloatTensor|LongTensor)", "list"),
    (r"builtins\.(str|repr|format|ascii|print)|\.format", "text"),
)
_COMPILED_ASKING = tuple((re.compile(pattern), asked) for pattern, asked in _ASKING)


@functools.lru_cache(maxsize=8192)
def find_asking(name: str) -> str:
    """Find what a call of this name asks of tensors in Python; empty where it asks nothing.

    >>> find_asking("builtins.max"), find_asking(".item"), find_asking("torch.mean")
    ('elements', 'method', '')
    """
    return next((asked for pattern, asked in _COMPILED_ASKING if pattern.fullmatch(name)), "")


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
