"""What a batch looks like to a compiled graph: names, shapes and types, and what is different about another batch."""

from __future__ import annotations

from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from ..diagnostics import Finding, caller_place

__all__ = ["BatchSignature"]

_KEEP_SHAPES = (
    "let every batch have the same shape: `ported.dataloader(...)`, `drop_last=True`, or "
    "`FixedBatchDataset(dataset, samples_per_call)` for the last one"
)
_IN_THE_FIRST = "in the batch that was compiled for"


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
        self.leaves = [leaf for i, value in enumerate(args) for leaf in _leaves(f"argument {i}", value)]
        self.leaves += [leaf for name in self.keywords for leaf in _leaves(f"`{name}`", kwargs[name])]

    @property
    def rows(self) -> int:
        """The rows of the first tensor that has any: the samples of the batch; 1 when there is none."""
        return next((leaf.shape[0] for leaf in self.leaves if leaf.shape), 1)

    def difference(self, actual: BatchSignature, *, remedy: str) -> Optional[Finding]:
        """Return what is different about the call `actual` (B001, B002 or B003), or None.

        `remedy` says how to compile for other batches.
        """
        if (self.num_positional, self.keywords) != (actual.num_positional, actual.keywords):
            return _arguments_changed(self, actual, remedy)
        ours = {leaf.name: leaf for leaf in self.leaves}
        theirs = {leaf.name: leaf for leaf in actual.leaves}
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            finding = _leaf_difference(name, ours.get(name), theirs.get(name), remedy)
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


def _arguments_changed(expected: BatchSignature, actual: BatchSignature, remedy: str) -> Finding:
    return Finding(
        "B003",
        message="the call has other arguments than the one that was compiled for",
        place=caller_place(),
        label="this call",
        notes=(f"compiled for: {expected}", f"this call:    {actual}"),
        help=("pass the same arguments in the same way, positional or by name, in every call", remedy),
    )


def _leaf_difference(name: str, expected: Optional[_Leaf], actual: Optional[_Leaf], remedy: str) -> Optional[Finding]:
    if expected is None:
        return _finding("B003", f"{name} was not there {_IN_THE_FIRST}", expected, actual, remedy)
    if actual is None:
        return _finding("B003", f"{name} is missing, which was there {_IN_THE_FIRST}", expected, actual, remedy)
    if (expected.shape is None) != (actual.shape is None):
        return _finding("B003", f"{name} is of another kind than {_IN_THE_FIRST}", expected, actual, remedy)
    if expected.shape is not None and expected.dtype != actual.dtype:
        convert = f"convert it: `.to({expected.dtype})`"
        return _finding("B002", f"{name} has another type than {_IN_THE_FIRST}", expected, actual, convert, remedy)
    if expected.shape != actual.shape:
        return _finding(
            "B001", f"{name} has another shape than {_IN_THE_FIRST}", expected, actual, _KEEP_SHAPES, remedy
        )
    if expected.shape is None and not _is_same_value(expected, actual):
        vary = "what is no tensor is compiled in: make it a tensor to vary it from call to call"
        return _finding("B003", f"{name} has another value than {_IN_THE_FIRST}", expected, actual, vary, remedy)
    return None


def _is_same_value(expected: _Leaf, actual: _Leaf) -> bool:
    if expected.dtype is not actual.dtype:
        return False
    try:
        return expected.value is actual.value or bool(expected.value == actual.value)
    except (RuntimeError, TypeError, ValueError):
        # arrays compare element by element and have no truth value: then they are not known to be the same
        return False


def _finding(code: str, fault: str, expected: Optional[_Leaf], actual: Optional[_Leaf], *remedies: str) -> Finding:
    return Finding(
        code,
        message=fault,
        place=caller_place(),
        label="this call",
        notes=(f"compiled for: {_described(expected)}", f"this call:    {_described(actual)}"),
        help=remedies,
    )


def _described(leaf: Optional[_Leaf]) -> str:
    if leaf is None:
        return "nothing"
    if leaf.shape is None:
        return f"{leaf.dtype.__name__} {leaf.value!r:.60}"
    return f"{str(leaf.dtype).replace('torch.', '')}[{', '.join(map(str, leaf.shape))}]"
