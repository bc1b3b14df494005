"""Run recurrent layers with several layers or directions, without biases or with dropout, as layers of the device.

The operator table has it for `torch.lstm`, `torch.gru` and `torch.rnn_*`. T = time, B = samples, F = features,
H = hidden size; the order of T and B is `batch_first`'s.
"""

from __future__ import annotations

import functools
from typing import Any, Callable, List, Sequence, Tuple, Union

import torch
import torch.nn.functional as F

from porting.remedies.entries import Fallback, OperatorSubstitute

__all__ = ["SUBSTITUTES", "compute_recurrent"]


def compute_recurrent(
    operator: Callable[..., Any],
    input: torch.Tensor,
    state: Union[torch.Tensor, Sequence[torch.Tensor]],
    weights: Sequence[torch.Tensor],
    has_biases: Any = None,
    num_layers: Any = None,
    dropout: float = 0.0,
    train: bool = False,
    bidirectional: bool = False,
    batch_first: bool = False,
) -> Any:
    """Compute what torch's recurrent `operator` does, layer by layer and direction by direction.

    `input` is (T, B, F); `state` a tensor (layers x directions, B, H), for an LSTM a pair of them; `weights` are in
    torch's order. `Fallback` for packed sequences, projections, and what the device computes as it is.
    """
    num_directions = 2 if bidirectional else 1
    is_packed = isinstance(weights, torch.Tensor) or not isinstance(has_biases, bool)
    if is_packed or len(weights) != num_layers * num_directions * (4 if has_biases else 2):
        return Fallback
    is_plain = num_layers * num_directions == 1 and (has_biases or operator is torch.gru)
    if is_plain and not dropout:
        return Fallback
    run = functools.partial(_run_direction, operator, has_biases=has_biases, batch_first=batch_first)
    is_single = isinstance(state, torch.Tensor)
    per_layer = len(weights) // (num_layers * num_directions)
    finals: List[Sequence[torch.Tensor]] = []
    for layer in range(num_layers):
        outputs = []
        for direction in range(num_directions):
            position = layer * num_directions + direction
            own = weights[position * per_layer : (position + 1) * per_layer]
            begun: Any = [part[position : position + 1] for part in ([state] if is_single else state)]
            output, final = run(input, begun[0] if is_single else begun, own, is_reversed=direction == 1)
            outputs.append(output)
            finals.append(final)
        input = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        if dropout and layer < num_layers - 1:
            input = F.dropout(input, dropout, train)
    return (input, *(torch.cat(parts) for parts in zip(*finals)))


def _run_direction(
    operator: Callable[..., Any],
    input: torch.Tensor,
    state: Union[torch.Tensor, Sequence[torch.Tensor]],
    weights: Sequence[torch.Tensor],
    *,
    has_biases: bool,
    batch_first: bool,
    is_reversed: bool,
) -> Tuple[torch.Tensor, Sequence[torch.Tensor]]:
    """Run one layer in one direction; returns its output and its last states, each (1, B, H)."""
    time = [1] if batch_first else [0]
    if not has_biases:
        zeros = torch.zeros(weights[0].shape[:1], dtype=weights[0].dtype, device=weights[0].device)
        weights = [*weights, zeros, zeros]
    sequence = input.flip(time) if is_reversed else input
    output, *final = operator(sequence, state, list(weights), True, 1, 0.0, False, False, batch_first)
    return (output.flip(time) if is_reversed else output), final


SUBSTITUTES = tuple(
    OperatorSubstitute(f"torch.{operator.__name__}", operator, functools.partial(compute_recurrent, operator))
    for operator in (torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu)
)
