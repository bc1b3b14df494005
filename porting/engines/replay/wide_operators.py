"""Operators on half precision, computed in single precision and rounded once, forward and backward.

Torch's kernels for matrix products of float16 take 4 to 60 times as long as those for float32 on a processor without
instructions for it, and some others, such as `pow`, up to 20 times: they convert each number many times. Converted once
before and once after, the same operator takes little longer than in float32. A product then rounds as on an IPU whose
partial sums are float32. What is in memory between two operators, and what autograd keeps for the backward pass, stays
in half precision: the operands, not their wide copies.
"""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from ...capture.graph_flow import identify_memory, is_half
from ...capture.operator_schema import declared_written_arguments, operator_name
from ...torch_insides.autograd import find_saved_tensor_hooks
from ...torch_insides.operators import OpOverload, read_overload_name
from ...torch_insides.tensors import read_version
from .direct_calls import Call, find_direct_call

__all__ = ["WIDENED", "find_wide_call", "is_widened"]

# All that autograd keeps of these are rearranged operands, which half precision holds exactly.
_PRODUCTS = frozenset(
    "linear mm bmm addmm addbmm baddbmm addmv addr mv dot vdot inner matmul einsum tensordot chain_matmul bilinear "
    "linalg_multi_dot linalg_matmul linalg_vecdot conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d convolution _convolution conv_tbc".split()
)
# These keep something of their own as well, such as the gates of each step or the normaliser of each row.
_CONTAIN_PRODUCTS = frozenset(
    "scaled_dot_product_attention lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell".split()
)
# Of 180 other operators, forward and backward, those that were slower by more than the casts cost.
_SLOW = frozenset(
    "square pow rsqrt erfinv prod norm linalg_vector_norm logsumexp binary_cross_entropy im2col col2im embedding_bag "
    "grid_sampler".split()
)

WIDENED = _PRODUCTS | _CONTAIN_PRODUCTS | _SLOW
"""The names of the operators that are computed in single precision where operands and results are half."""

# The kernels for rows of these lengths take six times as long unless they are whole vectors.
_SLOW_IN_SHORT_ROWS = frozenset(["softmax", "log_softmax"])
_SHORT_ROWS, _VECTOR = range(17, 64), 32

# Looking after what autograd keeps costs more time than products of so few numbers; their wide copies are 64 KiB.
_FEW_ELEMENTS = 1 << 14


def is_widened(node: torch.fx.Node) -> bool:
    """Tell whether the operator of `node` is computed in single precision; its operands and results are half then."""
    operator: Any = node.target
    if not isinstance(operator, OpOverload) or operator.namespace != "aten":
        return False
    name = operator_name(operator)
    written = declared_written_arguments(operator, node.args, dict(node.kwargs))
    if written:
        # Of `addmm_` and its kin autograd keeps nothing that is written to; what has an `out=` is left to its kernel.
        return name[:-1] in _PRODUCTS and written == [node.args[0]] and _are_half(node)
    if name not in WIDENED and not (name in _SLOW_IN_SHORT_ROWS and _has_short_rows(node)):
        return False
    # An operator with several results has no value of its own. And one may be told to have wide results.
    return _are_half(node) and (is_half(node) or "val" not in node.meta)


def _are_half(node: torch.fx.Node) -> bool:
    """Tell whether all operands of `node` that are not integers are in half precision."""
    operands = (used.meta.get("val") for used in node.all_input_nodes)
    floats = {value.dtype for value in operands if isinstance(value, torch.Tensor) and value.is_floating_point()}
    return floats == {torch.float16}


def _has_short_rows(node: torch.fx.Node) -> bool:
    shape = node.meta["val"].shape
    return bool(shape) and node.args[1] in (-1, len(shape) - 1) and shape[-1] in _SHORT_ROWS and shape[-1] % _VECTOR > 0


def find_wide_call(node: torch.fx.Node) -> Call:
    """Return the call that does what `node` does, in single precision where `is_widened` says so."""
    call = find_direct_call(node)
    if not is_widened(node):
        return call
    name = operator_name(node.target)
    is_product = name.rstrip("_") in _PRODUCTS
    num_elements = sum(used.meta["val"].numel() for used in node.all_input_nodes)
    keeps = {"keeps_operands": is_product, "keeps_wide": is_product and num_elements <= _FEW_ELEMENTS}
    if not name.endswith("_"):
        return Call(_WideCall(call.function, **keeps), call.args, call.kwargs)
    operator: Any = node.target
    wide = _WideCall(getattr(getattr(torch.ops.aten, name[:-1]), read_overload_name(operator)), **keeps)

    def write(written: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return written.copy_(wide(written, *args, **kwargs))

    return Call(write, tuple(node.args), dict(node.kwargs))


_Pairs = List[Tuple[torch.Tensor, torch.Tensor]]
"""Tensors in half precision, each with its wide copy, or with what it was rounded from."""


class _WideCall:
    """`function` on half-precision tensors.

    `keeps_operands` says that it leaves nothing else to its backward pass, `keeps_wide` that these may stay wide.
    """

    def __init__(self, function: Callable[..., Any], *, keeps_operands: bool, keeps_wide: bool = False) -> None:
        self._function = function
        self._keeps_operands = keeps_operands
        self._keeps_wide = keeps_wide

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        pairs: _Pairs = []
        wide = [_widen_halves(argument, pairs) for argument in args]
        named = {name: _widen_halves(argument, pairs) for name, argument in kwargs.items()} if kwargs else kwargs
        if self._keeps_wide or not torch.is_grad_enabled():
            return _round_results(self._function(*wide, **named), None)
        kept: List[_Kept] = []

        def keep(tensor: torch.Tensor) -> _Kept:
            kept.append(_Kept(tensor))
            return kept[-1]

        with torch.autograd.graph.saved_tensors_hooks(keep, _Kept.restore):
            found = self._function(*wide, **named)
        result = _round_results(found, pairs)
        if kept:
            _narrow_kept(kept, pairs, everything=self._keeps_operands)
        return result


def _widen_halves(value: object, pairs: _Pairs) -> Any:
    """Return `value` with its half-precision tensors widened; note these in `pairs`."""
    if isinstance(value, torch.Tensor):
        if value.dtype is not torch.float16:
            return value
        wide = value.float()
        pairs.append((value, wide))
        return wide
    if isinstance(value, (list, tuple)):
        return [_widen_halves(item, pairs) for item in value]
    return value


def _round_results(value: Any, pairs: Optional[_Pairs]) -> Any:
    """Return `value` with its single-precision tensors rounded; note these in `pairs`, if that is wanted."""
    if isinstance(value, torch.Tensor):
        if value.dtype is not torch.float32:
            return value
        half = value.half()
        if pairs is not None:
            # without its history, which leads to what is going to keep it
            pairs.append((half.detach(), value))
        return half
    return tuple(_round_results(item, pairs) for item in value)


# -- what autograd keeps -----------------------------------------------------------------------------------------------


class _Kept:
    """A tensor that autograd keeps: first as it is, then the half-precision one that it can be made of again."""

    __slots__ = ("_layout", "_restore_outer", "_version", "_was_wide", "tensor")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor: Any = tensor
        self._was_wide = False
        self._layout: Optional[Tuple[torch.Size, Tuple[int, ...], int]] = None
        self._version: Optional[int] = None
        self._restore_outer: Optional[Callable[[Any], torch.Tensor]] = None

    def replace(self, half: torch.Tensor, wide: torch.Tensor) -> None:
        """Keep `half`; what was to be kept is `wide`, which can be made of it, or a view of that."""
        view, self.tensor, self._was_wide, self._version = self.tensor, half, True, read_version(half)
        layout = (view.size(), view.stride(), view.storage_offset())
        if layout != (wide.size(), wide.stride(), wide.storage_offset()):
            self._layout = layout

    def hand_over(self, keep: Callable[[torch.Tensor], Any], restore: Callable[[Any], torch.Tensor]) -> None:
        """Let those keep the tensor who look after all that autograd keeps here, such as a checkpoint."""
        # they may keep another one, with versions of its own
        self.tensor, self._restore_outer, self._version = keep(self.tensor), restore, None

    def restore(self) -> torch.Tensor:
        """Return what was to be kept; RuntimeError, as from autograd, if the half tensor has been written to."""
        tensor: torch.Tensor = self.tensor if self._restore_outer is None else self._restore_outer(self.tensor)
        if self._version is not None and read_version(tensor) != self._version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[torch.HalfTensor {list(tensor.shape)}] is at version {read_version(tensor)}; expected version "
                f"{self._version} instead"
            )
        if not self._was_wide:
            return tensor
        wide = tensor.float()
        return wide if self._layout is None else _make_view(wide, *self._layout)


def _make_view(wide: torch.Tensor, size: torch.Size, stride: Tuple[int, ...], offset: int) -> torch.Tensor:
    # nearly always a transpose, which a compiler understands better
    if wide.dim() == 2 and (size, stride, offset) == (wide.size()[::-1], wide.stride()[::-1], 0):
        return wide.t()
    return wide.as_strided(size, stride, offset)


def _narrow_kept(kept: Sequence[_Kept], pairs: _Pairs, *, everything: bool) -> None:
    """Keep the half tensor of a pair in place of the wide one; with `everything` also round what is in no pair."""
    by_memory = {identify_memory(wide): (half, wide) for half, wide in pairs}
    outer = find_saved_tensor_hooks(True)
    for item in kept:
        tensor = item.tensor
        pair = by_memory.get(identify_memory(tensor))
        if pair is not None:
            item.replace(*pair)
        elif everything and tensor.dtype is torch.float32:
            item.replace(tensor.half(), tensor)
        if outer is not None:
            item.hand_over(*outer)
