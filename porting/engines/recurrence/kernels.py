"""The compiled time loops as functions of tensors.

T = steps, B = rows of the batch, U = units, G = gates of a cell.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Optional

import torch

__all__ = ["NUM_GATES", "Kernels", "Kind", "LayerMemory"]


class Kind(IntEnum):
    """A kind of recurrent cell, numbered as in `kernels.cpp`."""

    LSTM = 0
    GRU = 1
    TANH = 2
    RELU = 3


NUM_GATES = {Kind.LSTM: 4, Kind.GRU: 3, Kind.TANH: 1, Kind.RELU: 1}
"""G of each kind."""

# A row for each thread costs more than it saves: threads share the recurrent weights, and each has to read them all.
_ROWS_PER_THREAD = 8

_NO_MEMORY = "there is no memory for the products of a recurrent layer"


@dataclass
class LayerMemory:
    """What one pass over a layer reads and writes; all is contiguous unless it says more.

    `recurrent_weight` is [G U, U]. `gates`, [T, B, G U], hold the gates after the forward pass, and before it the
    products with the input, unless that is given: `x`, [T, B, I], whose rows may lie anywhere, with its `weight`,
    [G U, I], and the whole `bias`, [G U]. `hidden`, [T + 1, B, U], has the state before the first step first, or last
    in a reversed layer. `cells` are likewise those of an LSTM; of a GRU they are [T, B, U], the recurrent product of
    its new gate, of which `bias`, [U], is a part. `grad_output`, [T, B, U], may have rows anywhere. `grad_hidden` and
    `grad_cell`, [B, U], are of the last state and become those of the first. The gradients of the products have the
    shape of `gates`, and those with the input may take their memory; only a GRU has others with the state.
    The gradient of the state before the first step takes a product more, unless `wants_first` is false.
    """

    kind: Kind
    is_reversed: bool
    recurrent_weight: torch.Tensor
    gates: torch.Tensor
    hidden: torch.Tensor
    cells: Optional[torch.Tensor] = None
    bias: Optional[torch.Tensor] = None
    x: Optional[torch.Tensor] = None
    weight: Optional[torch.Tensor] = None
    grad_output: Optional[torch.Tensor] = None
    grad_hidden: Optional[torch.Tensor] = None
    grad_cell: Optional[torch.Tensor] = None
    grad_input_gates: Optional[torch.Tensor] = None
    grad_state_gates: Optional[torch.Tensor] = None
    wants_first: bool = True


_NUMBERS = "kind steps rows first_row end_row units is_reversed wants_first".split()


class _Layer(ctypes.Structure):
    """`Layer` of `kernels.cpp`."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in _NUMBERS),
        *((name, ctypes.c_void_p) for name in "packed input".split()),
        *((name, ctypes.c_int64) for name in "num_inputs input_step_stride input_row_stride".split()),
        *((name, ctypes.c_void_p) for name in "bias gates hidden cells grad_output".split()),
        ("step_stride", ctypes.c_int64),
        ("row_stride", ctypes.c_int64),
        *((name, ctypes.c_void_p) for name in "grad_hidden grad_cell grad_input_gates grad_state_gates".split()),
    ]


class Kernels:
    """The loops of a compiled library."""

    def __init__(self, library: Path) -> None:
        """Load the library; OSError or AttributeError if it is none of ours."""
        loaded: Any = ctypes.CDLL(str(library.resolve()))
        self._count_packed = _declare_types(loaded.count_packed, "II", ctypes.c_int64)
        self._pack = _declare_types(loaded.pack, "PIIIIIIP", None)
        self._multiply_packed = _declare_types(loaded.multiply_packed, "PIIPBIPI", None)
        self._multiply_transposed = _declare_types(loaded.multiply_transposed, "PIPIIIIIPI", ctypes.c_bool)
        self._loops = [_declare_types(loop, "LI", ctypes.c_bool) for loop in (loaded.run_forward, loaded.run_backward)]

    def run_forward(self, memory: LayerMemory) -> None:
        """Compute gates, states and cells of all steps."""
        self._run_loop(memory, is_backward=False)

    def run_backward(self, memory: LayerMemory) -> None:
        """Compute the gradients of the gates of all steps, and of the state before the first."""
        self._run_loop(memory, is_backward=True)

    def multiply(self, left: torch.Tensor, right: torch.Tensor, bias: Optional[torch.Tensor] = None) -> torch.Tensor:
        """Return the product of two matrices, [M, K] and [K, N], with `bias`, [N], added to each row."""
        left = left.contiguous()
        (num_rows, inner), columns = left.shape, right.shape[1]
        packed = self._put_into_panels(right) if bias is None else self._put_into_panels(right, bias.unsqueeze(0))
        found = left.new_empty(num_rows, columns)
        self._multiply_packed(
            left.data_ptr(),
            num_rows,
            inner,
            packed.data_ptr(),
            bias is not None,
            columns,
            found.data_ptr(),
            _count_parts(num_rows),
        )
        return found

    def multiply_transposed(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Return [M, N], the sum over all steps and rows of the products of [T, B, M] and [T, B, N].

        `left` is contiguous, and the rows of `right` may lie anywhere. MemoryError if there is none to work in.
        """
        num_steps, num_rows, columns = right.shape
        found = left.new_empty(left.shape[2], columns)
        is_done = self._multiply_transposed(
            left.data_ptr(),
            left.shape[2],
            right.data_ptr(),
            num_steps,
            num_rows,
            columns,
            *right.stride()[:2],
            found.data_ptr(),
            _count_parts(left.shape[2]),
        )
        if not is_done:
            raise MemoryError(_NO_MEMORY)
        return found

    def _put_into_panels(self, *matrices: torch.Tensor) -> torch.Tensor:
        """Return matrices of as many columns, one below the other, as the kernels read them."""
        num_rows, columns = sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]
        packed = matrices[0].new_empty(self._count_packed(num_rows, columns))
        first_row = 0
        for matrix in matrices:
            self._pack(matrix.data_ptr(), *matrix.shape, *matrix.stride(), first_row, num_rows, packed.data_ptr())
            first_row += matrix.shape[0]
        return packed

    def _run_loop(self, memory: LayerMemory, *, is_backward: bool) -> None:
        if is_backward:
            packed = self._put_into_panels(memory.recurrent_weight)
        elif memory.weight is None:
            packed = self._put_into_panels(memory.recurrent_weight.t())
        else:
            packed = self._put_into_panels(memory.recurrent_weight.t(), memory.weight.t())
        num_rows = memory.gates.shape[1]
        num_parts = _count_parts(num_rows)
        bounds = [num_rows * part // num_parts for part in range(num_parts + 1)]
        # rows know nothing of one another
        parts = [_describe_rows(memory, packed, first, end) for first, end in zip(bounds, bounds[1:])]
        if not self._loops[is_backward]((_Layer * num_parts)(*parts), num_parts):
            raise MemoryError(_NO_MEMORY)


def _declare_types(function: Any, arguments: str, result: Any) -> Any:
    """Tell ctypes what a function takes, a letter for each argument."""
    types = {"P": ctypes.c_void_p, "I": ctypes.c_int64, "B": ctypes.c_bool, "L": ctypes.POINTER(_Layer)}
    function.argtypes, function.restype = [types[letter] for letter in arguments], result
    return function


def _count_parts(num_rows: int) -> int:
    """Return how many threads share `num_rows` rows."""
    return max(1, min(torch.get_num_threads(), num_rows // _ROWS_PER_THREAD))


def _describe_rows(memory: LayerMemory, packed: torch.Tensor, first_row: int, end_row: int) -> _Layer:
    num_steps, num_rows = memory.gates.shape[:2]
    grad_output = memory.grad_output
    step_stride, row_stride = (0, 0) if grad_output is None else grad_output.stride()[:2]
    input_strides = (0, 0) if memory.x is None else memory.x.stride()[:2]
    return _Layer(
        kind=memory.kind,
        steps=num_steps,
        rows=num_rows,
        first_row=first_row,
        end_row=end_row,
        units=memory.recurrent_weight.shape[1],
        is_reversed=memory.is_reversed,
        wants_first=memory.wants_first,
        packed=packed.data_ptr(),
        input=_find_address(memory.x),
        num_inputs=0 if memory.x is None else memory.x.shape[2],
        input_step_stride=input_strides[0],
        input_row_stride=input_strides[1],
        bias=_find_address(memory.bias),
        gates=_find_address(memory.gates),
        hidden=_find_address(memory.hidden),
        cells=_find_address(memory.cells),
        grad_output=_find_address(grad_output),
        step_stride=step_stride,
        row_stride=row_stride,
        grad_hidden=_find_address(memory.grad_hidden),
        grad_cell=_find_address(memory.grad_cell),
        grad_input_gates=_find_address(memory.grad_input_gates),
        grad_state_gates=_find_address(memory.grad_state_gates),
    )


def _find_address(tensor: Optional[torch.Tensor]) -> Optional[int]:
    return None if tensor is None else tensor.data_ptr()
