"""Indices that are tensors without dimensions, and slices between them: their values are known only on the device."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, NamedTuple, Optional, Tuple

import torch

from ..diagnostics import CaptureError, caller_place
from . import errors
from .device_tensor import DeviceTensor

__all__ = ["is_dynamic", "read_dynamic", "write_dynamic"]

aten = torch.ops.aten


class _Item(NamedTuple):
    """One part of an index, and the first of the dimensions of the indexed tensor that it takes."""

    value: Any
    dimension: int
    num_dimensions: int


def is_dynamic(index: Any) -> bool:
    """Tell whether `index` has a part whose position only the device knows."""
    return any(_is_position(value) or _is_window(value) for value in _split_parts(index))


def read_dynamic(tensor: DeviceTensor, index: Any) -> torch.Tensor:
    """Return `tensor[index]`; positions outside of the tensor wrap around.

    Raises CaptureError C001 for slices whose length is not known when the graph is made, and C017 for lengths that the
    device refuses.
    """
    static: List[Any] = []
    selected: torch.Tensor = tensor
    for item in _assign_dimensions(index, tensor.dim()):
        if _is_position(item.value):
            position = item.value.reshape(1).remainder(tensor.shape[item.dimension])
            selected = selected.index_select(item.dimension, position)
            static.append(0)
        elif _is_window(item.value):
            positions = _list_positions(item.value, tensor.shape[item.dimension])
            selected = selected.index_select(item.dimension, positions)
            static.append(slice(None))
        else:
            static.append(item.value)
    return selected[tuple(static)]


def write_dynamic(tensor: DeviceTensor, index: Any, value: Any) -> None:
    """Do `tensor[index] = value` in place; raises as `read_dynamic` does."""
    if not isinstance(value, torch.Tensor):
        value = tensor.new_full((), value)
    target: torch.Tensor = tensor
    places: List[Optional[torch.Tensor]]
    if any(_is_mask(part) for part in _split_parts(index)):
        target, places = _places_beside_masks(tensor, index)
    else:
        places = [*_find_places(tensor, index)]
    aten.index_put_.default(target, places, value.to(tensor.dtype))


def _find_places(tensor: DeviceTensor, index: Any) -> List[torch.Tensor]:
    """Return the positions of `tensor[index]`, for each dimension of `tensor` in the shape of what `index` reads."""
    places = []
    for dimension, size in enumerate(tensor.shape):
        along = [size if other == dimension else 1 for other in range(tensor.dim())]
        positions = torch.arange(size, device="ipu", dtype=torch.int32).view(along).expand(tensor.shape)
        places.append(read_dynamic(positions, index))  # type: ignore[arg-type]
    return places


def _places_beside_masks(tensor: DeviceTensor, index: Any) -> Tuple[torch.Tensor, List[Optional[torch.Tensor]]]:
    """Return the view that the known parts of `index` make, and the places in it that the others name."""
    static: List[Any] = []
    places: List[Optional[torch.Tensor]] = []
    for item in _assign_dimensions(index, tensor.dim()):
        if _is_window(item.value):
            raise errors.host_read_error(
                "an index with a mask and a slice between tensors",
                help="write in two steps, or multiply the mask with one for the slice",
            )
        if _is_position(item.value) or isinstance(item.value, (list, torch.Tensor)):
            static.extend([slice(None)] * item.num_dimensions)
            places.append(_place_of(item, tensor))
        else:
            static.append(item.value)
            kept = 1 if item.value is None else 0 if isinstance(item.value, int) else item.num_dimensions
            places.extend([None] * kept)
    while places[-1] is None:
        places.pop()
    return tensor[tuple(static)], places


def _place_of(item: _Item, tensor: DeviceTensor) -> torch.Tensor:
    if _is_position(item.value):
        position: torch.Tensor = item.value.remainder(tensor.shape[item.dimension])
        return position
    if isinstance(item.value, list):
        return tensor.new_tensor(item.value, dtype=torch.int32)
    mask: torch.Tensor = item.value
    return mask


def _split_parts(index: Any) -> Tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


def _is_position(value: Any) -> bool:
    return isinstance(value, DeviceTensor) and value.dim() == 0 and value.dtype not in (torch.bool, torch.uint8)


def _is_window(value: Any) -> bool:
    return isinstance(value, slice) and any(isinstance(bound, DeviceTensor) for bound in (value.start, value.stop))


def _assign_dimensions(index: Any, num_dimensions: int) -> Iterable[_Item]:
    """Say which dimensions each part of `index` takes; an ellipsis becomes the slices that it stands for."""
    parts = list(_split_parts(index))
    missing = num_dimensions - sum(_num_taken(part) for part in parts)
    where = next((position for position, part in enumerate(parts) if part is Ellipsis), len(parts))
    parts[where : where + 1] = [slice(None)] * missing
    dimension = 0
    for part in parts:
        taken = _num_taken(part)
        yield _Item(part, dimension, taken)
        dimension += taken


def _num_taken(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    return int(part.dim()) if _is_mask(part) else 1


def _is_mask(part: Any) -> bool:
    return isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8)


def _list_positions(window: slice, size: int) -> torch.Tensor:
    length = _measure_length(window)
    _check_length(length, size)
    start = window.start if window.start is not None else window.stop - length
    steps = torch.arange(0, length, window.step or 1, device="ipu", dtype=torch.int32)
    positions: torch.Tensor = (start + steps).remainder(size)
    return positions.reshape(-1)


def _measure_length(window: slice) -> int:
    (root, first), (other_root, last) = _root_and_offset(window.start), _root_and_offset(window.stop)
    if root is None or root is not other_root:
        raise errors.host_read_error(
            "a slice between tensors",
            help="give it a fixed length: `x[i : i + n]` with one tensor `i` and a number `n`",
        )
    return last - first


def _root_and_offset(bound: Any) -> Tuple[Optional[torch.fx.Node], int]:
    """Take `i + n` apart into the value that `i` comes from and the number `n`."""
    if not isinstance(bound, DeviceTensor):
        return None, 0
    node: Any = bound.node
    offset = 0
    signs = {aten.add.Tensor: 1, aten.sub.Tensor: -1}
    while isinstance(node, torch.fx.Node):
        if node.target in signs and isinstance(node.args[1], int) and not node.kwargs:
            offset += signs[node.target] * node.args[1]
            node = node.args[0]
        elif node.target in _SAME_VALUE:
            node = node.args[0]
        else:
            break
    return node, offset


_SAME_VALUE: Tuple[Callable[..., Any], ...] = (aten.to.dtype, aten.clone.default)


def _check_length(length: int, size: int) -> None:
    if length == 0:
        raise _length_error("The start and end of a slice must be different.")
    if length < 0:
        raise _length_error("Taking a slice of a tensor with the end less than the start is not supported.")
    if size % length:
        raise _length_error(
            f"The size of the slice ({length}) must be a factor of the slicing dimension ({size}).",
        )


def _length_error(message: str) -> CaptureError:
    return CaptureError.of(
        "C017",
        message=message,
        place=caller_place(),
        label="the device slices at a changing position in parts of one size",
        help="choose a length that divides the dimension, or `x.index_select(dim, i + torch.arange(n))`",
    )
