"""Reasons to replay a step instead of compiling it, each worded once.

A reason is a clause without a full stop. Most are known before a compiler runs: from the plan of a call, the request,
or the operators of the graph. Some come to light only when the step is traced; whoever finds them raises
`NotCompilable` with the words from here.
"""

from __future__ import annotations

import operator
from typing import Any

import torch

from ...capture import StepGraph
from ...capture.device_operators import device_operator
from ...capture.graph_flow import is_random
from ...capture.subgraphs import bodies_of, run_cond, run_custom_gradient, run_for_loop
from ...support.versions import read_version
from ...torch_insides.operators import SET_GRAD_ENABLED, OpOverload, read_schema
from ..calls.call_plan import CallPlan
from ..calls.executable import BuildRequest
from ..contract.failures import EXCHANGES, why_not_tuned
from ..recompute.recomputation import run_segment
from ..replay.strided_group_norm import strided_group_norm
from .index_bounds import find_schema_name

__all__ = [
    "CHANGES_SHAPE",
    "COMPUTES_NOTHING",
    "MAKES_VALUES_ON_HOST",
    "NO_FUSED_KERNEL",
    "TRAINS_NOTHING",
    "why_not_aot",
    "why_not_compiled",
    "why_plan_is_replayed",
    "why_torch_is_too_old",
]

# What is changed of Inductor looks different in versions before.
_LEAST_TORCH = (2, 13)


CHANGES_SHAPE = "an operator has a result of another shape or type than when it was captured"
COMPUTES_NOTHING = "the step computes nothing"
MAKES_VALUES_ON_HOST = "the step makes a tensor of values on the host"
NO_FUSED_KERNEL = "torch has no fused kernel for the update of {}"
TRAINS_NOTHING = "nothing is trained, so that there is no update for torch's fused kernels"


def why_plan_is_replayed(plan: CallPlan) -> str:
    """Return why no compiled program does the calls of `plan`; empty where one may."""
    if plan.exchange is not None:
        return EXCHANGES
    if plan.adapts_loss_scaling:
        return "automatic loss scaling looks at the gradients of each step"
    if plan.rounds_at_random:
        return "stochastic rounding needs the replay engine"
    if plan.checks_floats:
        return "floating-point checks look at the result of each operator"
    return ""


def why_not_compiled(graph: StepGraph, request: BuildRequest) -> str:
    """Return why no compiler gets `graph`, as far as that is known before it is traced; empty where one may."""
    reason = why_not_tuned(request) or why_plan_is_replayed(request.plan) or _why_not_traceable(graph.graph)
    if not reason and any(value.layout != torch.strided for value in graph.constant_values):
        return "a constant of the graph is sparse"
    return reason


def why_torch_is_too_old(version: str) -> str:
    """Return why the torch of this version cannot compile whole steps; empty if it can.

    >>> why_torch_is_too_old("2.11.0+cpu")
    'whole steps are compiled by torch 2.13 and later, and this is 2.11.0+cpu'
    >>> why_torch_is_too_old("2.13.0+cpu") + why_torch_is_too_old("3.0.0a0+git1234567")
    ''
    """
    if read_version(version) >= _LEAST_TORCH:
        return ""
    return f"whole steps are compiled by torch {'.'.join(map(str, _LEAST_TORCH))} and later, and this is {version}"


def why_not_aot(graph: torch.fx.Graph) -> str:
    """Return why code that is compiled ahead of time cannot run a traced graph; empty where it can."""
    # oneDNN computes all cells of a long LSTM in one kernel, whose backward pass has no entry for such code
    if any(find_schema_name(node) == "aten::mkldnn_rnn_layer_backward" for node in graph.nodes):
        return "a long LSTM is trained by a kernel of oneDNN for all its cells, which the engine `aot` cannot call"
    return ""


# -- operators that do more than compute on the device -----------------------------------------------------------------


def _why_not_traceable(graph: torch.fx.Graph) -> str:
    reasons = (_why_operator_is_replayed(node) for node in graph.nodes if node.op == "call_function")
    return next(filter(None, reasons), "")


def _why_operator_is_replayed(node: torch.fx.Node) -> str:
    target: Any = node.target
    name = node.meta.get("operator", getattr(target, "__name__", str(target)))
    if isinstance(target, OpOverload):
        special = device_operator(target)
        is_on_host = special is not None and special.run is not None and not special.is_pure
        return f"`{name}` runs on the host" if is_on_host else ""
    if target is run_cond:
        branches = [inner for body in bodies_of(node) for inner in body.graph.nodes]
        if not all(map(_may_run_in_vain, branches)):
            return "a branch has an operator that may run only if the branch is taken"
    elif target not in _TRACEABLE:
        return f"`{name}` calls the host"
    return next(filter(None, (_why_not_traceable(body.graph) for body in bodies_of(node))), "")


_TRACEABLE = frozenset([operator.getitem, SET_GRAD_ENABLED, run_custom_gradient, run_for_loop])
_TRACEABLE |= {run_segment, strided_group_norm}

_MAY_FAIL = ("index", "embedding", "gather", "scatter", "take", "select", "nll_loss", "one_hot", "cholesky", "inv")


def _may_run_in_vain(node: torch.fx.Node) -> bool:
    """Tell whether a node of a branch changes nothing and cannot fail where the other branch is taken."""
    if node.op != "call_function" or node.target is operator.getitem:
        return True
    if is_random(node) or not isinstance(node.target, OpOverload) or node.target.namespace != "aten":
        return False
    return not any(part in read_schema(node.target).name for part in _MAY_FAIL)
