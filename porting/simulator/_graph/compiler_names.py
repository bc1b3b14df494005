"""Name operators and tensors as the graph compiler does, for `getTensorNames()`, anchors and listings."""

from __future__ import annotations

from typing import Counter, Dict, Mapping, Tuple

import torch

from ...capture import StepGraph, find_losses
from ...engines.calls.step_anchors import StepValue
from ...engines.recompute.values_for_backward import list_trained_parameters
from .._scopes.executed_operators import is_convolution, label_operator, list_executed_operators, list_results

__all__ = ["list_gradient_types", "list_operator_types", "list_update_types", "name_step_values", "name_tensors"]

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


def list_operator_types(node: torch.fx.Node) -> Tuple[str, ...]:
    """Return the types of the compiler's operators that `node` becomes, in order; the last one has its result."""
    label = label_operator(node)
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


def list_gradient_types(operator_type: str) -> Tuple[str, ...]:
    """Return the types of the operators that differentiate one of `operator_type`.

    >>> list_gradient_types("MultiConv")
    ('MultiConvDataGrad', 'MultiConvWeightsGrad')
    """
    if operator_type in ("Conv", "MultiConv"):
        return (f"{operator_type}DataGrad", f"{operator_type}WeightsGrad")
    if operator_type == "MatMul":
        return ("MatMulLhsGrad", "MatMulRhsGrad")
    return (f"{operator_type}Grad",)


def list_update_types(optimizer: str, *, has_momentum: bool) -> Tuple[str, ...]:
    """Return the types of the operators that update one parameter, for the name of an optimizer on the device.

    >>> list_update_types("SGD1", has_momentum=False)
    ('SGD0VarUpdate',)
    """
    # without momentum PopART has one form of SGD, whatever the optimizer's form is
    if optimizer.startswith("SGD"):
        return (f"{optimizer}AcclUpdate", f"{optimizer}VarUpdate") if has_momentum else ("SGD0VarUpdate",)
    if optimizer.startswith("RMSPROP"):
        return ("Accumulate", "RMSPropUpdater", "ScaledVarUpdate")
    return ("Accumulate", "Accumulate", "AdamUpdater", "AdamVarUpdate")


def name_tensors(graph: StepGraph) -> Dict[str, torch.fx.Node]:
    """Name the inputs of the graph and the results of its operators.

    Parameters and buffers are called by their module path, inputs `input`, `input/1`, ..., losses `loss`, `loss/1`, ...
    with the final one first, and other results by name scope, type and number of the result, as `encoder/MatMul:0`.
    """
    final, demoted = find_losses(graph.graph)
    losses = [*final, *demoted]
    named = [
        (info.kind if info.kind in ("input", "constant") else info.name, node)
        for info, node in zip(graph.entering, graph.placeholders)
    ]
    named += [("loss", loss) for loss in losses]
    for node in list_executed_operators(graph.graph):
        if node not in losses:
            kind = f"{node.meta.get('name_scope', '')}{list_operator_types(node)[-1]}"
            named += [(f"{kind}:{number}", result) for number, result in enumerate(list_results(node))]
    found: Dict[str, torch.fx.Node] = {}
    counts: Counter[str] = Counter()
    for name, node in named:
        if isinstance(node.meta.get("val"), torch.Tensor):
            # PopART numbers equal names from the second on
            found[f"{name}/{counts[name]}" if counts[name] else name] = node
            counts[name] += 1
    return found


def name_step_values(
    graph: StepGraph, *, slots: Mapping[str, Tuple[str, ...]], adapts_loss_scaling: bool
) -> Dict[str, StepValue]:
    """Name the values that only the optimizer step has; `slots` lists the state tensors of each parameter."""
    found: Dict[str, StepValue] = {}
    trained = list_trained_parameters(graph)
    known = set(trained)
    for name in trained:
        found[f"Gradient___{name}"] = StepValue("gradient", name)
        found[f"UpdatedVar___{name}"] = StepValue("weight", name)
    for name, own in slots.items():
        if name in known:
            found.update({f"{slot}___{name}": StepValue("slot", name, slot) for slot in own})
    if adapts_loss_scaling:
        found["finalLossScale"] = StepValue("loss_scaling")
        found["lossScaleUpdateFactor"] = StepValue("loss_scaling_factor")
    return found
