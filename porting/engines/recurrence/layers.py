"""Compute recurrent layers for autograd, the products of all steps as one and the steps by compiled loops.

T = steps, B = rows of the batch, I = inputs, U = units, G = gates of a cell. What the loops leave is enough for the
gradients of the weights, which are one product each over all steps.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import torch
from torch.autograd.function import once_differentiable

from .kernels import Kernels, Kind, LayerMemory

__all__ = ["RECURRENT_OPERATORS", "make_operator"]

aten = torch.ops.aten

# Weights of up to 1.5 MB may be read in each step, which then multiplies its input as well: what a product over all
# steps writes would have to be read again, which costs more. A GRU needs the two products apart.
_FEW_WEIGHTS = 3 << 17

RECURRENT_OPERATORS: Dict[Any, Kind] = {
    aten.lstm.input: Kind.LSTM,
    aten.gru.input: Kind.GRU,
    aten.rnn_tanh.input: Kind.TANH,
    aten.rnn_relu.input: Kind.RELU,
}
"""The operators that have loops of ours, and the kind of their cells."""


def make_operator(operator: object, kernels: Kernels) -> Callable[..., Tuple[torch.Tensor, ...]]:
    """Return a function of the arguments of one of `RECURRENT_OPERATORS` that does the same with float32 tensors."""
    return partial(_run_operator, RECURRENT_OPERATORS[operator], kernels)


def _run_operator(
    kind: Kind,
    kernels: Kernels,
    x: torch.Tensor,
    state: Union[torch.Tensor, Sequence[torch.Tensor]],
    weights: Sequence[torch.Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Tuple[torch.Tensor, ...]:
    """Do what `aten.lstm.input` or one of its kin does with these arguments."""
    states = state if kind is Kind.LSTM else [state]
    num_directions, per_layer = (2 if bidirectional else 1), (4 if has_biases else 2)
    x = x.transpose(0, 1) if batch_first else x
    last: List[List[torch.Tensor]] = [[] for _state in states]
    for number in range(num_layers):
        outputs = []
        for direction in range(num_directions):
            index = number * num_directions + direction
            own = [*weights[index * per_layer : (index + 1) * per_layer], None, None][:4]
            cells = states[1][index] if kind is Kind.LSTM else None
            # the loops are for no other arguments of the function than these
            found = _Layer.apply(kernels, kind, bool(direction), x, states[0][index], cells, *own)
            outputs.append(found[0])
            for values, value in zip(last, found[1:]):
                values.append(value)
        x = torch.cat(outputs, -1) if bidirectional else outputs[0]
        if dropout and train and number < num_layers - 1:
            x = torch.dropout(x, dropout, True)
    output = x.transpose(0, 1) if batch_first else x
    return (output, *map(torch.stack, last))


class _Layer(torch.autograd.Function):
    """One layer in one direction: its output, [T, B, U], and the last state, of an LSTM also the last cells."""

    @staticmethod
    def forward(
        ctx: Any,
        kernels: Kernels,
        kind: Kind,
        is_reversed: bool,
        x: torch.Tensor,
        first_hidden: torch.Tensor,
        first_cells: Optional[torch.Tensor],
        weight: torch.Tensor,
        recurrent_weight: torch.Tensor,
        bias: Optional[torch.Tensor],
        recurrent_bias: Optional[torch.Tensor],
    ) -> Tuple[torch.Tensor, ...]:
        num_steps, num_rows = x.shape[:2]
        num_units = recurrent_weight.shape[1]
        ctx.has_biases, ctx.is_spent = bias is not None, False
        bias, inner_bias = _add_biases(kind, bias, recurrent_bias, num_units)
        multiplies_within = kind is not Kind.GRU and weight.numel() + recurrent_weight.numel() <= _FEW_WEIGHTS
        x = _make_rows_contiguous(x)
        if multiplies_within:
            gates = x.new_empty(num_steps, num_rows, weight.shape[0])
            inner_bias = x.new_zeros(weight.shape[0]) if bias is None else bias
        else:
            gates = kernels.multiply(x.reshape(-1, x.shape[2]), weight.t(), bias).view(num_steps, num_rows, -1)
        first, last = (num_steps, 0) if is_reversed else (0, num_steps)
        hidden = x.new_empty(num_steps + 1, num_rows, num_units)
        hidden[first] = first_hidden
        cells: Optional[torch.Tensor] = None
        if first_cells is not None:
            cells = torch.empty_like(hidden)
            cells[first] = first_cells
        elif kind is Kind.GRU:
            cells = x.new_empty(num_steps, num_rows, num_units)
        memory = LayerMemory(kind, is_reversed, recurrent_weight, gates, hidden, cells, inner_bias)
        if multiplies_within:
            memory.x, memory.weight = x, weight
        kernels.run_forward(memory)
        ctx.kernels, ctx.kind, ctx.is_reversed = kernels, kind, is_reversed
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, weight, recurrent_weight, gates, hidden, cells)
        # copies: whoever writes to a result must not reach what the backward pass reads
        output = (hidden[:-1] if is_reversed else hidden[1:]).clone()
        if first_cells is None or cells is None:
            return output, hidden[last].clone()
        return output, hidden[last].clone(), cells[last].clone()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any,
        grad_output: Optional[torch.Tensor],
        grad_hidden: Optional[torch.Tensor],
        grad_cells: Optional[torch.Tensor] = None,
    ) -> Tuple[Optional[torch.Tensor], ...]:
        x, weight, recurrent_weight, gates, hidden, cells = ctx.saved_tensors
        if ctx.is_spent:
            raise RuntimeError("the gradients of a recurrent layer's loops can be computed only once")
        ctx.is_spent = True
        needs, kernels = ctx.needs_input_grad, ctx.kernels
        # each gate's gradient takes the place of the gate, whose last use it is
        by_input, by_state = gates, torch.empty_like(gates) if ctx.kind is Kind.GRU else gates
        memory = LayerMemory(
            ctx.kind,
            ctx.is_reversed,
            recurrent_weight,
            gates,
            hidden,
            cells,
            grad_output=None if grad_output is None else _make_rows_contiguous(grad_output),
            grad_hidden=_copy_or_zeros(grad_hidden, hidden[0]),
            grad_cell=_copy_or_zeros(grad_cells, hidden[0]) if ctx.kind is Kind.LSTM else None,
            grad_input_gates=by_input,
            grad_state_gates=by_state if ctx.kind is Kind.GRU else None,
            wants_first=needs[4],
        )
        kernels.run_backward(memory)
        before = hidden[1:] if ctx.is_reversed else hidden[:-1]
        grad_bias = by_input.sum((0, 1)) if ctx.has_biases else None
        grad_recurrent_bias = by_state.sum((0, 1)) if ctx.has_biases and ctx.kind is Kind.GRU else grad_bias
        return (
            *(None,) * 3,
            kernels.multiply(by_input.flatten(0, 1), weight).view(x.shape) if needs[3] else None,
            memory.grad_hidden if needs[4] else None,
            memory.grad_cell,
            kernels.multiply_transposed(by_input, x) if needs[6] else None,
            kernels.multiply_transposed(by_state, before) if needs[7] else None,
            grad_bias,
            grad_recurrent_bias,
        )


def _add_biases(
    kind: Kind, bias: Optional[torch.Tensor], recurrent_bias: Optional[torch.Tensor], num_units: int
) -> Tuple[Optional[torch.Tensor], Optional[torch.Tensor]]:
    """Return what is added to the products with the input, and to the recurrent product of a GRU's new gate."""
    if bias is None or recurrent_bias is None:
        return None, None
    if kind is not Kind.GRU:
        return bias + recurrent_bias, None
    # the reset gate works on the sum of the recurrent product and its bias
    added = bias.clone()
    added[: 2 * num_units] += recurrent_bias[: 2 * num_units]
    return added, recurrent_bias[2 * num_units :].contiguous()


def _make_rows_contiguous(values: torch.Tensor) -> torch.Tensor:
    return values if values.stride(-1) == 1 else values.contiguous()


def _copy_or_zeros(value: Optional[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(like) if value is None else value.clone(memory_format=torch.contiguous_format)
