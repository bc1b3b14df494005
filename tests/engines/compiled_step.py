"""A training step that asks much of a compiler: indices from data, random numbers, threads, a rare operator."""

from __future__ import annotations

from typing import Any, Callable, List, Tuple

import torch
import torch.nn.functional as F
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.compiled.call_layout import TensorSpec
from porting.engines.compiled.programs import Program

__all__ = ["NUM_TOKENS", "results_and_state", "step_arguments", "step_program"]

NUM_TOKENS = 50


def step_arguments() -> List[torch.Tensor]:
    """Make a table, a weight, tokens and labels."""
    torch.manual_seed(0)
    tokens = torch.randint(0, NUM_TOKENS, (4096,))
    return [torch.randn(NUM_TOKENS, 32), torch.randn(32, 20), tokens, tokens % 20]


def step_program() -> Program:
    """Trace the step; it writes to the first two of its arguments and returns the loss and an orthogonal matrix."""
    arguments = step_arguments()
    module = make_fx(_step, tracing_mode="fake")(*arguments)
    names = ("parameter::table", "parameter::weight", "input:0:", "input:1:")
    specs = tuple(TensorSpec.of(value, name=name) for name, value in zip(names, arguments))
    return Program("step", module, specs, num_results=2)


def _step(
    table: torch.Tensor, weight: torch.Tensor, tokens: torch.Tensor, labels: torch.Tensor
) -> Tuple[torch.Tensor, torch.Tensor]:
    leaves = [table.detach().requires_grad_(), weight.detach().requires_grad_()]
    with torch.enable_grad():
        hidden = F.dropout(F.embedding(tokens, leaves[0]).tanh(), 0.3)
        loss = F.cross_entropy(hidden @ leaves[1], labels)
        gradients = torch.autograd.grad(loss, leaves)
    for parameter, gradient in zip((table, weight), gradients):
        parameter.copy_(parameter - 0.1 * gradient)
    return loss.detach(), torch.linalg.qr(hidden.detach()[:32]).Q


def results_and_state(run: Callable[[List[torch.Tensor]], Any]) -> List[torch.Tensor]:
    """Run the step from one random state; return its results and what it has written to."""
    arguments = step_arguments()
    torch.manual_seed(7)
    return [*run(arguments), *arguments]
