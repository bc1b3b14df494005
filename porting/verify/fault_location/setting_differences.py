"""List the settings of modules, losses and optimizers of which a port has another value than plain PyTorch.

`evidence` and the words of a location have them.
"""

from __future__ import annotations

import difflib
import inspect
from dataclasses import dataclass, replace
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, cast

import torch
from torch import nn

from porting.api.port import Port
from porting.diagnostics import Place
from porting.torch_insides.modules import LOSSES
from porting.verify.optimizer_settings import Settings, are_same_settings, group_setting_differences, say_setting
from porting.verify.plain_training import PlainTraining
from porting.verify.port_reading import PortReading

__all__ = ["SettingDifference", "compare_losses", "compare_modules", "compare_optimizers"]

_MISSING = "absent"
_SIMPLE = (bool, int, float, str, type(None), torch.dtype)


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
        if self.name == "training":
            return f"it is in {'train' if self.ported else 'eval'} mode in the port alone"
        return f"`{self.name}` is {say_setting(self.plain)} in plain PyTorch and {say_setting(self.ported)} in the port"


# -- modules -----------------------------------------------------------------------------------------------------------


def compare_modules(plain: nn.Module, ported: nn.Module) -> List[SettingDifference]:
    """List the settings of modules with the same path that differ: class, numbers and words, mode, `requires_grad`."""
    ones, others = dict(plain.named_modules()), dict(ported.named_modules())
    found: List[SettingDifference] = []
    for path in {**ones, **others}:
        pair = ones.get(path), others.get(path)
        if pair[0] is None or pair[1] is None:
            words = [_MISSING if module is None else type(module).__name__ for module in pair]
            found.append(SettingDifference(path, "module", words[0], words[1]))
        else:
            found += _compare_pair(path, pair[0], pair[1])
    return found


def _compare_pair(path: str, one: nn.Module, other: nn.Module) -> Iterator[SettingDifference]:
    kinds = type(one), type(other)
    if kinds[0] is not kinds[1] and kinds[0].__name__ != kinds[1].__name__:
        yield SettingDifference(path, "class", kinds[0].__name__, kinds[1].__name__)
        if any(kind.__module__.startswith("torch.nn.") for kind in kinds) and not issubclass(kinds[1], kinds[0]):
            return  # with settings of their own, which say nothing more
    yield from _compare_functions(path, "forward", *(_find_forward(module) for module in (one, other)))
    before, after = _collect_settings(one), _collect_settings(other)
    for name in {**before, **after}:
        values = before.get(name, _MISSING), after.get(name, _MISSING)
        # whether one is trained that the other has not is no more than that
        is_moot = name.endswith(".requires_grad") and not (name in before and name in after)
        if not is_moot and not are_same_settings(*values):
            yield SettingDifference(path, name, *values)


def _find_forward(module: nn.Module) -> Any:
    forward = getattr(module, "forward", None)
    return getattr(forward, "__func__", forward)


def _collect_settings(module: nn.Module) -> Dict[str, Any]:
    found: Dict[str, Any] = {}
    for name, value in vars(module).items():
        # a `forward` that was put on the instance is compared as code
        if name == "forward" or name.startswith("_") and name != "_reversed_padding_repeated_twice":
            continue
        if isinstance(value, (*_SIMPLE, torch.Tensor)):
            found[name] = value
        elif isinstance(value, (tuple, list)) and all(isinstance(item, _SIMPLE) for item in value):
            found[name] = tuple(value)
        elif callable(value) and not isinstance(value, nn.Module):
            found[name] = _say_function(value)
    # `None` is registered where a module has been made without: `bias=False`
    for name, tensor in [*module._parameters.items(), *module._buffers.items()]:
        if tensor is None or (isinstance(module, LOSSES) and name in module._buffers):
            found[name] = tensor
        elif name in module._parameters:
            found[f"{name}.requires_grad"] = tensor.requires_grad
    return found


# -- code --------------------------------------------------------------------------------------------------------------


def _compare_functions(owner: str, name: str, one: object, other: object) -> Iterator[SettingDifference]:
    """Yield the first lines of two functions that differ, with the place of the second's."""
    if one is other:
        return
    sides = _read_lines(one), _read_lines(other)
    if not all(lines for lines, _place in sides):
        words = [_say_code(function) for function in (one, other)]
        if words[0] != words[1]:
            yield SettingDifference(owner, name, words[0], words[1])
        return
    (ones, _place), (others, place) = sides
    for kind, i, i_end, j, j_end in difflib.SequenceMatcher(None, ones, others, autojunk=False).get_opcodes():
        changed = [list(filter(_is_code, lines)) for lines in (ones[i:i_end], others[j:j_end])]
        if kind != "equal" and any(changed):
            words = [f"`{'; '.join(lines)}`" if lines else _MISSING for lines in changed]
            yield SettingDifference(
                owner, name, words[0], words[1], Place(place.file, place.line + j) if place else None
            )
            return


def _read_lines(function: object) -> Tuple[List[str], Optional[Place]]:
    """Read the lines of a function of the user's; of torch's own there are none."""
    if _find_package(function) != "torch":
        try:
            lines, first = inspect.getsourcelines(cast(Any, function))
            file = inspect.getsourcefile(cast(Any, function)) or ""
            return [line.strip() for line in lines], Place(file, max(first, 1))
        except (OSError, TypeError):
            pass
    return [], None


def _say_code(function: object) -> str:
    lines = list(filter(_is_code, _read_lines(function)[0]))
    return f"`{'; '.join(lines)}`" if lines else _say_function(function)


def _is_code(line: str) -> bool:
    return bool(line) and not line.startswith(("def ", "#", "@"))


def _say_function(function: object) -> str:
    return str(getattr(function, "__qualname__", function if function is None else type(function).__name__))


def _find_package(function: object) -> str:
    return str(getattr(getattr(function, "func", function), "__module__", "")).split(".")[0]


# -- loss --------------------------------------------------------------------------------------------------------------


def compare_losses(plain: PlainTraining, port: Port) -> List[SettingDifference]:
    """List what differs between the losses: the function or module, its settings, which argument is the label."""
    if plain.compute_loss is not None and not isinstance(plain.compute_loss, PortReading):
        loss = repr(port.loss) if isinstance(port.loss, nn.Module) else _say_code(port.loss)
        return [SettingDifference("loss", "loss", _say_code(plain.compute_loss), loss)]
    found = list(_compare_loss(plain.loss, port.loss, "loss"))
    if plain.label != port.label:
        found.append(SettingDifference("loss", "label", plain.label, port.label))
    return [*found, *_compare_transforms(plain.label_transform, port)]


def _compare_loss(one: object, other: object, owner: str) -> Iterator[SettingDifference]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in {**one, **other}:
            yield from _compare_loss(one.get(name), other.get(name), f"{owner}[{name!r}]")
        return
    weights = [getattr(loss, "weight", None) for loss in (one, other)]
    ones, others = (getattr(loss, "function", loss) for loss in (one, other))
    if ones is not one and others is not other and weights[0] != weights[1]:
        yield SettingDifference(owner, "weight", *weights)
    if isinstance(ones, nn.Module) and isinstance(others, nn.Module):
        yield from (replace(difference, owner=owner) for difference in compare_modules(ones, others))
    elif isinstance(ones, nn.Module) or isinstance(others, nn.Module) or ones is None or others is None:
        if ones is not others:
            yield SettingDifference(owner, "loss", _say_function(ones), _say_function(others))
    else:
        yield from _compare_functions(owner, "loss", ones, others)


def _compare_transforms(transform: object, port: Port) -> Iterator[SettingDifference]:
    """Yield a function of the labels that the port has alone, or lacks."""
    losses = port.loss.values() if isinstance(port.loss, Mapping) else [port.loss]
    known = [id(getattr(loss, "function", loss)) for loss in losses]
    # what the port itself puts around a user's function is none
    others = [one for one in port.wrapped.functions if id(one) not in known and _find_package(one) != "porting"]
    if (transform is None and others) or not (transform is None or any(transform is one for one in others)):
        words = None if transform is None else _say_function(transform), _say_function(next(iter(others), None))
        yield SettingDifference("loss", "label_transform", *words)


# -- optimizer ---------------------------------------------------------------------------------------------------------


def compare_optimizers(plain: Settings, ported: Settings) -> List[SettingDifference]:
    """List what differs between the optimizers; a difference that all parameters have in common has no owner."""
    found = []
    for (name, one, other), owners in group_setting_differences(plain, ported).items():
        owner = "" if len(owners) == len({**plain, **ported}) else ", ".join(owners)
        if isinstance(one, tuple):
            pairs = enumerate(zip(one, other))
            found += [SettingDifference(owner, f"{name}[{place}]", a, b) for place, (a, b) in pairs if a != b]
        else:
            found.append(SettingDifference(owner, name, one, other))
    return found
