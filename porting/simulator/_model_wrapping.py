"""`trainingModel` and `inferenceModel`: a module becomes an executor."""

from __future__ import annotations

import copy
from typing import Any, Optional, Union

import torch
from torch import nn

from . import optim
from ._host_weights import refuse_wrapped
from ._poplar_executor import PoplarExecutor
from ._version import VERSION
from .errors import createPoptorchError
from .options import Options

__all__ = ["inferenceModel", "trainingModel"]


def trainingModel(
    model: Union[nn.Module, PoplarExecutor],
    options: Optional[Options] = None,
    optimizer: Optional[torch.optim.Optimizer] = None,
) -> PoplarExecutor:
    """Wrap `model` for training; the loss must be computed in its `forward`.

    The model is wrapped in place: its class and those of its weights change until `destroy()`. Without an optimizer,
    SGD with a learning rate of 0.01 is used. Raises RuntimeError when the model is wrapped for training already and
    `poptorch.Error` for anything but a module, for options of another type, and for buffers of a class of their own.
    """
    user_model = model._user_model if isinstance(model, PoplarExecutor) else model
    if not isinstance(user_model, nn.Module):
        raise createPoptorchError(f"trainingModel needs a torch.nn.Module, got {type(user_model)}")
    refuse_wrapped(user_model)
    traced = copy.copy(user_model)
    used: Any = optimizer if optimizer is not None else optim.SGD(user_model.parameters(), lr=0.01)
    return PoplarExecutor(traced, options, True, VERSION, optimizer=used, user_model=user_model)


def inferenceModel(model: Union[nn.Module, PoplarExecutor], options: Optional[Options] = None) -> PoplarExecutor:
    """Wrap `model` for inference; it is not changed, and shares its weights with a training executor of the same model.

    Compiling needs a module, which is checked then. Raises `poptorch.Error` for options of another type and for
    gradient accumulation.
    """
    user_model = model._user_model if isinstance(model, PoplarExecutor) else model
    traced = copy.copy(user_model)
    return PoplarExecutor(traced, options, False, VERSION, user_model=traced)
