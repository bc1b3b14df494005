"""Make executors of modules and of files: `trainingModel`, `inferenceModel` and `load`."""

from __future__ import annotations

import copy
from typing import Any, Callable, Optional, Union

import torch
from torch import nn

from . import optim
from ._executables.saved_executables import FileName, load_executable, read_metadata
from ._poplar_executor import PoplarExecutor
from ._version import VERSION
from ._weights.host_weights import refuse_wrapped
from .enums import ConnectionType
from .errors import createPoptorchError
from .options import Options

__all__ = ["inferenceModel", "load", "trainingModel"]


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
    user_model = _find_user_model(model)
    if not isinstance(user_model, nn.Module):
        raise createPoptorchError(f"trainingModel needs a torch.nn.Module, got {type(user_model)}")
    refuse_wrapped(user_model)
    # What is traced keeps the plain class: its `forward` must not fetch weights that are on no device yet.
    traced = copy.copy(user_model)
    used: Any = optimizer if optimizer is not None else optim.SGD(user_model.parameters(), lr=0.01)
    return PoplarExecutor(traced, options, True, VERSION, optimizer=used, user_model=user_model)


def inferenceModel(model: Union[nn.Module, PoplarExecutor], options: Optional[Options] = None) -> PoplarExecutor:
    """Wrap `model` for inference; it is not changed, and shares its weights with a training executor of the same model.

    Compiling needs a module, which is checked then. Raises `poptorch.Error` for options of another type and for
    gradient accumulation.
    """
    user_model = _find_user_model(model)
    traced = copy.copy(user_model)
    return PoplarExecutor(traced, options, False, VERSION, user_model=traced)


def load(filename: FileName, edit_opts_fn: Optional[Callable[[Options], None]] = None) -> PoplarExecutor:
    """Make an executor from a file that `save` or `compileAndExport` wrote with its model; it is attached at once.

    `edit_opts_fn` may change the options first; an offline device becomes the one that is there. Weights, optimizer
    state and random state are those of the file. Reading the file runs the code that its pickled objects name: open
    only files that you trust. Raises AssertionError for files of another version or without a model, and
    `poptorch.Error` for damaged ones.
    """
    data = read_metadata(filename)
    if data.model is None or data.options is None or data.training is None:
        raise AssertionError(
            f"{filename} is a valid PopTorch file but was created with 'export_model=False' which means you need to "
            "re-create the PopTorch model using poptorch.inferenceModel or poptorch.trainingModel then call "
            f'poptorch_model.loadExecutable("{filename}").'
        )
    options = data.options
    # An executable for an absent device is run where it is loaded.
    options._unfreeze()
    options.deleteIfExists("ipu_version")
    if options.connection_type == ConnectionType.Never:
        options.connectionType(ConnectionType.Always)
    if edit_opts_fn is not None:
        edit_opts_fn(options)
    # before the executor is made, which hands the state to its device
    if isinstance(data.optimizer, optim.Optimizer) and data.optimizer_state is not None:
        data.optimizer.load_state_dict(data.optimizer_state)
    if data.training:
        executor = trainingModel(data.model, options, data.optimizer)
    else:
        executor = inferenceModel(data.model, options)
    executor.per_replica_params.update(data.per_replica_params or {})
    load_executable(executor.device_session, filename, data)
    if data.rng_state is not None:
        executor.rng_state = data.rng_state
    return executor


def _find_user_model(model: Any) -> Any:
    return model.model if getattr(type(model), "_is_poptorch_executor", False) else model
