"""A plain training that is tried out, and then is as it was: weights, buffers, optimizer's state, random streams."""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import Any, Dict, Iterator

import torch

from porting.comparison.tensors import change_last_bits
from porting.verify.plain_training import PlainTraining

__all__ = ["kept_training", "perturb_weights"]


@contextmanager
def kept_training(training: PlainTraining) -> Iterator[None]:
    """Give the training its weights, buffers, gradients and optimizer's state back at the end, and Python's stream."""
    model, optimizer = training.model, training.optimizer
    tensors = [*model.parameters(), *model.buffers()]
    values = [tensor.detach().clone() for tensor in tensors]
    gradients = [tensor.grad for tensor in tensors]
    state = {parameter: _copy_state(own) for parameter, own in optimizer.state.items()}
    stream = random.getstate()
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value, gradient in zip(tensors, values, gradients):
                tensor.copy_(value)
                tensor.grad = gradient
        optimizer.state.clear()
        optimizer.state.update(state)
        random.setstate(stream)


def _copy_state(state: Dict[str, Any]) -> Dict[str, Any]:
    return {slot: value.clone() if isinstance(value, torch.Tensor) else value for slot, value in state.items()}


def perturb_weights(training: PlainTraining, dtype: torch.dtype) -> None:
    """Change the weights in their last bits, those that numbers of `dtype` have."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in training.model.parameters():
            if parameter.is_floating_point() and torch.finfo(dtype).bits < torch.finfo(parameter.dtype).bits:
                value = parameter.to(dtype)
                change_last_bits(value, generator)
                parameter.copy_(value)
            else:
                change_last_bits(parameter, generator)
