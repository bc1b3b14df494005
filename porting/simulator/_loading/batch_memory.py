"""Memory for batches that is used again as soon as nobody refers to the batch that was in it.

Fresh memory for each batch costs more than filling it: the system hands it out page by page.
"""

from __future__ import annotations

import sys
import threading
from typing import Any, Dict, List, Tuple

import torch

__all__ = ["BatchMemory"]

# The one that is filled, the one that the loop works on, and one for somebody who looks back.
_MOST_SLOTS = 3

_storage_use_count: Any = getattr(torch._C, "_storage_Use_Count", None)


class BatchMemory:
    """Tensors for the columns of batches; what was handed out stays as it is for as long as anything refers to it.

    Each tensor handed out is a handle of its own on the memory of a slot. Views of it, arrays that share it, storages
    and graphs of autograd count as references; what was resized or moved into shared memory is not used again.
    """

    def __init__(self) -> None:
        self._columns: Dict[int, List[_Slot]] = {}
        self._lock = threading.Lock()

    def take(self, column: int, shape: Tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return a contiguous tensor with any values in it."""
        with self._lock:
            slots = self._columns.setdefault(column, [])
            for slot in slots:
                if slot.suits(shape, dtype) and slot.is_free():
                    return slot.handle()
            slot = _Slot(shape, dtype)
            if len(slots) == _MOST_SLOTS:
                del slots[0]
            slots.append(slot)
            return slot.handle()

    def __reduce__(self) -> Tuple[Any, ...]:
        return BatchMemory, ()


class _Slot:
    """A tensor that only this module knows, and how many references to its memory there are while nobody has it."""

    def __init__(self, shape: Tuple[int, ...], dtype: torch.dtype) -> None:
        self._base = torch.empty(shape, dtype=dtype)
        self._storage = self._base.untyped_storage()
        self._form = (self._storage.data_ptr(), self._storage.nbytes())
        self._num_references_when_free = self._num_references()

    def suits(self, shape: Tuple[int, ...], dtype: torch.dtype) -> bool:
        """Tell whether the tensor has this form, and is of the mode of inference that torch is in."""
        base = self._base
        return base.shape == shape and base.dtype == dtype and base.is_inference() == torch.is_inference_mode_enabled()

    def is_free(self) -> bool:
        """Tell whether nothing outside of this object refers to the memory."""
        # no variable may refer to the storage while the references are counted
        return (
            _storage_use_count is not None
            and self._num_references() == self._num_references_when_free
            and (self._storage.data_ptr(), self._storage.nbytes()) == self._form
            and not self._storage.is_shared()
        )

    def handle(self) -> torch.Tensor:
        """Return a new tensor in the memory."""
        return self._base.detach()

    def _num_references(self) -> Tuple[int, int]:
        # tensors and graphs refer to the storage behind its Python object, which users may have got hold of as well
        uses = _storage_use_count(self._storage._cdata) if _storage_use_count is not None else 0
        return uses, sys.getrefcount(self._storage)
