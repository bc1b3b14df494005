"""The tensors of a device as the arguments of programs, looked up once: what a call has to do for them is little."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch

from ...torch_insides.tensors import read_base, read_version
from ..calls.device_state import DeviceState
from ..update.updates import ensure_slots
from .call_layout import CallLayout, TensorSpec, read_argument_name

__all__ = ["Arguments", "BoundState", "Mismatch"]


class Mismatch(Exception):  # noqa: N818 - no error, the call is done another way
    """Programs do not fit a call; the text says why, as a clause without a full stop."""


class Arguments:
    """The list of arguments of a program, in which a call fills in its hyper-parameters and inputs."""

    def __init__(self, specs: Sequence[TensorSpec], tensors: Sequence[Optional[torch.Tensor]]) -> None:
        """Take the tensors that stay the same; None stands for what calls fill in."""
        # One list for all calls, changed in place: programs with thousands of arguments would spend their time on
        # making it.
        self.tensors: List[Any] = list(tensors)
        names = [read_argument_name(spec.name) for spec in specs]
        self.hyper_parameters = next((i for i, (kind, _, _) in enumerate(names) if kind == "hyper_parameters"), None)
        self.inputs = [(index, int(detail)) for index, (kind, detail, _) in enumerate(names) if kind == "input"]


class BoundState:
    """A state whose tensors fit `layout`; counts of updates are kept together, so that one operator advances them.

    `accumulators` are those of a step by the parts of parameters.

    Raises Mismatch for tensors other than those that the programs were compiled for.
    """

    def __init__(self, state: DeviceState, layout: CallLayout, groups: Sequence[Any]) -> None:
        """Make missing slots and look all tensors up."""
        self.state = state
        self._layout = layout
        if {name: tuple(parts) for name, parts in state.parts.items()} != dict(layout.parts):
            # Names of arguments are names of parts, so that other parts are other arguments.
            raise Mismatch("other parameters differ between replicas")
        for settings, group in zip(groups, layout.groups):
            ensure_slots(settings, group.trained, state.parameters, state.slots)
        self.accumulators: Dict[str, torch.Tensor] = {}
        self._arguments: Dict[Tuple[str, int], Arguments] = {}
        # One slot stands for all: a checkpoint that is loaded exchanges every slot of a state.
        self._first_part = next(iter(layout.trained), None)
        self._first = None if self._first_part is None else state.slots[self._first_part]
        self._counted = [
            [state.slots[part] for part in group.trained]
            for group in layout.groups
            if "Step" in group.structure["slots"] and not layout.fused_update  # which counts for itself
        ]
        slots = [own for of_group in self._counted for own in of_group]
        with torch.inference_mode(False):
            # Views of one tensor, in the state too: a counter for each parameter, as the vendor keeps them, would cost
            # an operator each in every step.
            self._counts = torch.stack([own["Step"] for own in slots]) if slots else torch.zeros(0)
        for own, count in zip(slots, self._counts.unbind()):
            own["Step"] = count
        # Torch counts the writes to a tensor. While the count has not changed, the values that were read are still
        # right, and nothing waits for a device.
        self._seen_version = -1
        self._values: List[Optional[int]] = []
        # All of them now: before a call begins, a mismatch only means that it is replayed.
        for role in layout.arguments:
            for replica in range(1 if layout.kind == "steps" else len(state.buffers)):
                self.find_arguments(role, replica)

    # -- counts of updates ---------------------------------------------------------------------------------------------

    def is_current(self, state: DeviceState) -> bool:
        """Tell whether `state` is the bound one and still has the slots that were found."""
        if state is not self.state:
            return False
        if self._first_part is None:
            return True
        if state.slots.get(self._first_part) is not self._first:
            return False
        # Another executable may have bound the state since, which puts the counts elsewhere.
        first = next((own for of_group in self._counted for own in of_group), None)
        return first is None or read_base(first["Step"]) is self._counts

    def read_counts(self) -> List[int]:
        """Return for each group how many updates its parameters have made; 0 for one that does not count.

        Raises Mismatch where parameters of a group have made different numbers.
        """
        if self._seen_version != read_version(self._counts):
            values = iter(self._counts.tolist())
            found = [{int(next(values)) for _ in of_group} for of_group in self._counted]
            self._values = [next(iter(numbers)) if len(numbers) == 1 else None for numbers in found]
            self._seen_version = read_version(self._counts)
        if None in self._values:
            raise Mismatch("parameters of one group have made different numbers of updates")
        counted = iter(self._values)
        return [(next(counted) or 0) if "Step" in group.structure["slots"] else 0 for group in self._layout.groups]

    def advance(self, num_updates: int) -> None:
        """Note that all parameters have made `num_updates` more updates."""
        if self._counted and num_updates:
            self._counts.add_(num_updates)
            if self._seen_version >= 0:
                self._values = [None if value is None else value + num_updates for value in self._values]
                self._seen_version = read_version(self._counts)

    # -- arguments -----------------------------------------------------------------------------------------------------

    def find_arguments(self, role: str, replica: int = 0) -> Arguments:
        """Return the arguments of the program of a role, on what `replica` has."""
        key = (role, replica)
        if key not in self._arguments:
            specs = self._layout.arguments[role]
            self._arguments[key] = Arguments(specs, [self._find_tensor(spec, replica) for spec in specs])
        return self._arguments[key]

    def empty_accumulators(self) -> None:
        """Begin the next step's gradients, or forget those of a step that was not finished."""
        for accumulator in self.accumulators.values():
            accumulator.zero_()

    def match_gradients(self, results: Sequence[torch.Tensor]) -> Dict[str, torch.Tensor]:
        """Return gradients that a program has returned by the parts of parameters, in the memory format of those."""
        found = {}
        for part, gradient in zip(self._layout.trained, results):
            weight = self.state.parameters[part]
            found[part] = gradient
            if gradient.stride() != weight.stride():
                with torch.no_grad():
                    like = torch.empty_like(weight, dtype=gradient.dtype, requires_grad=False)
                    found[part] = like.copy_(gradient)
        return found

    def _find_tensor(self, spec: TensorSpec, replica: int) -> Optional[torch.Tensor]:
        """Return the tensor that an argument stands for, in what `replica` has; None for what each call fills in."""
        state, (kind, detail, name) = self.state, read_argument_name(spec.name)
        if kind in ("hyper_parameters", "input"):
            return None
        part = state.find_part(name, replica) if detail == "own" and kind != "buffer" else name
        if kind == "constant":
            found = state.constants[int(detail)]
        elif kind == "buffer":
            found = state.buffers[replica if detail == "own" else int(detail)][name]
        elif kind == "slot":
            found = state.slots[part][detail]
        elif kind == "accumulator":
            if part not in self.accumulators:
                # With the strides that the program was compiled for, which `zeros_like` might choose otherwise.
                self.accumulators[part] = torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype).zero_()
            found = self.accumulators[part]
        else:
            found = state.parameters[part]
        if tuple(found.shape) != spec.shape or found.stride() != spec.stride or found.dtype != spec.dtype:
            raise Mismatch(f"the {kind} `{name or detail}` has another shape, type or memory format")
        # the same memory: a program writes its weights in place
        return found.detach()
