"""The CTC loss as an operator whose results have shapes that are known beforehand, for programs to call.

Torch's kernel leaves the logarithms of forward probabilities for the backward pass. Their shape is that of the longest
target, a value of the batch, with which nothing can be traced. This operator has torch's kernels compute loss and
gradient at once, and leaves the gradient, which has the shape of the inputs. A program calls it through torch's
dispatcher, so that whoever loads one has to have imported this module.

`log_probs` is [steps, batch, classes], `targets` [batch, longest target] or one after the other, lengths are [batch].
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Callable, Mapping, Tuple

import torch

from ...support.own_operators import register_operator
from ...torch_insides.operators import CTC_LOSS, CTC_LOSS_BACKWARD

__all__ = ["WRITTEN_OUT_CTC", "compute_ctc_loss"]

aten = torch.ops.aten

_NAMESPACE = "porting_losses"


def _compute_here(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int,
    zero_infinity: bool,
    with_gradient: bool,
) -> Tuple[torch.Tensor, torch.Tensor]:
    what = (targets, input_lengths, target_lengths)
    losses, log_alpha = CTC_LOSS.Tensor(log_probs, *what, blank, zero_infinity)
    if not with_gradient:
        return losses, log_probs.new_empty(0)
    seed = torch.ones_like(losses)
    return losses, CTC_LOSS_BACKWARD.Tensor(seed, log_probs, *what, losses, log_alpha, blank, zero_infinity)


def _make_empty(log_probs: torch.Tensor, *others: Any) -> Tuple[torch.Tensor, torch.Tensor]:
    with_gradient = others[-1]
    return log_probs.new_empty(log_probs.shape[1]), log_probs.new_empty(log_probs.shape if with_gradient else (0,))


compute_ctc_loss = register_operator(
    _NAMESPACE,
    "ctc_loss(Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, int blank, "
    "bool zero_infinity, bool with_gradient) -> (Tensor, Tensor)",
    compute=_compute_here,
    make_empty=_make_empty,
)
"""Return the losses of a batch, and the gradient of each loss by `log_probs`: no element without `with_gradient`."""


def _write_out_loss(
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Do what `aten::_ctc_loss` does; the gradient takes the place of the probabilities that the other one gets."""
    found: Tuple[torch.Tensor, torch.Tensor] = compute_ctc_loss(
        log_probs, targets, input_lengths, target_lengths, blank, zero_infinity, torch.is_grad_enabled()
    )
    return found


def _write_out_gradient(
    grad: torch.Tensor,
    _log_probs: torch.Tensor,
    _targets: torch.Tensor,
    _input_lengths: torch.Tensor,
    _target_lengths: torch.Tensor,
    losses: torch.Tensor,
    gradient: torch.Tensor,
    _blank: int,
    zero_infinity: bool = False,
) -> torch.Tensor:
    """Do what `aten::_ctc_loss_backward` does, by the gradient that the loss has left."""
    found = gradient * grad.unsqueeze(-1)
    # an infinite loss may meet an infinite gradient here
    return torch.where(losses.unsqueeze(-1) == torch.inf, 0.0, found) if zero_infinity else found


WRITTEN_OUT_CTC: Mapping[Any, Callable[..., Any]] = MappingProxyType(
    {
        CTC_LOSS.Tensor: _write_out_loss,
        CTC_LOSS_BACKWARD.Tensor: _write_out_gradient,
    }
)
"""The operators that `make_fx` is to decompose, and into what."""
