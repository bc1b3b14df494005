"""Call the user's own loss as a loop in plain PyTorch calls it, for the reference of a proof.

It is read here a second time, from torch and the user's arguments alone, because a certificate proves what the adapters
make of them. What plain PyTorch has no one way of doing is not guessed: `find_reading` names it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

import torch
from torch import nn

__all__ = ["find_reading", "make_loss_function"]

_OWN_LOSS = "loss"


def find_reading(training: Any) -> str:
    """Say what of a training's loss plain PyTorch does not decide by itself; nothing if it decides all.

    `training` is a `PlainTraining`, of which `compute_loss` decides everything.

    >>> from types import SimpleNamespace
    >>> find_reading(SimpleNamespace(compute_loss=None, loss={"a": torch.nn.MSELoss()}))
    'how several losses are added up'
    """
    if training.compute_loss is None and training.loss is not None and not callable(training.loss):
        return "how several losses are added up"
    return ""


def make_loss_function(training: Any) -> Callable[..., torch.Tensor]:
    """Return the function of a batch's arguments that runs the model and returns the loss.

    It is `loss(model(*inputs), target)`, the target being the argument that `label` names, or what the model returns
    as its loss. Raises TypeError or ValueError for a batch or a result that has none.
    """
    model, loss = training.model, training.loss
    if training.compute_loss is not None:
        own = training.compute_loss
        return lambda *args, **kwargs: own(model, *args, **kwargs)

    def compute_own(*args: object, **kwargs: object) -> torch.Tensor:
        return _reduce_loss(_read_own_loss(model(*args, **kwargs), training.loss_output), training.reduction)

    def compute(*args: object, **kwargs: object) -> torch.Tensor:
        args, kwargs, target = _take_target(model, args, kwargs, training.label)
        if training.label_transform is not None:
            target = training.label_transform(target)
        return _reduce_loss(loss(model(*args, **kwargs), target), training.reduction)

    return compute_own if loss is None else compute


def _take_target(
    model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], label: object
) -> Tuple[Tuple[Any, ...], Dict[str, Any], Any]:
    """Take the target, or a tuple of them, out of a batch's arguments."""
    names = _list_parameters(model)
    positions, keywords, targets = set(), set(), []
    for key in label if isinstance(label, tuple) else (label,):
        # the only argument that the model does not take is the target
        foreign = [name for name in kwargs if names and name not in names]
        if isinstance(key, int) and key == -1 and len(foreign) == 1:
            key = foreign[0]
        if isinstance(key, str) and key in kwargs:
            keywords.add(key)
            targets.append(kwargs[key])
            continue
        place = names.index(key) if isinstance(key, str) and key in names else key
        if not isinstance(place, int) or not -len(args) <= place < len(args):
            raise ValueError(f"the batch has no argument {key!r} to be the target")
        positions.add(place % len(args))
        targets.append(args[place])
    rest = tuple(value for place, value in enumerate(args) if place not in positions)
    named = {name: value for name, value in kwargs.items() if name not in keywords}
    return rest, named, tuple(targets) if isinstance(label, tuple) else targets[0]


def _list_parameters(model: nn.Module) -> Sequence[str]:
    """List what `forward` takes by name; nothing where it takes any name."""
    try:
        parameters = inspect.signature(model.forward).parameters
    except (TypeError, ValueError):  # built in
        return ()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return ()
    return list(parameters)


def _read_own_loss(returned: object, where: Any) -> torch.Tensor:
    """Find the loss in what a model returned: at `where`, by its name, or last."""
    if isinstance(returned, torch.Tensor) and where is None:
        return returned
    name = _OWN_LOSS if where is None else where
    if isinstance(name, str):
        if isinstance(returned, Mapping):
            return returned[name]
        if hasattr(returned, name):
            return getattr(returned, name)
    parts = list(vars(returned).values()) if not isinstance(returned, (tuple, list)) else returned
    return parts[-1 if where is None else where]


def _reduce_loss(loss: torch.Tensor, reduction: Optional[str]) -> torch.Tensor:
    if reduction is None:
        return loss if loss.dim() == 0 or loss.numel() != 1 else loss.sum()
    return loss.mean() if reduction == "mean" else loss.sum()
