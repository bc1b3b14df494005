"""Indices that are tensors without dimensions, and slices between them: their values are known only on the device."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import torch

from ..diagnostics import refuse
from .device_tensor import DeviceTensor
from .errors import Refusal, host_read_error
from .plain_shapes import is_mask

__all__ = ["is_dynamic", "read_dynamic", "write_dynamic"]

aten = torch.ops.aten


def is_dynamic(index: object) -> bool:
    """Tell whether `index` has a part whose position only the device knows."""
    return any(_is_position(value) or _is_window(value) for value in _split_parts(index))


def read_dynamic(tensor: DeviceTensor, index: object) -> torch.Tensor:
    """Return `tensor[index]`; positions outside of the tensor wrap around.

    Raises CaptureError C001 for slices whose length is not known when the graph is made, and C017 for lengths that the
    device refuses.
    """
    static: List[Any] = []
    selected: torch.Tensor = tensor
    for value, dimension, _count in _assign_dimensions(index, tensor.dim()):
        if _is_position(value):
            # one position at a time keeps the number of dimensions, which the parts that follow count by
            selected = selected.index_select(dimension, value.reshape(1).remainder(tensor.shape[dimension]))
            static.append(0)
        elif _is_window(value):
            selected = selected.index_select(dimension, _list_positions(value, tensor.shape[dimension]))
            static.append(slice(None))
        else:
            static.append(value)
    return selected[tuple(static)]


def write_dynamic(tensor: DeviceTensor, index: object, value: Union[torch.Tensor, float]) -> None:
    """Do `tensor[index] = value` in place; raises as `read_dynamic` does."""
    if not isinstance(value, torch.Tensor):
        value = tensor.new_full((), value)
    target: torch.Tensor = tensor
    places: List[Optional[torch.Tensor]]
    if any(is_mask(part) for part in _split_parts(index)):
        target, places = _find_places_beside_masks(tensor, index)
    else:
        places = [*_list_places(tensor, index)]
    aten.index_put_.default(target, places, value.to(tensor.dtype))


def _list_places(tensor: DeviceTensor, index: object) -> List[torch.Tensor]:
    """Return the positions of `tensor[index]`, for each dimension of `tensor` in the shape of what `index` reads."""
    places = []
    for dimension, size in enumerate(tensor.shape):
        # reading the numbers of the positions in place of the values gives what `index_put_` asks for
        along = [size if other == dimension else 1 for other in range(tensor.dim())]
        positions = torch.arange(size, device="ipu", dtype=torch.int32).view(along).expand(tensor.shape)
        places.append(read_dynamic(positions, index))  # type: ignore[arg-type]
    return places


def _find_places_beside_masks(tensor: DeviceTensor, index: object) -> Tuple[torch.Tensor, List[Optional[torch.Tensor]]]:
    """Return the view that the known parts of `index` make, and the places in it that the others name."""
    # how much a mask selects is not known, so that the positions cannot be read as `_list_places` does
    static: List[Any] = []
    places: List[Optional[torch.Tensor]] = []
    for value, dimension, num_dimensions in _assign_dimensions(index, tensor.dim()):
        if _is_window(value):
            raise host_read_error(
                "an index with a mask and a slice between tensors",
                help="write in two steps, or multiply the mask with one for the slice",
            )
        if isinstance(value, (list, torch.Tensor)):
            static.extend([slice(None)] * num_dimensions)
            if isinstance(value, list):
                value = tensor.new_tensor(value, dtype=torch.int32)
            elif _is_position(value):
                value = value.remainder(tensor.shape[dimension])
            places.append(value)
        else:
            static.append(value)
            # `None` adds a dimension to the view, and a number takes one away
            kept = 1 if value is None else 0 if isinstance(value, int) else num_dimensions
            places.extend([None] * kept)
    while places[-1] is None:
        places.pop()
    return tensor[tuple(static)], places


def _assign_dimensions(index: object, num_dimensions: int) -> Iterator[Tuple[Any, int, int]]:
    """Yield each part of `index`, the first dimension of the indexed tensor that it takes, and how many it takes.

    An ellipsis becomes the slices that it stands for.
    """
    parts = list(_split_parts(index))
    missing = num_dimensions - sum(map(_count_dimensions, parts))
    where = next((position for position, part in enumerate(parts) if part is Ellipsis), len(parts))
    parts[where : where + 1] = [slice(None)] * missing
    dimension = 0
    for part in parts:
        taken = _count_dimensions(part)
        yield part, dimension, taken
        dimension += taken


def _split_parts(index: object) -> Tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _count_dimensions(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return int(part.dim()) if is_mask(part) else 1


def _is_position(value: object) -> bool:
    return isinstance(value, DeviceTensor) and value.dim() == 0 and not is_mask(value)


def _is_window(value: object) -> bool:
    return isinstance(value, slice) and any(isinstance(bound, DeviceTensor) for bound in (value.start, value.stop))


def _list_positions(window: slice, size: int) -> torch.Tensor:
    (root, first), (other_root, last) = map(_split_offset, (window.start, window.stop))
    if root is None or root is not other_root:
        refuse(
            host_read_error(
                "a slice between tensors",
                help="give it a fixed length: `x[i : i + n]` with one tensor `i` and a number `n`",
            )
        )
        return torch.arange(size, device="ipu", dtype=torch.int32)
    length = last - first
    # in PopTorch's words
    if length == 0:
        fault = "The start and end of a slice must be different."
    elif length < 0:
        fault = "Taking a slice of a tensor with the end less than the start is not supported."
    elif size % length:
        fault = f"The size of the slice ({length}) must be a factor of the slicing dimension ({size})."
    else:
        fault = ""
    if fault:
        refuse(Refusal.SLICE_LENGTH.error(fault=fault))
        length = max(abs(length), 1)
    start = window.start if window.start is not None else window.stop - length
    steps = torch.arange(0, length, window.step or 1, device="ipu", dtype=torch.int32)
    positions: torch.Tensor = (start + steps).remainder(size)
    return positions.reshape(-1)


def _split_offset(bound: object) -> Tuple[Optional[torch.fx.Node], int]:
    """Take `i + n` apart into the value that `i` comes from and the number `n`."""
    if not isinstance(bound, DeviceTensor):
        return None, 0
    node: Any = bound.node
    offset = 0
    # two bounds of one length are two expressions: the graph tells that they come from one value
    while isinstance(node, torch.fx.Node):
        if node.target in _SIGNS and isinstance(node.args[1], int) and not node.kwargs:
            offset += _SIGNS[node.target] * node.args[1]
        elif node.target not in (aten.to.dtype, aten.clone.default):
            break
        node = node.args[0]
    return node, offset


_SIGNS: Dict[Any, int] = {aten.add.Tensor: 1, aten.sub.Tensor: -1}
