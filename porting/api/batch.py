"""Make the loader of a port, check the first batch, and tell how later batches differ from it.

Ported models, runners and preflights use it.
"""

from __future__ import annotations

from types import FrameType
from typing import Any, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from .. import adapters
from ..adapters.labels import NO_LABELS, split_labels
from ..diagnostics import BatchError, DeviceError, Finding, OptionError, caller_place, notify
from ..options import PortOptions
from ..structure import Structure, are_equal, is_record, read_fields
from ..support.host_state import keep_streams
from ..torch_insides.modules import BATCH_NORMS, find_parallel_module
from .moves import make_wrapper_error
from .port import Port

__all__ = [
    "BatchSignature",
    "check_first_batch",
    "check_labels",
    "find_foreign_device",
    "has_labels",
    "make_dataloader",
    "refuse_lost_values",
    "refuse_parallel_call",
    "take_first",
]

_INT32, _FLOAT32 = torch.iinfo(torch.int32), torch.finfo(torch.float32)
_RANGES = {torch.int64: (_INT32.min, _INT32.max), torch.float64: (_FLOAT32.min, _FLOAT32.max)}
_NARROW = {torch.int64: "int32", torch.float64: "float32"}
_KEEP_EXECUTABLES = "or keep an executable for each of several shapes: `PortOptions(max_executables=2)`"
_MAKE_TENSOR = "what is no tensor is compiled in: make it a tensor to vary it from call to call"
_KEEP_TEXTS_OUT = (
    "texts are compiled in: leave them out of the call and use them around it, as in "
    "`for images, names, labels in loader: ported(images, labels)`"
)
_KEEP_SHAPES = (
    "let every batch have the same shape: `ported.dataloader(...)`, `drop_last=True`, or "
    "`FixedBatchDataset(dataset, samples_per_call)` for the last one"
)

# These two ask a module around the port for nothing; while they run they are seen by this.
_DATA_PARALLEL = torch.nn.DataParallel.forward.__code__


def make_dataloader(port: Port, source: object, *, training: bool, batch_size: Optional[int], **settings: Any) -> Any:
    """Make the loader of `PortedModel.dataloader`; `settings` are those of `to_ipu_dataloader`."""
    if batch_size is None and (port.options.micro_batch > 1 or not hasattr(source, "batch_size")):
        batch_size = port.options.micro_batch
    dataset = source.dataset if isinstance(source, torch.utils.data.DataLoader) else source
    padded = adapters.find_dataset(dataset, adapters.FixedBatchDataset)
    if padded is not None and padded.num_padding and training:
        for finding in (
            adapters.check_ignore_label(port.loss, padded.ignore_label),
            adapters.note_batchnorm(port.model),
        ):
            if finding is not None:
                notify(finding)
    options = (port.training_options if training else port.inference_options).clone()
    return adapters.to_ipu_dataloader(source, options, backend=port.backend.module, batch_size=batch_size, **settings)


# -- the first batch ---------------------------------------------------------------------------------------------------


def take_first(loader: Iterable[Structure]) -> Structure:
    """Take the first batch of a loader, which begins with the same one the next time.

    The host's random streams and the loader's own generators stay what they were. Raises OptionError P002 for an
    iterator, which would have lost the batch, and for what yields none, and BatchError B005 for an empty loader.
    """
    if isinstance(loader, Iterator):
        fault = f"a `{type(loader).__name__}` yields each batch once, and the training would miss this one"
        raise OptionError.at_caller("P002", message=fault, help="give the loader itself, or call `compile(*batch)`")
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        fault = f"a `{type(loader).__name__}` is no loader: it yields no batches"
        raise OptionError.at_caller("P002", message=fault, help="give a loader, or call `compile(*batch)`")
    parts = (loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None))
    generators = [getattr(part, "generator", None) for part in parts]
    states = [(one, one.get_state()) for one in generators if isinstance(one, torch.Generator)]
    with keep_streams():
        batch = next(iter(loader), NO_LABELS)
    for generator, state in states:
        generator.set_state(state)
    if batch is NO_LABELS:
        raise BatchError.at_caller("B005", message="the loader has no batch", help="give it samples of the data set")
    return batch


def has_labels(port: Port, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Tell whether a call brings labels for the loss; a model with a loss of its own takes all arguments itself."""
    if port.loss is None:
        return False
    return split_labels(port.model.forward, args, kwargs, label=port.label).labels is not NO_LABELS


def check_first_batch(port: Port, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a training batch on another device (B009), of arrays (B012), without labels (D006), of other rows (B001).

    Rows are only checked where the options name a micro-batch; otherwise the batch decides it.
    """
    foreign = find_foreign_device(args, kwargs)
    if foreign is not None:
        raise BatchError(foreign)
    _refuse_arrays(args, kwargs)
    check_labels(port, args, kwargs)
    if port.options.micro_batch > 1:
        _check_rows(port.options, args, kwargs)


def check_labels(port: Port, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a training call without labels (D006), or with arguments that fit neither model nor label (L006)."""
    if port.loss is not None and not has_labels(port, args, kwargs):
        averages = any(isinstance(part, BATCH_NORMS) and part.momentum is None for part in port.model.modules())
        anew = "compute statistics anew on the host: `torch.optim.swa_utils.update_bn(loader, ported.model)`"
        raise DeviceError.at_caller(
            "D006",
            message="a training call got no labels",
            label="this call",
            help=(
                *([anew] if averages else ()),
                "pass them, `output, loss = ported(inputs, labels)`: the call computes the loss and makes the step",
                "to predict, use `ported.inference()(inputs)`",
                "pass a dictionary by keyword, `ported(**batch)`, and name the label's key: `to_ipu(..., label='y')`",
            ),
        )


def _refuse_arrays(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse (B012) what holds numbers and is no tensor; it would be compiled in."""
    named = [*((f"argument {number}", value) for number, value in enumerate(args)), *kwargs.items()]
    for name, value in named:
        if hasattr(value, "__array_interface__") and not isinstance(value, torch.Tensor):
            kind = type(value)
            raise BatchError.at_caller(
                "B012",
                message=f"{name} is a {kind.__module__}.{kind.__qualname__}, not a tensor",
                label="this call",
                help="convert it: `torch.from_numpy(...)`, or take batches from `ported.dataloader(dataset)`",
            )


def _check_rows(options: PortOptions, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor) and value.dim()]
    rows = [tensor.shape[0] for tensor in tensors]
    # some arguments may hold no samples, as the edges of a graph
    if rows and options.samples_per_call not in rows:
        raise BatchError.at_caller(
            "B001",
            message=f"the batch has {rows[0]} rows, the options ask for {options.samples_per_call}",
            label="this call",
            notes=(
                f"rows = {options.micro_batch} micro-batch x {options.accumulation} accumulation x "
                f"{options.replicas} replicas x {options.device_iterations} device iterations",
            ),
            help="take batches from `ported.dataloader(...)`, or change `micro_batch`",
        )


def find_foreign_device(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Optional[Finding]:
    """Return the finding B009 for an argument that is not in the host's memory, or None."""
    for value in [*args, *kwargs.values()]:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return Finding(
                "B009",
                message=f"a tensor of the batch is on `{value.device}`",
                place=caller_place(),
                label="this call",
                help="leave batches on the CPU: the call moves them to the device itself",
            )
    return None


# -- the values of every batch -----------------------------------------------------------------------------------------


def refuse_lost_values(args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise BatchError B011 if an argument of 64 bits has a value that the device's 32 bits cannot hold.

    The device would compute with another one: 2**32 + 1 becomes 1, and 1e300 infinite. Infinite and missing values of
    the batch itself pass.
    """
    for position, value in enumerate(args):
        _check_values(value, "argument ", position)
    for name, value in kwargs.items():
        _check_values(value, "", f"`{name}`")


def _check_values(value: object, prefix: str, name: object) -> None:
    if isinstance(value, torch.Tensor):
        if value.dtype in _RANGES and value.is_cpu and value.numel():
            _refuse_if_lost(value, prefix, name)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_values(item, f"{prefix}{name}", f"[{key!r}]")
    elif is_record(value):
        for field, item in read_fields(value).items():
            _check_values(item, f"{prefix}{name}", f".{field}")
    elif isinstance(value, (list, tuple)):
        for position, item in enumerate(value):
            _check_values(item, f"{prefix}{name}", f"[{position}]")


def _refuse_if_lost(tensor: torch.Tensor, prefix: str, name: object) -> None:
    least, most = torch.aminmax(tensor)
    low, high = _RANGES[tensor.dtype]
    # comparisons with a missing value are false
    if least.item() >= low and most.item() <= high:
        return
    values = tensor.detach()
    lost = (values < low) | (values > high)
    if values.dtype.is_floating_point:
        lost &= values.isfinite() & values.to(torch.float32).isinf()
    if not lost.any():
        return
    position = lost.nonzero()[0].tolist()
    where = f" at [{', '.join(map(str, position))}]" if position else ""
    wide = str(tensor.dtype).replace("torch.", "")
    raise BatchError.at_caller(
        "B011",
        message=f"{prefix}{name} has the value {tensor[tuple(position)].item()}{where}, which is beyond "
        f"{_NARROW[tensor.dtype]}",
        label="this call",
        notes=f"the device has no {wide}: it would compute with another value, and say nothing",
        help=(
            "hash or number identifiers anew, so that they are small: `torch.unique(ids, return_inverse=True)`"
            if tensor.dtype == torch.int64
            else "scale the data before the call"
        ),
    )


# -- batches that differ from the first one ----------------------------------------------------------------------------


class _Leaf(NamedTuple):
    """A leaf of a batch: a tensor's shape and type, or the type and value of what was compiled in."""

    name: str
    shape: Optional[Tuple[int, ...]]
    dtype: Any
    value: Any = None


class BatchSignature:
    """The arguments of a call as names, shapes and types, without the tensors.

    >>> signature = BatchSignature([torch.ones(4, 2)], {"labels": torch.zeros(4, dtype=torch.int64)})
    >>> print(signature)
    argument 0: float32[4, 2], `labels`: int64[4]
    >>> signature.rows
    4
    """

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.num_positional = len(args)
        self.keywords = sorted(kwargs)
        self.leaves = [leaf for i, value in enumerate(args) for leaf in _list_leaves(f"argument {i}", value)]
        self.leaves += [leaf for name in self.keywords for leaf in _list_leaves(f"`{name}`", kwargs[name])]

    @property
    def rows(self) -> int:
        """The rows of the first tensor that has any: the samples of the batch; 1 when there is none."""
        return next((leaf.shape[0] for leaf in self.leaves if leaf.shape), 1)

    def difference(self, actual: BatchSignature, *, remedy: str) -> Optional[Finding]:
        """Return what is different about the call `actual` (B001, B002 or B003), or None.

        `remedy` says how to compile for other batches.
        """
        if (self.num_positional, self.keywords) != (actual.num_positional, actual.keywords):
            fault = "the call has other arguments than the one that was compiled for"
            advice = "pass the same arguments in the same way, positional or by name, in every call"
            return _make_finding("B003", fault, str(self), str(actual), advice, remedy)
        ours = {leaf.name: leaf for leaf in self.leaves}
        theirs = {leaf.name: leaf for leaf in actual.leaves}
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            finding = _compare_leaves(name, ours.get(name), theirs.get(name), remedy)
            if finding is not None:
                return finding
        return None

    def __str__(self) -> str:
        """List the arguments with their shapes and types."""
        return ", ".join(f"{leaf.name}: {_describe_leaf(leaf)}" for leaf in self.leaves) or "no arguments"


def _list_leaves(name: str, value: object) -> List[_Leaf]:
    if isinstance(value, torch.Tensor):
        return [_Leaf(name, tuple(value.shape), value.dtype)]
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in _list_leaves(f"{name}[{key!r}]", item)]
    if is_record(value):
        return [leaf for field, item in read_fields(value).items() for leaf in _list_leaves(f"{name}.{field}", item)]
    if isinstance(value, (list, tuple)):
        return [leaf for i, item in enumerate(value) for leaf in _list_leaves(f"{name}[{i}]", item)]
    return [_Leaf(name, None, type(value), value)]


def _compare_leaves(name: str, expected: Optional[_Leaf], actual: Optional[_Leaf], remedy: str) -> Optional[Finding]:
    code, fault = "B003", ""
    advice: List[str] = []
    if expected is None or actual is None:
        fault = "was not there" if expected is None else "is missing, which was there"
    elif (expected.shape is None) != (actual.shape is None):
        fault = "is of another kind than"
    elif expected.shape is not None and expected.dtype != actual.dtype:
        code, fault, advice = "B002", "has another type than", [f"convert it: `.to({expected.dtype})`"]
    elif expected.shape != actual.shape:
        code, fault, advice = "B001", "has another shape than", [_KEEP_SHAPES]
    elif expected.shape is None and (expected.dtype is not actual.dtype or not are_equal(expected.value, actual.value)):
        fault = "has another value than"
        advice = [_KEEP_TEXTS_OUT if isinstance(actual.value, str) else _MAKE_TENSOR]
    if not fault:
        return None
    fault = f"{name} {fault} in the batch that was compiled for"
    others = [_KEEP_EXECUTABLES] if code == "B001" else []
    return _make_finding(code, fault, _describe_leaf(expected), _describe_leaf(actual), *advice, remedy, *others)


def _make_finding(code: str, fault: str, expected: str, actual: str, *remedies: str) -> Finding:
    return Finding(
        code,
        message=fault,
        place=caller_place(),
        label="this call",
        notes=(f"compiled for: {expected}", f"this call:    {actual}"),
        help=remedies,
    )


def _describe_leaf(leaf: Optional[_Leaf]) -> str:
    if leaf is None:
        return "nothing"
    if leaf.shape is None:
        return f"{leaf.dtype.__name__} {leaf.value!r:.60}"
    return f"{str(leaf.dtype).replace('torch.', '')}[{', '.join(map(str, leaf.shape))}]"


def refuse_parallel_call(frame: FrameType) -> None:
    """Raise DeviceError D003 if `frame`, which calls a port, belongs to a wrapper for several devices."""
    if frame.f_code is _DATA_PARALLEL or (frame.f_back is not None and frame.f_back.f_code is _DATA_PARALLEL):
        raise make_wrapper_error("DataParallel")
    if find_parallel_module() is not None:
        raise make_wrapper_error("DistributedDataParallel")
