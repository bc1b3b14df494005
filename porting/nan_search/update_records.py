"""Find the parameter, or the state of its optimizer, that an update makes not finite.

The search asks it after each step.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import torch

from porting.observe.watcher import WatchedOperator

from .not_finite import NotFinite
from .value_ranges import ValueRange, measure_range

__all__ = ["UpdateRecords"]

# of an optimizer, what a fault in its update may be due to
_SETTINGS = ("learning_rate", "eps", "weight_decay", "momentum", "beta1", "beta2", "alpha", "loss_scaling")

Slots = Mapping[str, Mapping[str, torch.Tensor]]
_Key = Tuple[str, str]


class UpdateRecords:
    """Told of weights, gradients and state of an optimizer before an update, it finds what is not finite behind it.

    `groups` are the settings of the optimizer's parameter groups (`kind`, `learning_rate`, ... as numbers), and
    `group_names` the parameters of each. `slots` is the state by parameter, and in it by the device's names.
    """

    def __init__(
        self,
        groups: Sequence[Any],
        group_names: Sequence[Sequence[str]],
        *,
        parameters: Mapping[str, torch.Tensor],
        slots: Slots,
    ) -> None:
        """Begin with what there is before the first update."""
        self._settings = {name: settings for settings, names in zip(groups, group_names) for name in names}
        self._gradients: Dict[str, ValueRange] = {}
        self._before = _measure_tensors(parameters, slots)
        # what is so already, and of no use to the step, is not the step's fault
        self._known = {key for key, value in self._before.items() if not value.is_finite}

    def note_gradient(self, name: str, gradient: torch.Tensor) -> None:
        """Keep the range of the gradient of the parameter called `name`, which the next update uses."""
        self._gradients[name] = measure_range("gradient", gradient)

    def end_update(self, parameters: Mapping[str, torch.Tensor], slots: Slots) -> Optional[NotFinite]:
        """Return the weight, or state of the optimizer, that an update has made not finite; None if all are.

        Weights come first: what the optimizer keeps is between them and the gradients.
        """
        after = _measure_tensors(parameters, slots)
        faulty = [key for key, value in after.items() if not value.is_finite and key not in self._known]
        if faulty:
            return self._describe_update(faulty[0], after)
        self._before, self._gradients = after, {}
        return None

    def _describe_update(self, key: _Key, after: Mapping[_Key, ValueRange]) -> NotFinite:
        kind, name = key
        parameter, result = name if kind == "parameter" else kind, after[key]
        settings = self._settings.get(parameter)
        inputs = [self._before[("parameter", parameter)]]
        inputs += [self._gradients[parameter]] if parameter in self._gradients else []
        inputs += [value for (of, _slot), value in self._before.items() if of == parameter]
        optimizer = "the optimizer" if settings is None else settings.kind.name
        numbers = [f"{word} {getattr(settings, word):g}" for word in _SETTINGS if settings is not None]
        stale = [value.name for value in inputs if not value.is_finite]
        word = "NaN" if result.num_nan else "infinity"
        return NotFinite(
            phase="update",
            message=f"the update of `{parameter}` by {optimizer} makes {word}"
            + (f" of {stale[0]}, which was not finite before" if stale else " of finite weights and gradients"),
            operator=WatchedOperator(optimizer, parameter.rpartition(".")[0]),
            name=parameter,
            inputs=tuple(inputs),
            result=result,
            notes=(*_name_part(parameter, after), *((f"settings: {', '.join(numbers)}",) if numbers else ())),
            help=("lower the learning rate, and give the optimizer an `eps` above zero",),
        )


def _name_part(parameter: str, after: Mapping[_Key, ValueRange]) -> List[str]:
    """Say which part of the formula it is: the state that the update computes first, or what is made of it."""
    state = [value for (of, _slot), value in after.items() if of == parameter]
    first = next((value for value in state if not value.is_finite), None)
    if first is not None:
        return [f"the optimizer's state comes first, and is not finite behind the update: {first}"]
    if state:
        return ["the optimizer's state stays finite: it is the step made of it, a division or the learning rate"]
    return []


def _measure_tensors(parameters: Mapping[str, torch.Tensor], slots: Slots) -> Dict[_Key, ValueRange]:
    """Measure weights, as ("parameter", name), and the optimizer's state, as (parameter, slot)."""
    measured = {("parameter", name): measure_range(f"weight {name}", tensor) for name, tensor in parameters.items()}
    for name, own in slots.items():
        measured.update({(name, slot): measure_range(f"{slot} of {name}", tensor) for slot, tensor in own.items()})
    return measured
