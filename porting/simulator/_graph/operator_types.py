"""Names operators as the graph compiler does: types of PopART for ATen operators."""

from __future__ import annotations

from typing import Dict, Tuple

import torch

from .._scopes.executed_operators import is_convolution, operator_label

__all__ = ["gradient_types", "operator_types", "update_types"]

# Types that differ from the ATen name in camel case.
# Types that differ from the ATen name in camel case, with the names of the operators that become them.
_NAMES_BY_TYPE: Dict[str, str] = {
    "ArgMax": "argmax",
    "ArgMin": "argmin",
    "AveragePool": "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d avg_pool1d avg_pool2d avg_pool3d",
    "BatchNormalization": "batch_norm",
    "Cast": "_to_copy to",
    "Clip": "clamp",
    "Concat": "cat stack",
    "Conv": "_convolution conv1d conv2d conv3d convolution",
    "Ctc": "ctc_loss",
    "Equal": "eq",
    "GRU": "gru",
    "Gather": "embedding index_select",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "GroupNormalization": "group_norm layer_norm",
    "Identity": "clone",
    "If": "run_cond",
    "InstanceNormalization": "instance_norm",
    "L1": "l1_loss",
    "LSTM": "lstm",
    "Less": "lt",
    "LessOrEqual": "le",
    "Loop": "run_for_loop",
    "MatMul": "addmm baddbmm bmm matmul mm",
    "MaxPool": "max_pool1d max_pool2d max_pool3d",
    "Nll": "cross_entropy_loss nll_loss nll_loss2d nll_loss_nd",
    "Not": "logical_not",
    "PrintTensor": "ipu_print_tensor",
    "RNN": "rnn_relu rnn_tanh",
    "Reciprocal": "rsqrt",
    "ReduceMax": "amax",
    "ReduceMean": "mean",
    "ReduceMin": "amin",
    "ReduceProd": "prod",
    "ReduceSum": "sum",
    "Reshape": "flatten view",
    "Slice": "select",
    "TopK": "topk",
    "Transpose": "permute t",
    "Where": "masked_fill",
}
_TYPES = {name: kind for kind, names in _NAMES_BY_TYPE.items() for name in names.split()}


def operator_types(node: torch.fx.Node) -> Tuple[str, ...]:
    """Return the types of the compiler's operators that `node` becomes, in order; the last one has its result.

    A linear layer is a product and, with a bias, a sum; in-place operators have the type of the others.
    """
    label = operator_label(node)
    name = label[:-1] if label.endswith("_") and not label.endswith("__") else label
    if name == "linear":
        has_bias = len(node.args) > 2 and node.args[2] is not None
        return ("MatMul", "Add") if has_bias else ("MatMul",)
    if is_convolution(node):
        # in the general form of a convolution it is an argument that says so
        if name.startswith("conv_transpose") or (name.endswith("convolution") and node.args[6]):
            return ("ConvTranspose",)
    in_camel_case = "".join(part[:1].upper() + part[1:] for part in name.strip("_").split("_"))
    return (_TYPES.get(name, in_camel_case),)


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
    # without momentum PopART has one form of SGD, whatever the optimizer was asked for
    if optimizer.startswith("SGD"):
        return (f"{optimizer}AcclUpdate", f"{optimizer}VarUpdate") if has_momentum else ("SGD0VarUpdate",)
    if optimizer.startswith("RMSPROP"):
        return ("Accumulate", "RMSPropUpdater", "ScaledVarUpdate")
    return ("Accumulate", "Accumulate", "AdamUpdater", "AdamVarUpdate")
