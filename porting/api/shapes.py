"""Keep what is compiled for batches of several shapes, and drop the least recently used.

Ported models and host loops use it, for `PortOptions(max_executables=N)`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any, Callable, DefaultDict, Generic, Iterator, List, Mapping, Protocol, Sequence, Set, Tuple, TypeVar

from ..buckets import choose_buckets
from ..diagnostics import Severity
from ..options import PortOptions
from .batch import BatchSignature
from .port import PortFindings
from .runner import Runner

__all__ = ["CompiledShapes"]


class _HasExecutables(Protocol):
    def destroy(self) -> None:
        """Drop the executables."""


_Item = TypeVar("_Item", bound=_HasExecutables)


class CompiledShapes(Generic[_Item]):
    """Keeps an item for each shape of batch, at most `max_executables` of `options`; an iteration begins with the last.

    Where there is no room for another, the one that was not used for longest is destroyed, and compiled anew.
    `make_item` makes one, and `find_runner` returns its runner, which knows what it is compiled for.
    """

    def __init__(
        self,
        make_item: Callable[[], _Item],
        find_runner: Callable[[_Item], Runner],
        findings: PortFindings,
        options: PortOptions,
    ) -> None:
        """Make the first item; nothing is compiled yet."""
        self._make_item = make_item
        self._find_runner = find_runner
        self._findings = findings
        self._most = options.max_executables
        # the last used one is the last
        self._items: List[_Item] = [make_item()]

    def __iter__(self) -> Iterator[_Item]:
        return reversed(self._items)

    @property
    def last(self) -> _Item:
        """The item that was used last."""
        return self._items[-1]

    def find(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> _Item:
        """Return the item that is compiled for this batch, or is to be, and let it be the last.

        Says what differs (B001-B003) where there will be another executable, as a warning where one is dropped for it.
        """
        if self._most == 1:
            return self._items[0]
        found = next((item for item in self if self._find_runner(item).accepts(args, kwargs)), None)
        found = found or next((item for item in self._items if not self._find_runner(item).has_executable()), None)
        if found is None:
            self._say_difference(args, kwargs)
            if len(self._items) < self._most:
                self._items.append(self._make_item())
                return self.last
            found = self._items[0]
            found.destroy()
        self._items.remove(found)
        self._items.append(found)
        return found

    def _say_difference(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        runners = [self._find_runner(item) for item in self._items]
        finding = runners[-1].describe_difference(args, kwargs)
        assert finding is not None
        name, number = runners[-1].record.name, len(runners) + 1
        if number <= self._most:
            message = f"{finding.message}: {name} gets executable {number} of {self._most}"
            self._findings.say(replace(finding, message=message, severity=Severity.NOTE, help=()))
            return
        dropped = f"{name} drops the executable that was not used for longest"
        seen = [runner.signature for runner in runners if runner.signature is not None]
        help = (
            *_suggest_buckets([*seen, BatchSignature(args, kwargs)], self._most),
            f"or keep more executables: `PortOptions(max_executables={number})`",
        )
        message = f"{finding.message}, and `max_executables` is {self._most}: {dropped}"
        self._findings.say(replace(finding, message=message, severity=Severity.WARNING, help=help))


def _suggest_buckets(signatures: Sequence[BatchSignature], num_buckets: int) -> Tuple[str, ...]:
    """Suggest lengths to pad to, if it is in one dimension of a tensor that the batches differ."""
    sizes: DefaultDict[Tuple[str, int], Set[int]] = defaultdict(set)
    for signature in signatures:
        for leaf in signature.leaves:
            for dimension, size in enumerate(leaf.shape or ()):
                sizes[leaf.name, dimension].add(size)
    for (name, dimension), lengths in sizes.items():
        if len(lengths) > num_buckets:
            chosen = choose_buckets(sorted(lengths), num_buckets).lengths
            return (
                f"pad dimension {dimension} of {name} to few lengths, such as {', '.join(map(str, chosen))}: "
                f"`porting.buckets.choose_buckets(lengths, {num_buckets})` finds the best for a dataset",
            )
    return ()
