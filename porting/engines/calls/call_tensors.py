"""The tensors of a call: rows cut out of inputs, inputs that the device makes up, results that nothing writes to."""

from __future__ import annotations

from typing import AbstractSet, List, Sequence

import torch

__all__ = ["cut_rows", "detach_result", "make_synthetic_inputs", "prepare_rows"]


def cut_rows(tensor: torch.Tensor, position: int, num_slices: int) -> torch.Tensor:
    """Cut the rows at `position` out of an input of `num_slices` micro-batches; a scalar is the same for all."""
    if num_slices == 1 or tensor.dim() == 0:
        return tensor
    rows = tensor.shape[0] // num_slices
    return tensor.narrow(0, position * rows, rows)


# The host's own tensors must not change. And autograd keeps what it needs of an input for the backward pass, which it
# cannot do with a tensor of inference mode.
def prepare_rows(rows: torch.Tensor, *, is_written: bool, trains: bool) -> torch.Tensor:
    """Return rows of an input as a graph may use them: a copy where it writes to them or autograd cannot keep them."""
    # autograd keeps no tensor that was made under `torch.inference_mode`
    return rows.clone() if is_written or (trains and rows.is_inference()) else rows


def detach_result(result: torch.Tensor, shared: AbstractSet[int]) -> torch.Tensor:
    """Return a result that nothing else will write to: a copy where it is a view of a weight, buffer or input.

    `shared` are the addresses of their memory.
    """
    result = result.detach()
    return result.clone() if result.untyped_storage().data_ptr() in shared else result


def make_synthetic_inputs(like: Sequence[torch.Tensor], kind: str) -> List[torch.Tensor]:
    """Return tensors of the same shapes and types; `kind` is "zeros", "normal" or "uniform" (between -1 and 1).

    Integers and bools are zero, which is a valid index. The same numbers come each time.
    """
    # a generator of its own, so that measuring does not move the host's random stream
    generator = torch.Generator().manual_seed(0)
    return [_make_synthetic(tensor, kind, generator) for tensor in like]


def _make_synthetic(like: torch.Tensor, kind: str, generator: torch.Generator) -> torch.Tensor:
    made = torch.zeros(like.shape, dtype=like.dtype)
    # zero is a valid label, token and mask, whatever their range
    if not made.is_floating_point() or kind == "zeros":
        return made
    return made.normal_(generator=generator) if kind == "normal" else made.uniform_(-1.0, 1.0, generator=generator)
