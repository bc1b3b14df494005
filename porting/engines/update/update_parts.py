"""Update parameters in parts, so that what the formulae keep in between is as large as a part.

A part also stays in the caches from one operator to the next.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

import torch

__all__ = ["cut_update"]

Tensors = List[torch.Tensor]
Part = Tuple[Tensors, Tensors, Dict[str, Tensors]]

# Of single precision: small enough for caches, and large enough for its operators to cost nothing beside their work.
# A power of two, so that vectors end where they would have ended.
_PART_ELEMENTS = 1 << 18
_IMAGE_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def cut_update(
    weights: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    state: Mapping[str, Sequence[torch.Tensor]],
    *,
    cuts_tensors: bool,
) -> Iterator[Part]:
    """Yield weights, gradients and state of one part after the other; all are updated in place.

    Small tensors share a part. A large one is cut, for formulae that go element by element (`cuts_tensors`), if its
    gradient and state are laid out as it is. Counts in the state, which have no dimensions, are the same in each part.
    """
    if sum(weight.numel() for weight in weights) <= _PART_ELEMENTS:
        yield list(weights), list(gradients), {slot: list(tensors) for slot, tensors in state.items()}
        return
    rows: List[Tensors] = []
    num_elements = 0
    for whole in zip(weights, gradients, *state.values()):
        for row in _cut_tensors(whole) if cuts_tensors else [list(whole)]:
            if rows and num_elements + row[0].numel() > _PART_ELEMENTS:
                yield _join_rows(rows, state)
                rows, num_elements = [], 0
            rows.append(row)
            num_elements += row[0].numel()
    yield _join_rows(rows, state)


def _join_rows(
    rows: Sequence[Tensors], state: Mapping[str, Sequence[torch.Tensor]]
) -> Tuple[Tensors, Tensors, Dict[str, Tensors]]:
    weights, gradients, *slots = map(list, zip(*rows))
    return weights, gradients, dict(zip(state, slots))


def _cut_tensors(tensors: Sequence[torch.Tensor]) -> Iterator[Tensors]:
    """Cut a weight, its gradient and its state alike, in the order of their memory."""
    weight = tensors[0]
    of_weight = [tensor for tensor in tensors if tensor.dim()]
    is_cut = weight.numel() > _PART_ELEMENTS and _fills_memory(weight)
    if not is_cut or any(tensor.stride() != weight.stride() or tensor.shape != weight.shape for tensor in of_weight):
        yield list(tensors)
        return
    flat = [tensor.detach().as_strided((tensor.numel(),), (1,)) if tensor.dim() else tensor for tensor in tensors]
    for start in range(0, weight.numel(), _PART_ELEMENTS):
        yield [tensor[start : start + _PART_ELEMENTS] if tensor.dim() else tensor for tensor in flat]


def _fills_memory(tensor: torch.Tensor) -> bool:
    if tensor.is_contiguous():
        return True
    return tensor.dim() in _IMAGE_FORMATS and tensor.is_contiguous(memory_format=_IMAGE_FORMATS[tensor.dim()])
