"""Copy models and their functions, so that a function that a module keeps acts on the copied layers.

Gradients, proofs and measurements of ranges use it.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from types import CellType, FunctionType
from typing import Any, Dict, Iterable, Iterator, Mapping, Tuple

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from .module_attributes import NOT_THE_USERS
from .structure import flatten_tensors

_LARGE = 1 << 20

__all__ = ["copy_model", "copy_together", "copy_without_values", "keep_buffers"]


def copy_together(model: nn.Module, *parts: Any) -> Tuple[Any, ...]:
    """Copy a model and its companions, such as its loss and its optimizer, so that the copies belong together.

    `copy.deepcopy` refuses tensors that autograd has computed, which hooks leave in attributes: weight norm, pruning,
    and the like. The copy has their values without their history. `copy.deepcopy` also keeps functions, whose closures
    then run the layers of the original: those of this copy have the copied layers.

    >>> import torch
    >>> def penalize(model):
    ...     return lambda output: output.sum() + model.weight.sum()
    >>> model = nn.Linear(2, 2)
    >>> copied, loss = copy_together(model, penalize(model))
    >>> loss(torch.ones(1)).backward()
    >>> copied.weight.grad is None, model.weight.grad is None
    (False, True)
    """
    memo = _collect_computed_tensors(model)
    return tuple(_copy_all((model, *parts), memo))


def copy_without_values(model: nn.Module, *parts: Any) -> Tuple[Any, ...]:
    """Copy a model and its companions as `copy_together` does, with large tensors on the "meta" device.

    The copy takes next to no memory; tensors below a mebibyte keep their values, which `forward` may read.

    >>> copied, = copy_without_values(nn.Linear(1024, 1024))
    >>> copied.weight.device.type, copied.bias.device.type
    ('meta', 'cpu')
    """
    memo = _collect_computed_tensors(model)
    states = [part.state for part in parts if isinstance(part, torch.optim.Optimizer)]
    tensors = [*model.parameters(), *model.buffers(), *flatten_tensors([list(state.values()) for state in states])]
    for tensor in tensors:
        if is_lazy(tensor) or tensor.numel() * tensor.element_size() < _LARGE:
            continue
        empty = torch.empty_like(tensor, device="meta", requires_grad=False)
        is_parameter = isinstance(tensor, nn.Parameter)
        memo[id(tensor)] = nn.Parameter(empty, requires_grad=tensor.requires_grad) if is_parameter else empty
    return tuple(_copy_all((model, *parts), memo))


@contextmanager
def keep_buffers(model: nn.Module) -> Iterator[Dict[str, torch.Tensor]]:
    """Give copies of the buffers of `model`, which have these values again afterwards, whatever has written to them."""
    before = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    try:
        yield before
    finally:
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                buffer.copy_(before[name])


def copy_model(model: nn.Module, *, without: Iterable[nn.Module] = ()) -> nn.Module:
    """Copy a model; attributes that cannot be copied, such as a lock or an open file, are shared with the copy.

    Its modules `without` are not copied: they are `nn.Identity` in the copy.
    """
    memo = {**_collect_computed_tensors(model), **{id(module): nn.Identity() for module in without}}
    try:
        return _copy_all((model,), dict(memo))[0]
    except Exception:  # a user's own class may raise anything
        attributes = [item for module in model.modules() for item in vars(module).items()]
        values = (value for name, value in attributes if name not in NOT_THE_USERS)
        memo.update((id(value), value) for value in values if not _can_be_copied(value, memo))
    return _copy_all((model,), memo)[0]


def _copy_all(parts: Tuple[Any, ...], memo: Dict[int, Any]) -> Any:
    copied = [_bind_again(part, memo) for part in copy.deepcopy(parts, memo)]
    for part in copied:
        for module in part.modules() if isinstance(part, nn.Module) else ():
            attributes = vars(module)
            # hooks lie in dictionaries
            for kept in [attributes, *(value for value in attributes.values() if isinstance(value, dict))]:
                kept.update((name, _bind_again(value, memo)) for name, value in list(kept.items()))
    return copied


def _bind_again(value: object, memo: Mapping[int, Any]) -> Any:
    """Return a function with copies of its closure's values; other objects are returned unchanged."""
    if not isinstance(value, FunctionType) or not value.__closure__:
        return value
    cells = tuple(_copy_cell(cell, memo) for cell in value.__closure__)
    if all(one is other for one, other in zip(cells, value.__closure__)):
        return value
    bound = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
    bound.__kwdefaults__ = value.__kwdefaults__
    bound.__dict__.update(vars(value))
    return bound


def _copy_cell(cell: CellType, memo: Mapping[int, Any]) -> CellType:
    try:
        content = cell.cell_contents
    except ValueError:  # it is empty
        return cell
    copied = _bind_again(content, memo) if isinstance(content, FunctionType) else memo.get(id(content), content)
    return cell if copied is content else CellType(copied)


def _collect_computed_tensors(model: nn.Module) -> Dict[int, Any]:
    """Return a memo with detached copies of the tensors that autograd has computed."""
    attributes = [value for module in model.modules() for value in vars(module).values()]
    computed = (tensor for tensor in flatten_tensors(attributes) if not tensor.is_leaf)
    return {id(tensor): tensor.detach().clone() for tensor in computed}


def _can_be_copied(value: object, memo: Mapping[int, Any]) -> bool:
    try:
        copy.deepcopy(value, dict(memo))
    except Exception:
        return False
    return True
