"""Settings of a plain training against those of a port: modules, loss, optimizer; what differs, with both values."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
import math
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.diagnostics import Place
from porting.engines.calls.group_settings import GroupSettings, read_settings
from porting.torch_insides.modules import LOSSES
from porting.verify.fault_location.program_text import write_module
from porting.verify.plain_training import PlainTraining
from porting.verify.port_reading import PortReading

__all__ = [
    "SettingDifference",
    "compare_losses",
    "compare_modules",
    "compare_optimizers",
    "name_groups",
    "read_plain_settings",
]

_MISSING = "absent"


@dataclass(frozen=True)
class SettingDifference:
    """A setting that the two sides have another value of: of a module by its path, a loss, an optimizer's parameter."""

    owner: str
    name: str
    plain: Any
    ported: Any
    place: Optional[Place] = None

    def __str__(self) -> str:
        """Say it in words.

        >>> print(SettingDifference("norm", "eps", 1e-05, 0.001))
        `eps` is 1e-05 in plain PyTorch and 0.001 in the port
        """
        return f"`{self.name}` is {_say_value(self.plain)} in plain PyTorch and {_say_value(self.ported)} in the port"


def _say_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, torch.Tensor):
        return str(value.tolist()) if value.numel() <= 8 else f"a tensor of {list(value.shape)}"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


# -- modules -----------------------------------------------------------------------------------------------------------


def compare_modules(plain: nn.Module, ported: nn.Module) -> List[SettingDifference]:
    """List the settings of modules with the same path that differ: class, numbers and words, mode, `requires_grad`."""
    ones, others = dict(plain.named_modules()), dict(ported.named_modules())
    found = []
    for path in {**ones, **others}:
        one, other = ones.get(path), others.get(path)
        if one is None or other is None:
            present = other if one is None else one
            words = type(present).__name__
            found.append(
                SettingDifference(
                    path, "module", _MISSING if one is None else words, words if one is None else _MISSING
                )
            )
        else:
            found += _compare_pair(path, one, other)
    return found


def _compare_pair(path: str, one: nn.Module, other: nn.Module) -> Iterator[SettingDifference]:
    kinds = type(one), type(other)
    if kinds[0] is not kinds[1] and kinds[0].__name__ != kinds[1].__name__:
        yield SettingDifference(path, "class", kinds[0].__name__, kinds[1].__name__)
        if any(kind.__module__.startswith("torch.nn.") for kind in kinds) and not issubclass(kinds[1], kinds[0]):
            return  # with settings of their own, which say nothing more
    yield from _compare_code(path, one, other)
    before, after = _list_settings(one), _list_settings(other)
    for name in {**before, **after}:
        values = before.get(name, _MISSING), after.get(name, _MISSING)
        # a `forward` that was put on the instance is compared as code
        if name != "forward" and not _are_equal(*values):
            yield SettingDifference(path, name, *values)
    for name, parameter in one.named_parameters(recurse=False):
        partner = dict(other.named_parameters(recurse=False)).get(name)
        if partner is not None and partner.requires_grad != parameter.requires_grad:
            yield SettingDifference(path, f"{name}.requires_grad", parameter.requires_grad, partner.requires_grad)


_SIMPLE = (bool, int, float, str, type(None), torch.dtype)


def _list_settings(module: nn.Module) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.startswith("_") and name != "_reversed_padding_repeated_twice":
            continue
        if isinstance(value, _SIMPLE) or isinstance(value, torch.Tensor):
            found[name] = value
        elif isinstance(value, (tuple, list)) and all(isinstance(item, _SIMPLE) for item in value):
            found[name] = tuple(value)
        elif callable(value) and not isinstance(value, nn.Module):
            found[name] = getattr(value, "__qualname__", type(value).__name__)
    # `None` is registered where a module has been made without: `bias=False`
    for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
        found.update({name: None} if tensor is None else {})
    if isinstance(module, LOSSES):
        found.update({name: buffer for name, buffer in module._buffers.items() if buffer is not None})
    return found


def _are_equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        both = isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor)
        return both and one.shape == other.shape and torch.equal(one.detach().cpu(), other.detach().cpu())
    if isinstance(one, float) and isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=1e-6) or (one != one and other != other)
    return bool(one == other)


def _compare_code(path: str, one: nn.Module, other: nn.Module) -> Iterator[SettingDifference]:
    """Yield the first line of `forward` that differs, where both have one of their own."""
    functions = [getattr(module, "forward", None) for module in (one, other)]
    functions = [getattr(function, "__func__", function) for function in functions]
    if functions[0] is functions[1]:
        return
    difference = compare_functions(functions[0], functions[1])
    if difference is not None:
        plain, ported, place = difference
        yield SettingDifference(path, "forward", plain, ported, place)


def compare_functions(one: Any, other: Any) -> Optional[Tuple[str, str, Optional[Place]]]:
    """Return the first lines of two functions that differ, and the place of the second's; None where there is none."""
    before, after = _read_lines(one), _read_lines(other)
    if _is_of_torch(one) or _is_of_torch(other):
        names = [
            _say_function(function) if _is_of_torch(function) else _say_code(function) for function in (one, other)
        ]
        return names[0], names[1], None
    if before is None or after is None:
        names = [getattr(function, "__qualname__", type(function).__name__) for function in (one, other)]
        return None if names[0] == names[1] else (names[0], names[1], None)
    (ones, _file, _first), (others, file, first) = before, after
    texts = [[line.strip() for line in lines] for lines in (ones, others)]
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, texts[0], texts[1], autojunk=False).get_opcodes():
        changed = [[line for line in lines if _is_code(line)] for lines in (texts[0][i:i_end], texts[1][j:j_end])]
        if kind != "equal" and any(changed):
            plain, ported = (f"`{'; '.join(lines)}`" if lines else _MISSING for lines in changed)
            return plain, ported, Place(file, first + j)
    return None


def _is_of_torch(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).split(".")[0] == "torch"


def _say_code(function: Any) -> str:
    """Return the lines of a function of the user's, without its heading; the name of one of torch."""
    read = None if _is_of_torch(function) else _read_lines(function)
    lines = [line.strip() for line in read[0]] if read is not None else []
    lines = [line for line in lines if _is_code(line)]
    return f"`{'; '.join(lines)}`" if lines else _say_function(function)


def _is_code(line: str) -> bool:
    return bool(line) and not line.startswith(("def ", "#", "@"))


def _read_lines(function: Any) -> Optional[Tuple[List[str], str, int]]:
    try:
        lines, first = inspect.getsourcelines(function)
        return lines, inspect.getsourcefile(function) or "", max(first, 1)
    except (OSError, TypeError):
        return None


# -- loss --------------------------------------------------------------------------------------------------------------


def compare_losses(plain: PlainTraining, port: Any) -> List[SettingDifference]:
    """List what differs between the losses: the function or module, its settings, which argument is the label."""
    if plain.compute_loss is not None and not isinstance(plain.compute_loss, PortReading):
        loss = port.loss
        text = write_module(loss, with_mode=False) if isinstance(loss, nn.Module) else None
        return [SettingDifference("loss", "loss", _say_code(plain.compute_loss), text or _say_code(loss))]
    found = list(_compare_loss(plain.loss, port.loss, "loss"))
    if plain.label != port.label:
        found.append(SettingDifference("loss", "label", plain.label, port.label))
    found += _compare_transforms(plain.label_transform, port)
    return found


def _compare_loss(one: Any, other: Any, owner: str) -> Iterator[SettingDifference]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in {**one, **other}:
            yield from _compare_loss(one.get(name), other.get(name), f"{owner}[{name!r}]")
        return
    weights = [getattr(loss, "weight", None) for loss in (one, other)]
    ones, others = (getattr(loss, "function", loss) for loss in (one, other))
    if ones is not one and others is not other and weights[0] != weights[1]:
        yield SettingDifference(owner, "weight", weights[0], weights[1])
    if ones is others:
        return
    if isinstance(ones, nn.Module) and isinstance(others, nn.Module):
        for difference in compare_modules(ones, others):
            yield SettingDifference(owner, difference.name, difference.plain, difference.ported, difference.place)
        return
    if isinstance(ones, nn.Module) or isinstance(others, nn.Module) or ones is None or others is None:
        yield SettingDifference(owner, "loss", _say_function(ones), _say_function(others))
        return
    difference_ = compare_functions(ones, others)
    if difference_ is not None:
        yield SettingDifference(owner, "loss", *difference_)


def _say_function(function: Any) -> str:
    return str(getattr(function, "__qualname__", function if function is None else type(function).__name__))


def _is_own(function: Any) -> bool:
    """Tell a function that the port itself puts around a user's."""
    inner = getattr(function, "func", function)
    return str(getattr(inner, "__module__", "")).split(".")[0] == "porting"


def _compare_transforms(transform: Optional[Callable[..., Any]], port: Any) -> Iterator[SettingDifference]:
    """Yield a function of the labels that the port has alone, or lacks."""
    losses = port.loss.values() if isinstance(port.loss, Mapping) else [port.loss]
    known = [getattr(loss, "function", loss) for loss in losses]
    others = [function for function in port.wrapped.functions if not any(function is own for own in known)]
    others = [function for function in others if not _is_own(function)]
    if transform is not None and not any(function is transform for function in others):
        yield SettingDifference(
            "loss", "label_transform", _say_function(transform), _say_function(next(iter(others), None))
        )
    elif transform is None and others:
        yield SettingDifference("loss", "label_transform", None, _say_function(others[0]))


# -- optimizer ---------------------------------------------------------------------------------------------------------

_WORDS = {
    "learning_rate": "lr",
    "weight_decay": "weight_decay",
    "momentum": "momentum",
    "dampening": "dampening",
    "nesterov": "nesterov",
    "beta1": "betas[0]",
    "beta2": "betas[1]",
    "eps": "eps",
    "alpha": "alpha",
    "max_grad_norm": "max_grad_norm",
    "max_weight_norm": "max_weight_norm",
}
_KINDS = {"SGD1": "SGD", "SGD2": "SGD", "ADAM": "Adam", "ADAMW": "AdamW", "RMSPROP": "RMSprop"}


def read_plain_settings(plain: PlainTraining) -> List[GroupSettings]:
    """Return the settings of the plain optimizer's groups, with the norm that gradients are clipped to.

    Raises AssertionError for an optimizer that no device has.
    """
    norm = math.inf if plain.max_grad_norm is None else float(plain.max_grad_norm)
    return [dataclasses.replace(group, max_grad_norm=norm) for group in read_settings(plain.optimizer)]


def name_groups(optimizer: torch.optim.Optimizer, model: nn.Module) -> List[List[str]]:
    """Return the names of the parameters of each of an optimizer's groups."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [[names.get(id(p), "") for p in group["params"]] for group in optimizer.param_groups]


def compare_optimizers(
    plain: PlainTraining, groups: Sequence[GroupSettings], group_names: Sequence[Sequence[str]]
) -> List[SettingDifference]:
    """List what differs between the plain optimizer and the port's `groups`, parameter by parameter.

    A difference that all parameters have in common has no owner. A plain optimizer that no device has is compared as
    far as its parameters go.
    """
    try:
        own = read_plain_settings(plain)
    except AssertionError:
        name = type(plain.optimizer).__name__
        return [SettingDifference("", "class", name, _say_kind(groups[0]))] if groups else []
    ones = _by_parameter(own, name_groups(plain.optimizer, plain.model))
    others = _by_parameter(groups, group_names)
    found: Dict[Tuple[str, Any, Any], List[str]] = {}
    for parameter in {**ones, **others}:
        for name, one, other in _compare_groups(ones.get(parameter), others.get(parameter)):
            found.setdefault((name, one, other), []).append(parameter)
    count = len({**ones, **others})
    return [
        SettingDifference("" if len(owners) == count else ", ".join(owners), name, one, other)
        for (name, one, other), owners in found.items()
    ]


def _by_parameter(groups: Sequence[GroupSettings], names: Sequence[Sequence[str]]) -> Dict[str, GroupSettings]:
    return {name: settings for settings, of_group in zip(groups, names) for name in of_group if name}


def _compare_groups(one: Optional[GroupSettings], other: Optional[GroupSettings]) -> Iterator[Tuple[str, Any, Any]]:
    if one is None or other is None:
        words = "not trained", "trained"
        yield "parameter", words[one is not None], words[other is not None]
        return
    kinds = _say_kind(one), _say_kind(other)
    is_decay_alone = set(kinds) == {"Adam", "AdamW"} and not (one.weight_decay or other.weight_decay)
    if kinds[0] != kinds[1] and not is_decay_alone:
        yield "class", kinds[0], kinds[1]
        if kinds[0][:4] != kinds[1][:4]:  # what they have in common is the rate
            if not _are_equal(one.learning_rate, other.learning_rate):
                yield "lr", one.learning_rate, other.learning_rate
            return
    for field, word in _WORDS.items():
        values = getattr(one, field), getattr(other, field)
        if not _are_equal(*values):
            yield word, values[0], values[1]


def _say_kind(settings: GroupSettings) -> str:
    return _KINDS.get(settings.kind.name, settings.kind.name)
