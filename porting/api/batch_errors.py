"""Why a call failed: the backend's complaint compared with the batch that the model was compiled for."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from ..diagnostics import BatchError, CaptureError, DeviceError, Finding, Place, PortingError, caller_place

__all__ = ["BatchSignature", "explain_failure", "rows_of"]

_RECOMPILE = "call `ported.destroy()` first to compile for the new batch, or keep batches alike"
_KEEP_SHAPES = (
    "let every batch have the same shape: `ported.dataloader(...)`, `drop_last=True`, or "
    "`FixedBatchDataset(dataset, samples_per_call)` for the last one"
)


class _Leaf(NamedTuple):
    """A leaf of a batch: a tensor's shape and type, or the value that was baked in."""

    name: str
    shape: Optional[Tuple[int, ...]]
    dtype: Any
    value: Any = None


class BatchSignature:
    """The arguments of a call as names, shapes and types."""

    def __init__(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Remember `args` and `kwargs` without keeping any tensor."""
        self.num_positional = len(args)
        self.keywords = sorted(kwargs)
        self.leaves = [leaf for i, value in enumerate(args) for leaf in _leaves(f"argument {i}", value)]
        self.leaves += [leaf for name in self.keywords for leaf in _leaves(f"`{name}`", kwargs[name])]

    def difference(self, actual: BatchSignature) -> Optional[Finding]:
        """Return what is different about the call `actual`, or None."""
        if (self.num_positional, self.keywords) != (actual.num_positional, actual.keywords):
            return _arguments_changed(self, actual)
        ours = {leaf.name: leaf for leaf in self.leaves}
        theirs = {leaf.name: leaf for leaf in actual.leaves}
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            finding = _leaf_difference(name, ours.get(name), theirs.get(name))
            if finding is not None:
                return finding
        return None

    def __str__(self) -> str:
        """List the arguments with their shapes and types."""
        return ", ".join(f"{leaf.name}: {_described(leaf)}" for leaf in self.leaves) or "no arguments"


def _leaves(name: str, value: Any) -> List[_Leaf]:
    if isinstance(value, torch.Tensor):
        return [_Leaf(name, tuple(value.shape), value.dtype)]
    if isinstance(value, Mapping):
        return [leaf for key, item in value.items() for leaf in _leaves(f"{name}[{key!r}]", item)]
    if isinstance(value, (list, tuple)):
        return [leaf for i, item in enumerate(value) for leaf in _leaves(f"{name}[{i}]", item)]
    return [_Leaf(name, None, type(value), value)]


def _leaf_difference(name: str, expected: Optional[_Leaf], actual: Optional[_Leaf]) -> Optional[Finding]:
    if expected is None or actual is None:
        return _finding("B003", f"{name} {'was not there' if expected is None else 'is missing'}", expected, actual)
    if (expected.shape is None) != (actual.shape is None):
        return _finding("B003", f"{name} is of another kind", expected, actual)
    if expected.shape is not None and expected.dtype != actual.dtype:
        return _finding("B002", f"{name} has another type", expected, actual)
    if expected.shape != actual.shape:
        return _finding("B001", f"{name} has another shape", expected, actual)
    if expected.shape is None and (expected.dtype is not actual.dtype or not _same_value(expected.value, actual.value)):
        return _finding("B003", f"{name} has another value, and values are compiled in", expected, actual)
    return None


def _same_value(expected: Any, actual: Any) -> bool:
    try:
        return bool(expected == actual)
    except Exception as error:
        raise TypeError(f"cannot compare {type(expected).__name__} with {type(actual).__name__}") from error


def _finding(code: str, message: str, expected: Optional[_Leaf], actual: Optional[_Leaf]) -> Finding:
    notes = [f"expected: {_described(expected)}", f"actual:   {_described(actual)}"]
    helps: Dict[str, Tuple[str, ...]] = {
        "B001": (_KEEP_SHAPES, _RECOMPILE),
        "B002": (f"convert it: `.to({expected.dtype if expected else ''})`", _RECOMPILE),
    }
    return Finding(
        code,
        message=f"{message} than in the batch that the model was compiled for" if "another" in message else message,
        place=caller_place(),
        label="this call",
        notes=tuple(notes),
        help=helps.get(code, (_RECOMPILE,)),
    )


def _described(leaf: Optional[_Leaf]) -> str:
    if leaf is None:
        return "nothing"
    if leaf.shape is None:
        return f"{leaf.dtype.__name__} {leaf.value!r:.60}"
    return f"{str(leaf.dtype).replace('torch.', '')}[{', '.join(map(str, leaf.shape))}]"


def _arguments_changed(expected: BatchSignature, actual: BatchSignature) -> Finding:
    return Finding(
        "B003",
        message="the call has other arguments than the one that the model was compiled for",
        place=caller_place(),
        label="this call",
        notes=(f"expected: {expected}", f"actual:   {actual}"),
        help=_RECOMPILE,
    )


def explain_failure(
    error: BaseException, expected: Optional[BatchSignature], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Optional[PortingError]:
    """Return the toolkit's error for `error`, which a backend raised for a call, or None when it says enough.

    Backends that explain themselves carry the `finding`; otherwise the arguments are compared with those of the
    compilation.
    """
    finding = getattr(error, "finding", None)
    if isinstance(finding, Finding) and not isinstance(error, PortingError):
        return (DeviceError if finding.code.startswith(("S", "D")) else CaptureError)(finding)
    if isinstance(error, PortingError):
        return None
    if expected is not None:
        difference = expected.difference(BatchSignature(args, kwargs))
        if difference is not None:
            return BatchError(difference)
    if "Invalid batch dimension" in str(error):
        return BatchError(_not_divisible(str(error), args, kwargs))
    return None


def _not_divisible(vendor_text: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Finding:
    return Finding(
        "B004",
        message=f"a batch of {rows_of(args, kwargs)} rows cannot be cut into equal micro-batches",
        place=caller_place(),
        label="this call",
        notes=("rows = micro-batch x accumulation x replicas x device iterations", vendor_text.split("\n", 1)[0]),
        help="hand over `options.samples_per_call` rows: `ported.dataloader(...)` makes such batches",
    )


def rows_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the number of rows of the first tensor among the arguments; 1 when there is none."""
    signature = BatchSignature(args, kwargs)
    for leaf in signature.leaves:
        if leaf.shape:
            return leaf.shape[0]
    return 1


def foreign_device(args: Sequence[Any], kwargs: Mapping[str, Any], place: Optional[Place] = None) -> Optional[Finding]:
    """Return the finding for a tensor that is not in the host's memory, or None."""
    for value in [*args, *kwargs.values()]:
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            return Finding(
                "B009",
                message=f"a tensor of the batch is on `{value.device}`",
                place=place or caller_place(),
                label="this call",
                help="leave batches on the CPU: the call moves them to the device itself",
            )
    return None
