"""The update of an optimizer step within a program: each parameter's arithmetic traced once for all of its form."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Sequence, Tuple

import torch

from ...torch_insides.operators import TO_COPY
from ..calls.device_state import DeviceState
from ..update.traced_updates import STEP_HYPER_PARAMETERS, compute_update, list_hyper_parameters
from ..update.updates import compute_clip_factor
from .call_layout import GroupLayout, name_argument
from .programs import ProgramGraph, count_operators
from .step_tracing import trace

__all__ = ["UpdateWriter"]

aten = torch.ops.aten


class UpdateWriter:
    """Writes updates of the parameters in `layouts` into programs; made and used within `make_fake_tensors`.

    `state` has the parameters and slots without values.
    """

    def __init__(self, layouts: Sequence[GroupLayout], state: DeviceState) -> None:
        """Trace what the parameters need."""
        self._layouts = layouts
        self._state = state
        # Tracing one parameter takes milliseconds and writing it out microseconds; a network has hundreds.
        self._templates: Dict[Any, torch.fx.Graph] = {}
        self._names: List[Tuple[int, str]] = [(-1, name) for name in STEP_HYPER_PARAMETERS]
        for group, layout in enumerate(layouts):
            self._names += [(group, name) for name in list_hyper_parameters(layout.structure)]

    @property
    def num_hyper_parameters(self) -> int:
        """How many hyper-parameters a step has."""
        return len(self._names)

    @property
    def num_operators(self) -> int:
        """How many operators an update has, about."""
        return sum(
            count_operators(self._get_template(layout, part)) + 1 + len(layout.slots)
            for layout, part in self._list_parts()
        )

    def select_hyper_parameters(self, program: ProgramGraph, step: int) -> Dict[Tuple[int, str], torch.fx.Node]:
        """Select the hyper-parameters of a step, by group and name; those of no group are of group -1."""
        row = program.call(aten.select.int, program.arguments[name_argument("hyper_parameters")], 0, step)
        return {key: program.call(aten.select.int, row, 0, index) for index, key in enumerate(self._names)}

    def write(
        self,
        program: ProgramGraph,
        gradients: Mapping[str, torch.fx.Node],
        types: Mapping[str, torch.dtype],
        hyper_parameters: Mapping[Tuple[int, str], torch.fx.Node],
    ) -> None:
        """Write the update of all trained parameters by the sums of their `gradients`, which have these `types`.

        New values are computed before any is stored, so that no gradient changes that is a view of a weight.
        """
        single: Dict[str, torch.fx.Node] = {}
        for layout, part in self._list_parts():
            # as its accumulator holds it, and then in single precision
            accumulator, gradient, dtype = getattr(torch, layout.structure["accum_type"]), gradients[part], types[part]
            for wanted in (torch.float32, accumulator, torch.float32):
                if dtype != wanted:
                    gradient, dtype = program.call(TO_COPY, gradient, dtype=wanted), wanted
            single[part] = gradient
        scale = hyper_parameters[-1, "gradient_scale"]
        single = {part: program.call(aten.mul.Tensor, gradient, scale) for part, gradient in single.items()}
        if single and self._layouts[0].structure["clips"]:
            single = _clip_gradients(program, single, hyper_parameters[-1, "max_grad_norm"])
        stores: List[Tuple[torch.fx.Node, torch.fx.Node]] = []
        for group, layout in enumerate(self._layouts):
            of_group = [hyper_parameters[group, name] for name in list_hyper_parameters(layout.structure)]
            for part in layout.trained:
                slots = [program.arguments[name_argument("slot", detail=slot, name=part)] for slot in layout.slots]
                weight = program.arguments[name_argument("parameter", name=part)]
                template = self._get_template(layout, part)
                values = program.inline(template, [weight, single[part], *slots, *of_group])
                stores += zip([weight, *slots], values)
        for target, value in stores:
            program.call(aten.copy_.default, target, value)

    def _list_parts(self) -> List[Tuple[GroupLayout, str]]:
        return [(layout, part) for layout in self._layouts for part in layout.trained]

    def _get_template(self, layout: GroupLayout, part: str) -> torch.fx.Graph:
        """Return the graph of a parameter's update; it has no shape in it, and serves all of the same types."""
        weight, slots = self._state.parameters[part], self._state.slots.get(part, {})
        types = (weight.dtype, *(slots[slot].dtype for slot in layout.slots))
        key = (tuple(sorted((name, str(value)) for name, value in layout.structure.items())), types)
        if key not in self._templates:
            self._templates[key] = _trace_update(layout, types)
        return self._templates[key]


def _trace_update(layout: GroupLayout, types: Tuple[torch.dtype, ...]) -> torch.fx.Graph:
    names = list_hyper_parameters(layout.structure)
    num_slots = len(layout.slots)

    def update(weight: torch.Tensor, gradient: torch.Tensor, *others: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        slots, hyper_parameters = dict(zip(layout.slots, others)), dict(zip(names, others[num_slots:]))
        new_weight, new_slots = compute_update(layout.structure, weight, gradient, slots, hyper_parameters)
        return (new_weight, *(new_slots[slot] for slot in layout.slots))

    # Any shape will do: the arithmetic is element by element, and norms are over all elements.
    weight, *slots = (torch.empty((2, 2), dtype=dtype) for dtype in types)
    hyper_parameters = [torch.empty((), dtype=torch.float32) for _ in names]
    with torch.no_grad():
        return trace(update, [weight, torch.empty((2, 2), dtype=torch.float32), *slots, *hyper_parameters])


def _clip_gradients(
    program: ProgramGraph, gradients: Mapping[str, torch.fx.Node], max_norm: torch.fx.Node
) -> Dict[str, torch.fx.Node]:
    norms = [program.call(aten.linalg_vector_norm.default, gradient) for gradient in gradients.values()]
    like = [torch.empty(shape, dtype=torch.float32) for shape in ((len(norms),), ())]
    factor_of = trace(lambda *given: (compute_clip_factor(*given),), like)
    (factor,) = program.inline(factor_of, [program.call(aten.stack.default, norms), max_norm])
    return {part: program.call(aten.mul.Tensor, gradient, factor) for part, gradient in gradients.items()}
