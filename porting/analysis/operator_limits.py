"""Refuse arguments that the device does not take for operators it otherwise has, in PopTorch's words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple

import torch

from ..capture.graph_flow import tensor_memory
from ..capture.operator_schema import operator_name
from ..torch_insides.operators import OpOverload

__all__ = ["LIMITS", "PARTIAL", "OperatorCall", "check_write"]


@dataclass(frozen=True)
class OperatorCall:
    """One operator of a captured graph and its arguments.

    `follows_fault` means that its shapes come from an example, in a capture that continued after a fault.
    """

    node: torch.fx.Node
    name: str
    arguments: Mapping[str, Any]
    is_constant: Callable[[torch.fx.Node], bool]
    needs_gradient: bool
    follows_fault: bool = False

    def iter_tensors(self) -> Iterator[torch.Tensor]:
        """Yield the tensors among the arguments, as their shape rules see them."""
        for node in self.node.all_input_nodes:
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                yield value

    def find_value(self, name: str) -> Optional[torch.Tensor]:
        """Return the tensor argument called `name`, or None."""
        argument = self.arguments.get(name)
        return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None


def check_write(call: OperatorCall) -> Optional[str]:
    """Return PopTorch's message for writing in place to a slice with steps, or to a view of one; None otherwise."""
    target = call.arguments.get(next(iter(call.arguments), ""))
    memory = tensor_memory(target) if isinstance(target, torch.fx.Node) else None
    # up through the views, as far as they are of the same memory
    while isinstance(target, torch.fx.Node) and tensor_memory(target) == memory:
        is_operator = isinstance(target.target, OpOverload)
        if is_operator and operator_name(target.target) == "slice" and target.args[4:] not in ((), (1,)):
            return "In-place modification of slices with step size other than 1 is not supported."
        target = target.args[0] if target.args else None
    return None


def _check_recurrent(call: OperatorCall) -> Optional[str]:
    kind = call.name.split("_")[0].upper()
    arguments = call.arguments
    if arguments["num_layers"] != 1:
        return f"Only {kind} with 1 layer is supported"
    if arguments["bidirectional"]:
        return "Bidirectional RNN is not supported" if kind == "RNN" else f"bidirectional {kind} not supported"
    if not arguments["has_biases"] and kind != "GRU":
        return "RNN without biases is not supported" if kind == "RNN" else f"{kind} without biases not supported"
    return f"{kind} only supports dropout = 0.0" if arguments["dropout"] else None


def _check_ctc(call: OperatorCall) -> Optional[str]:
    if call.arguments["reduction"] == 0:
        return 'CTCLoss with reduction="none" is currently not supported'
    targets = call.find_value("targets")
    return "CTCLoss only supports 2-D targets" if targets is not None and targets.dim() != 2 else None


def _check_embedding(call: OperatorCall) -> Optional[str]:
    for name in ("scale_grad_by_freq", "sparse"):
        if call.arguments[name] or (name == "sparse" and call.node.meta.get("asks_for_sparse")):
            return f"Unsupported aten::{call.name} operation: {name} parameter is unsupported."
    return None


def _check_embedding_bag(call: OperatorCall) -> Optional[str]:
    offsets, padding = call.arguments["offsets"], call.arguments.get("padding_idx")
    if not call.is_constant(offsets):
        return "Unsupported aten::embedding_bag operation: offsets tensor must be a constant."
    if padding is not None and padding >= 0:
        return "Unsupported aten::embedding_bag operation: padding_idx parameter is unsupported."
    return _check_embedding(call)


def _check_bilinear(call: OperatorCall) -> Optional[str]:
    factors = call.arguments.get("scale_factors")
    if not factors:
        return None  # a size: any ratio will do
    nearest = f"aten::{call.name}: currently only 'nearest' is supported"
    if any(factor != int(factor) for factor in factors):
        return f"{nearest}. Bilinear upsampling with non-integer factor not supported"
    is_uniform = len(set(factors)) == 1
    return None if is_uniform else f"{nearest}. Non-uniform bilinear upsampling not supported"


def _check_matrix_norm(call: OperatorCall) -> Optional[str]:
    order, tensor, dims = call.arguments["ord"], call.find_value("self"), call.arguments["dim"]
    num_dims = len(dims) if isinstance(dims, (list, tuple)) else 1 if dims is not None else tensor.dim()  # type: ignore[union-attr]
    if num_dims != 2:
        return None
    if order == "nuc":
        return "Matrix nuclear norm is not supported."
    return "Matrix 2-norm is not supported." if order in (2, -2) else None


def _check_bitwise(call: OperatorCall) -> Optional[str]:
    if any(tensor.dtype in (torch.int8, torch.uint8) for tensor in call.iter_tensors()):
        return f"aten::{call.name}: Poplar does not support binary operations on 8-bit integral types."
    if any(tensor.dtype.is_floating_point for tensor in call.iter_tensors()):
        name = next(word for word in ("xor", "and", "or", "not") if word in call.name)
        return f"Bitwise-{name} operator supports only bool and integer types"
    return None


def _check_padding(call: OperatorCall) -> Optional[str]:
    mode = call.arguments["mode"]
    if mode not in ("reflect", "replicate") or not call.needs_gradient:
        return None
    kind = "reflection" if mode == "reflect" else "replication"
    num_dims = len(call.arguments["pad"]) // 2
    return f"aten::{kind}_pad{num_dims}d is only supported in inference: the device has no gradient for it"


def _has_other_than(number: object, wanted: int) -> bool:
    """Tell whether a number, or one of several for each dimension, is another one than `wanted`."""
    return any(value != wanted for value in (number if isinstance(number, (list, tuple)) else [number]))


_Rule = Callable[[OperatorCall], Optional[str]]


def _refuse_if(message: str, fact: Callable[[OperatorCall], Any] = lambda _call: True) -> _Rule:
    """Make a rule of one fact and the words for it, with the operator's name in the place of `{}`."""
    return lambda call: message.format(call.name) if fact(call) else None


_RULES: Tuple[Tuple[str, _Rule], ...] = (
    ("lstm gru rnn_tanh rnn_relu", _check_recurrent),
    (
        "cross_entropy_loss nll_loss_nd nll_loss nll_loss2d",
        _refuse_if('Parameter "weight" is unsupported for aten::{}', lambda call: call.arguments["weight"] is not None),
    ),
    ("ctc_loss", _check_ctc),
    ("embedding", _check_embedding),
    ("embedding_bag", _check_embedding_bag),
    (
        "upsample_linear1d upsample_trilinear3d _upsample_bilinear2d_aa _upsample_bicubic2d_aa "
        "_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d",
        _refuse_if("aten::{}: currently only 'nearest' is supported"),
    ),
    ("upsample_bilinear2d", _check_bilinear),
    (
        "upsample_bicubic2d",
        _refuse_if("Only support align_corners=False.", lambda call: call.arguments["align_corners"]),
    ),
    ("linalg_matrix_norm linalg_norm", _check_matrix_norm),
    (
        "triu triu_",
        _refuse_if(
            "torch.triu is only supported within constant expressions, for example torch.ones(3, 3).triu_().",
            lambda call: not call.is_constant(call.node),
        ),
    ),
    (
        "bitwise_and bitwise_or bitwise_xor bitwise_not __and__ __or__ __xor__ __iand__ __ior__ __ixor__ bitwise_and_ "
        "bitwise_or_ bitwise_xor_ bitwise_not_",
        _check_bitwise,
    ),
    (
        "conv_transpose1d conv_transpose2d conv_transpose3d",
        _refuse_if(
            "aten::{}: dilation is not supported for transposed convolutions",
            lambda call: _has_other_than(call.arguments["dilation"], 1),
        ),
    ),
    ("pad", _check_padding),
    (
        "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices",
        _refuse_if("aten::{}: return_indices=True is not supported"),
    ),
    ("topk", _refuse_if("aten::topk: sorted=False is not supported", lambda call: not call.arguments["sorted"])),
)

LIMITS: Dict[str, _Rule] = {name: rule for names, rule in _RULES for name in names.split()}
"""Rules by operator: PopTorch's message for a call that the device refuses, or None."""

_RESTRICTIONS: Tuple[Tuple[str, _Rule], ...] = (
    (
        "conv_transpose1d conv_transpose2d conv_transpose3d",
        _refuse_if(
            "with `output_padding` PopTorch's own tests expect a wrong size",
            lambda call: _has_other_than(call.arguments["output_padding"], 0),
        ),
    ),
    (
        "layer_norm group_norm instance_norm",
        _refuse_if("officially with a weight and a bias alone", lambda call: call.arguments["weight"] is None),
    ),
    ("cosine_embedding_loss", _refuse_if("PopTorch's own test of it is left out")),
)

PARTIAL: Dict[str, _Rule] = {name: rule for names, rule in _RESTRICTIONS for name in names.split()}
"""Rules by operator: what is doubtful about a call that the device takes, or None."""
