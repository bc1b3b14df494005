"""Keep a few numbers in place of many, whose differences tell how far tensors are apart.

Records of trainings are made of such sketches.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Tuple

import torch

__all__ = ["Sketch", "distance_of_sketches", "make_sketch"]

# Tensors up to this size are kept whole.
_WHOLE = 1024
# A prime, so that a column of a matrix does not fall into one number of the sketch.
_WIDTH = 251
_ROWS = 256
# A block is read in parts that lie in the processor's cache, and that torch does not divide among threads: on a busy
# machine these would wait for each other at every part.
_PART_ROWS = 128


@dataclass(frozen=True)
class Sketch:
    """A tensor in little: `values` in float64, the whole tensor where it is small, else sums of it with random signs.

    `norm` and `largest` leave out what is not finite, which `num_not_finite` counts. `kind` says what numbers they are:
    "floating point", "whole numbers", "true or false" or "complex". A sketch is linear: the sketch of
    a difference is the difference of the sketches.
    """

    shape: Tuple[int, ...]
    values: torch.Tensor
    norm: float
    largest: float
    num_not_finite: int = 0
    kind: str = "floating point"

    @property
    def numel(self) -> int:
        """How many elements the tensor has."""
        return math.prod(self.shape)

    def minus(self, other: Sketch) -> Sketch:
        """Return the sketch of the difference of two tensors of one shape; its norm is an estimate.

        >>> make_sketch(torch.tensor([3.0, 5.0])).minus(make_sketch(torch.tensor([0.0, 1.0]))).norm
        5.0
        """
        values = self.values - other.values
        largest = float(values.abs().max()) if values.numel() else 0.0
        lost = max(self.num_not_finite, other.num_not_finite)
        return Sketch(self.shape, values, float(values.norm()), largest, lost, self.kind)


def make_sketch(tensor: torch.Tensor) -> Sketch:
    """Make the sketch of a tensor of any type; complex numbers count as pairs.

    The length of a sketch estimates that of the tensor: the sums have random signs, the same for every tensor of one
    size, and each is over every 251st element (a count sketch: Charikar, Chen and Farach-Colton, "Finding frequent
    items in data streams", ICALP 2002). Large tensors are read in blocks; no copy of one is made.
    """
    shape, kind = tuple(tensor.shape), _name_kind(tensor)
    flat = tensor.detach()
    flat = (torch.view_as_real(flat.resolve_conj()) if flat.is_complex() else flat).reshape(-1)
    count = flat.numel()
    if not count:
        return Sketch(shape, torch.zeros(0, dtype=torch.float64), 0.0, 0.0, kind=kind)
    least, most = map(float, torch.aminmax(flat))
    num_lost = 0
    if not math.isfinite(most - least):
        num_lost = int((~flat.isfinite()).sum())
        flat = flat.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        least, most = map(float, torch.aminmax(flat))
    if count <= _WHOLE:
        values = flat.double()
        # a copy: the tensor goes on changing
        values = values.clone() if values is flat else values
        return Sketch(shape, values, float(values.norm()), float(values.abs().max()), num_lost, kind)
    values, norm = _sum_with_signs(flat)
    return Sketch(shape, values, norm, max(abs(least), abs(most)), num_lost, kind)


def _name_kind(tensor: torch.Tensor) -> str:
    if tensor.dtype is torch.bool:
        return "true or false"
    if tensor.is_complex():
        return "complex"
    return "floating point" if tensor.is_floating_point() else "whole numbers"


def distance_of_sketches(one: Sketch, other: Sketch) -> float:
    """Return how far two tensors of one shape are apart as vectors: exactly if they are small, else an estimate.

    The estimate is nearly always within a factor of 2. What is not finite is left out.
    """
    return float((one.values - other.values).norm())


def _sum_with_signs(flat: torch.Tensor) -> Tuple[torch.Tensor, float]:
    """Return the sums of a sketch, and the length of the tensor."""
    signs, block_signs = _draw_signs()
    result = torch.zeros(_WIDTH, dtype=torch.float64)
    ones = torch.ones(_PART_ROWS, dtype=torch.float64)
    part = torch.empty(_PART_ROWS, _WIDTH, dtype=torch.float64)
    elements, square = part.view(-1), 0.0
    for number, start in enumerate(range(0, flat.numel(), part.numel())):
        read = flat[start : start + part.numel()]
        elements[: read.numel()].copy_(read)
        elements[read.numel() :].zero_()
        square += float(elements.dot(elements))
        block, place = divmod(number, _ROWS // _PART_ROWS)
        part.mul_(signs[place * _PART_ROWS :][:_PART_ROWS])
        result.addcmul_(torch.mv(part.t(), ones), block_signs[block % len(block_signs)])
    return result, math.sqrt(square)


@functools.lru_cache(maxsize=1)
def _draw_signs() -> Tuple[torch.Tensor, torch.Tensor]:
    """Draw the signs within a block, and those of the blocks; the same in every process."""
    generator = torch.Generator().manual_seed(20_261)
    return tuple(  # type: ignore[return-value]
        (torch.randint(0, 2, (rows, _WIDTH), generator=generator, dtype=torch.int8) * 2 - 1).double()
        for rows in (_ROWS, 997)
    )
