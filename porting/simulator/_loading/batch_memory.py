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
            slot = next((slot for slot in slots if slot.is_free_for(shape, dtype)), None)
            if slot is None:
                slot = _Slot(shape, dtype)
                if len(slots) == _MOST_SLOTS:
                    # whoever has its tensor keeps the memory
                    del slots[0]
                slots.append(slot)
            return slot.base.detach()

    def __reduce__(self) -> Tuple[Any, ...]:
        # a copied or pickled loader begins without memory: what was handed out is the original's
        return BatchMemory, ()


class _Slot:
    """A tensor that only this module knows, and how many references to its memory there are while nobody has it."""

    def __init__(self, shape: Tuple[int, ...], dtype: torch.dtype) -> None:
        self.base = torch.empty(shape, dtype=dtype)
        self._storage = self.base.untyped_storage()
        self._form = (self._storage.data_ptr(), self._storage.nbytes())
        self._num_references_when_free = self._count_references()

    def is_free_for(self, shape: Tuple[int, ...], dtype: torch.dtype) -> bool:
        """Tell whether it has this form, is of torch's present mode of inference, and nothing outside refers to it."""
        base = self.base
        # no variable may refer to the storage while the references are counted
        return (
            base.shape == shape
            and base.dtype == dtype
            and base.is_inference() == torch.is_inference_mode_enabled()
            and _storage_use_count is not None
            and self._count_references() == self._num_references_when_free
            # it was neither resized nor moved into shared memory
            and (self._storage.data_ptr(), self._storage.nbytes()) == self._form
            and not self._storage.is_shared()
        )

    def _count_references(self) -> Tuple[int, int]:
        # tensors and graphs refer to the storage behind its Python object, which users may have got hold of as well
        uses = _storage_use_count(self._storage._cdata) if _storage_use_count is not None else 0
        return uses, sys.getrefcount(self._storage)
