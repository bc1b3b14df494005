"""Custom autograd functions in a graph: replay calls the backward that they brought, a body of the graph."""

from __future__ import annotations

from typing import Any, Callable, Sequence

import torch

__all__ = ["run_custom_gradient"]


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
        ctx: Any, body: Any, differentiable: Sequence[bool], num_inputs: int, num_results: int, *tensors: torch.Tensor
    ) -> Any:
        """Copy the results, which are no views of an input as far as autograd knows."""
        ctx.body, ctx.num_inputs, ctx.num_others = body, num_inputs, len(tensors) - num_inputs
        ctx.save_for_backward(*tensors[num_inputs + num_results :])
        copies = tuple(tensor.clone() for tensor in tensors[num_inputs : num_inputs + num_results])
        ctx.mark_non_differentiable(*(copy for copy, is_so in zip(copies, differentiable) if not is_so))
        return copies

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """Run the user's backward."""
        return (None, None, None, None, *ctx.body(*gradients, *ctx.saved_tensors), *[None] * ctx.num_others)
