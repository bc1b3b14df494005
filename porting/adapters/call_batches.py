"""A batch sampler whose length counts device calls, as the loader that is made of it does."""

from __future__ import annotations

from typing import Any, Iterator, List

__all__ = ["CallBatches"]


class CallBatches:
    """The batches of `batches`, of which a loader joins `num_joined` to one call; everything else is its own.

    torch takes the length of a loader from its batch sampler. PopTorch's loader joins batches after that, and would
    give the number of micro-batches.

    >>> batches = CallBatches([[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]], num_joined=2)
    >>> len(batches), list(batches)[0]
    (2, [0, 1])
    """

    def __init__(self, batches: Any, *, num_joined: int) -> None:
        self._batches = batches
        self._num_joined = num_joined

    def __iter__(self) -> Iterator[List[int]]:
        return iter(self._batches)

    def __len__(self) -> int:
        return len(self._batches) // self._num_joined

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_batches":  # asked for while a copy is made, before it has any
            raise AttributeError(name)
        return getattr(self._batches, name)
