"""Run graphs inside of a graph: loops run them again and again, branches perhaps, custom gradients backwards.

The functions here are what a captured graph calls besides operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List, Sequence

import torch

from ..torch_insides.operators import OpOverload, read_schema
from .operator_schema import name_arguments

__all__ = ["Body", "bodies_of", "is_random", "run_cond", "run_custom_gradient", "run_for_loop"]


@dataclass(frozen=True, eq=False)
class Body:
    """The graph of one body: its placeholders are the inputs, then what it reads of the graph around it."""

    graph: torch.fx.Graph

    def __repr__(self) -> str:
        return f"Body({len(self.graph.nodes)} nodes)"


def bodies_of(node: torch.fx.Node) -> List[Body]:
    """List the bodies that `node` runs; only loops and branches have any."""
    arguments: Sequence[Any] = node.args
    return [argument for argument in arguments if isinstance(argument, Body)]


def is_random(node: torch.fx.Node) -> bool:
    """Tell whether `node` draws random numbers, itself or in the body of its loop or branch."""
    target: Any = node.target
    if isinstance(target, OpOverload):
        return torch.Tag.nondeterministic_seeded in target.tags and not _is_switched_off(target, node)
    return any(is_random(inner) for body in bodies_of(node) for inner in body.graph.nodes)


def _is_switched_off(operator: OpOverload, node: torch.fx.Node) -> bool:
    """Tell whether a random operator has a rate of 0 or is in eval mode, where torch draws nothing."""
    named = name_arguments(operator, node.args, node.kwargs)
    if False in (named.get("train"), named.get("training")):
        return True
    # `bernoulli` calls a probability `p` as well, and `native_dropout` draws a mask of ones
    is_dropout = read_schema(operator).name.rstrip("_").endswith(("::dropout", "alpha_dropout", "feature_dropout"))
    return any(named.get(name) == 0 for name in ("dropout", "dropout_p", *(("p",) if is_dropout else ())))


def run_for_loop(
    count: int, body: Callable[..., Sequence[Any]], inputs: Sequence[Any], captured: Sequence[Any]
) -> Sequence[Any]:
    """Run `body` `count` times, each time on what it returned before; `captured` are its other arguments."""
    # handed on without copies: no two results of a body share memory
    values = inputs
    for _ in range(count):
        values = body(*values, *captured)
    return values


def run_cond(
    condition: torch.Tensor,
    then_body: Callable[..., Sequence[Any]],
    then_captured: Sequence[Any],
    else_body: Callable[..., Sequence[Any]],
    else_captured: Sequence[Any],
) -> Sequence[Any]:
    """Run one of two bodies, as the value of `condition` says."""
    if condition:
        return then_body(*then_captured)
    return else_body(*else_captured)


def run_custom_gradient(
    body: Callable[..., Sequence[torch.Tensor]],
    captured: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    results: Sequence[torch.Tensor],
    differentiable: Sequence[bool],
) -> Sequence[torch.Tensor]:
    """Return copies of `results` whose gradients go through `body` to `inputs`."""
    return _Bound.apply(body, differentiable, len(inputs), len(results), *inputs, *results, *captured)


class _Bound(torch.autograd.Function):
    """The custom function at work: its results are computed, and its backward is a function of captured operators."""

    @staticmethod
    def forward(
        ctx: Any,
        body: torch.fx.GraphModule,
        differentiable: Sequence[bool],
        num_inputs: int,
        num_results: int,
        *tensors: torch.Tensor,
    ) -> Any:
        """Copy the results, which are no views of an input as far as autograd knows."""
        ctx.body, ctx.num_inputs, ctx.num_others = body, num_inputs, len(tensors) - num_inputs
        # autograd refuses to go on with what was saved here if something has been written into it since
        ctx.save_for_backward(*tensors[num_inputs + num_results :])
        copies = tuple(tensor.clone() for tensor in tensors[num_inputs : num_inputs + num_results])
        ctx.mark_non_differentiable(*(copy for copy, is_so in zip(copies, differentiable) if not is_so))
        return copies

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Run the user's backward."""
        # as in eager PyTorch, nothing flows to what the function has saved
        return (None, None, None, None, *ctx.body(*gradients, *ctx.saved_tensors), *[None] * ctx.num_others)
