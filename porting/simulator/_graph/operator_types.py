"""Names operators as the graph compiler does: types of PopART for ATen operators."""

from __future__ import annotations

from typing import Dict, Tuple

import torch

from .._scopes.executed_operators import is_convolution, operator_label

__all__ = ["gradient_types", "operator_types", "update_types"]

# Types that differ from the ATen name in camel case.
_TYPES: Dict[str, str] = {
    "_convolution": "Conv",
    "_softmax": "Softmax",
    "_to_copy": "Cast",
    "adaptive_avg_pool1d": "AveragePool",
    "adaptive_avg_pool2d": "AveragePool",
    "adaptive_avg_pool3d": "AveragePool",
    "addmm": "MatMul",
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "argmax": "ArgMax",
    "argmin": "ArgMin",
    "avg_pool1d": "AveragePool",
    "avg_pool2d": "AveragePool",
    "avg_pool3d": "AveragePool",
    "baddbmm": "MatMul",
    "batch_norm": "BatchNormalization",
    "bmm": "MatMul",
    "cat": "Concat",
    "clamp": "Clip",
    "clone": "Identity",
    "conv1d": "Conv",
    "conv2d": "Conv",
    "conv3d": "Conv",
    "convolution": "Conv",
    "copy": "Copy",
    "cross_entropy_loss": "Nll",
    "ctc_loss": "Ctc",
    "embedding": "Gather",
    "eq": "Equal",
    "flatten": "Reshape",
    "ge": "GreaterOrEqual",
    "group_norm": "GroupNormalization",
    "gru": "GRU",
    "gt": "Greater",
    "index_select": "Gather",
    "instance_norm": "InstanceNormalization",
    "ipu_print_tensor": "PrintTensor",
    "l1_loss": "L1",
    "layer_norm": "GroupNormalization",
    "le": "LessOrEqual",
    "log_softmax": "LogSoftmax",
    "logical_not": "Not",
    "lstm": "LSTM",
    "lt": "Less",
    "masked_fill": "Where",
    "matmul": "MatMul",
    "max_pool1d": "MaxPool",
    "max_pool2d": "MaxPool",
    "max_pool3d": "MaxPool",
    "mean": "ReduceMean",
    "mm": "MatMul",
    "nll_loss": "Nll",
    "nll_loss2d": "Nll",
    "nll_loss_nd": "Nll",
    "permute": "Transpose",
    "prod": "ReduceProd",
    "reshape": "Reshape",
    "rnn_relu": "RNN",
    "rnn_tanh": "RNN",
    "rsqrt": "Reciprocal",
    "run_cond": "If",
    "run_for_loop": "Loop",
    "select": "Slice",
    "stack": "Concat",
    "sum": "ReduceSum",
    "t": "Transpose",
    "to": "Cast",
    "topk": "TopK",
    "view": "Reshape",
}


def operator_types(node: torch.fx.Node) -> Tuple[str, ...]:
    """Return the types of the compiler's operators that `node` becomes, in order; the last one has its result.

    A linear layer is a product and, with a bias, a sum; in-place operators have the type of the others.
    """
    label = operator_label(node)
    name = label[:-1] if label.endswith("_") and not label.endswith("__") else label
    if name == "linear":
        has_bias = len(node.args) > 2 and node.args[2] is not None
        return ("MatMul", "Add") if has_bias else ("MatMul",)
    if _is_transposed(node, name):
        return ("ConvTranspose",)
    return (_TYPES.get(name) or _camel_case(name),)


def gradient_types(operator_type: str) -> Tuple[str, ...]:
    """Return the types of the operators that differentiate one of `operator_type`.

    >>> gradient_types("MultiConv")
    ('MultiConvDataGrad', 'MultiConvWeightsGrad')
    """
    if operator_type in ("Conv", "MultiConv"):
        return (f"{operator_type}DataGrad", f"{operator_type}WeightsGrad")
    if operator_type == "MatMul":
        return ("MatMulLhsGrad", "MatMulRhsGrad")
    return (f"{operator_type}Grad",)


def update_types(optimizer: str, *, has_momentum: bool) -> Tuple[str, ...]:
    """Return the types of the operators that update one parameter, for the name of an optimizer on the device.

    >>> update_types("SGD1", has_momentum=False)
    ('SGD0VarUpdate',)
    """
    if optimizer.startswith("SGD"):
        return (f"{optimizer}AcclUpdate", f"{optimizer}VarUpdate") if has_momentum else ("SGD0VarUpdate",)
    if optimizer.startswith("RMSPROP"):
        return ("Accumulate", "RMSPropUpdater", "ScaledVarUpdate")
    return ("Accumulate", "Accumulate", "AdamUpdater", "AdamVarUpdate")


def _is_transposed(node: torch.fx.Node, name: str) -> bool:
    if not is_convolution(node):
        return False
    return name.startswith("conv_transpose") or (name.endswith("convolution") and bool(node.args[6]))


def _camel_case(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.strip("_").split("_"))
