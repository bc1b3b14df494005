"""The forward pass of a search: which operator made each value that is not finite, and of what.

A value that is not finite need not matter: a mask filled with minus infinity is meant, and softmax takes it away. So
the search begins at what came out (loss, outputs, buffers) and goes back from there, to the first operator whose own
inputs were finite. Values are known by their memory, because views and writes in place have several names for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

import torch

from porting.observe.watcher import NamedValue, WatchedOperator

from .not_finite import NotFinite
from .value_ranges import ValueRange, is_not_finite, measure_range

__all__ = ["OperatorRecords"]

_MEANT_KINDS = ("buffer", "constant")


@dataclass(frozen=True)
class _Record:
    """A value that was not finite when it was made, or when it entered; `sources` are the records that it came from.

    `is_meant` says that it holds infinities only, which the program itself names.
    """

    operator: Optional[WatchedOperator]
    kind: str
    inputs: Tuple[ValueRange, ...]
    result: ValueRange
    sources: Tuple[int, ...]
    is_meant: bool


class OperatorRecords:
    """Told of the operators of one micro-batch's forward pass, in their order; `find` then goes back from a result."""

    def __init__(self) -> None:
        """Begin with a micro-batch of which nothing is known."""
        self._records: List[_Record] = []
        # the record that made a piece of memory hold what is not finite, by its address
        self._made_by: Dict[int, int] = {}
        self._started = 0

    def begin(self, inputs: Sequence[NamedValue]) -> Tuple[ValueRange, ...]:
        """Look at what goes into an operator that is about to run, which may overwrite it; return the ranges."""
        for value in inputs:
            if value.kind and is_not_finite(value.tensor) and _find_address(value.tensor) not in self._made_by:
                self._note_input(value)
        self._started = len(self._records)
        return tuple(measure_range(value.name, value.tensor) for value in inputs)

    def end(
        self,
        operator: WatchedOperator,
        inputs: Sequence[NamedValue],
        ranges: Tuple[ValueRange, ...],
        results: Iterable[Tuple[str, torch.Tensor]],
        *,
        names_infinity: bool = False,
    ) -> None:
        """Look at the `results` of an operator that has run on `inputs`, which had these `ranges`.

        `names_infinity` says that an argument of it is an infinity, so that its result is meant to hold some.
        """
        sources: Optional[Tuple[int, ...]] = None
        known = {_find_address(value.tensor) for value in inputs}
        for name, tensor in results:
            address = _find_address(tensor)
            if not is_not_finite(tensor):
                if address not in known or _fills_memory(tensor):
                    self._made_by.pop(address, None)
                continue
            maker = self._made_by.get(address)
            # of a view, or of an operator within this one, which was told of itself
            if maker is not None and (address in known or maker >= self._started):
                continue
            if sources is None:
                sources = self._list_sources(inputs, ranges)
            result = measure_range(name, tensor)
            is_meant = not result.num_nan and (
                names_infinity or (bool(sources) and all(self._records[source].is_meant for source in sources))
            )
            self._made_by[address] = len(self._records)
            self._records.append(_Record(operator, "", ranges, result, sources, is_meant))

    def find(self, name: str, tensor: torch.Tensor, *, allows_meant: bool = False) -> Optional[NotFinite]:
        """Return what made `tensor` hold values that are not finite; None if it is finite.

        With `allows_meant` infinities that the program names are no fault.
        """
        if not is_not_finite(tensor):
            return None
        index = self._made_by.get(_find_address(tensor))
        if index is None:
            range_ = measure_range(name, tensor)
            return NotFinite(phase="forward", message=f"`{name}` is not finite", name=name, result=range_)
        if allows_meant and self._records[index].is_meant:
            return None
        return self._describe_fault(*self._go_back(index), name)

    # -- keeping records -----------------------------------------------------------------------------------------------

    def _note_input(self, value: NamedValue) -> None:
        range_ = measure_range(value.name, value.tensor)
        is_meant = value.kind in _MEANT_KINDS and not range_.num_nan
        self._made_by[_find_address(value.tensor)] = len(self._records)
        self._records.append(_Record(None, value.kind, (), range_, (), is_meant))

    def _list_sources(self, inputs: Sequence[NamedValue], ranges: Tuple[ValueRange, ...]) -> Tuple[int, ...]:
        """Return the records of those inputs that were not finite; of those with NaN only, if there are such."""
        by_kind: Dict[bool, Set[int]] = {True: set(), False: set()}
        for value, range_ in zip(inputs, ranges):
            index = self._made_by.get(_find_address(value.tensor))
            if index is not None and not range_.is_finite:
                by_kind[bool(range_.num_nan)].add(index)
        return tuple(sorted(by_kind[True] or by_kind[False]))

    # -- going back ----------------------------------------------------------------------------------------------------

    def _go_back(self, index: int) -> Tuple[int, Optional[int]]:
        """Return the record that the fault begins with, and the one that it went into next."""
        next_index: Optional[int] = None
        while True:
            record = self._records[index]
            sources = [source for source in record.sources if not self._records[source].is_meant]
            # where all of it is meant from the start, the start is what there is to say
            sources = sources or (list(record.sources) if record.is_meant else [])
            if not sources:
                return index, next_index
            index, next_index = sources[0], index

    def _describe_fault(self, index: int, next_index: Optional[int], name: str) -> NotFinite:
        record = self._records[index]
        following = None if next_index is None else self._records[next_index]
        if record.operator is None:
            return _describe_entering(record, following)
        word = _say_what(record.result)
        notes = [
            f"infinities in it come from {_name_record(self._records[source])}, and are meant there"
            for source in record.sources
        ]
        return NotFinite(
            phase="forward",
            message=f"`{record.operator.name}` of the forward pass makes {word}"
            + ("" if record.sources else " of finite values"),
            operator=record.operator,
            name=name,
            inputs=record.inputs,
            result=record.result,
            notes=tuple(notes),
            help=(_choose_advice(record),),
        )


def _describe_entering(record: _Record, following: Optional[_Record]) -> NotFinite:
    what = {"input": "the batch", "parameter": "the weight"}.get(record.kind, f"the {record.kind}")
    remedy = {
        "input": "look at the data: `torch.isfinite(tensor).all()` in the dataset finds the sample",
        "parameter": "load weights from before, and train with `PortOptions(debug_nan=True)`: it stops in the call",
    }.get(record.kind, "set it to finite values before the call")
    notes: Tuple[str, ...] = ("it is so before the call: no operator of this call made it",)
    if following is not None and following.operator is not None:
        place = f" at {following.operator.place}" if following.operator.place else ""
        notes += (f"it goes into `{following.operator.name}` of `{following.operator.module_name}`{place}",)
    return NotFinite(
        phase="before",
        message=f"{what} `{record.result.name}` holds {_say_what(record.result)} before the call",
        operator=None,
        name=record.result.name,
        result=record.result,
        notes=notes,
        help=(remedy,),
    )


def _say_what(result: ValueRange) -> str:
    return "NaN" if result.num_nan else "infinity"


def _name_record(record: _Record) -> str:
    if record.operator is None:
        return f"the {record.kind} `{record.result.name}`"
    return f"`{record.operator.name}`" + (f" at {record.operator.place}" if record.operator.place else "")


def _choose_advice(record: _Record) -> str:
    # what is beyond the type's range, by far the most frequent case in half precision
    if record.result.dtype == "float16" and not record.result.num_nan:
        return "float16 ends at 65504: scale the values down before, or compute this part in float32"
    if record.sources:
        return "let every row keep a value that is not masked, or fill the mask with a large negative number"
    return "keep the inputs in the operator's domain: `clamp` them, or add a small number where one may be zero"


def _find_address(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _fills_memory(tensor: torch.Tensor) -> bool:
    return tensor.numel() * tensor.element_size() >= tensor.untyped_storage().nbytes()
