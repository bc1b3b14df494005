"""Describe a call of compiled programs as plain data, all that a process needs that loads them.

The name of an argument says which tensor it is, `kind:detail:name`:

* `parameter::weight`, `slot:Accl1:weight`, `accumulator::weight`: of that part of a parameter; with the detail `own`
  of the part that the replica of the run has.
* `buffer:1:running_mean`: of replica 1, or with the detail `own` of the replica of the run.
* `constant:0:`, `input:0:`: by their index; an input is the window of rows that one run works on.
* `hyper_parameters::`: the hyper-parameters of each step of a run, single precision, [step, field].
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

import torch

from ...capture.plain_values import dtype_name, dtype_named
from ..calls.call_plan import CallPlan

__all__ = [
    "CallLayout",
    "GroupLayout",
    "ResultsOfRuns",
    "TensorSpec",
    "describe_layout",
    "describe_plan",
    "find_num_blocks",
    "name_argument",
    "read_argument_name",
]


def name_argument(kind: str, *, detail: str = "", name: str = "") -> str:
    """Return the name of an argument.

    >>> name_argument("slot", detail="Accl1", name="layer.weight")
    'slot:Accl1:layer.weight'
    """
    return f"{kind}:{detail}:{name}"


def read_argument_name(text: str) -> Tuple[str, str, str]:
    """Take the name of an argument apart: its kind, detail and name.

    >>> read_argument_name("buffer:0:layer.running_mean")
    ('buffer', '0', 'layer.running_mean')
    """
    # only twice: names of parameters may have colons
    kind, detail, name = text.split(":", 2)
    return kind, detail, name


def describe_plan(plan: CallPlan) -> Dict[str, Any]:
    """Return what programs depend on of a plan, as plain values; all else of it are numbers of a call.

    >>> describe_plan(CallPlan(iterations=2)) == describe_plan(CallPlan(iterations=2, mean_reduction=False))
    True
    """
    groups = plan.input_groups
    return {
        "iterations": plan.iterations,
        "accumulation": plan.accumulation,
        "replicas": plan.replicas,
        "output_mode": plan.output_mode,
        # What has no effect is no difference: it would only compile the same program again.
        "output_period": plan.output_period if plan.output_mode == "every_n" else 1,
        "input_groups": [groups.size, groups.strided] if groups is not None and find_num_blocks(plan) else [],
    }


def find_num_blocks(plan: CallPlan) -> int:
    """Return how many blocks of rows an input has, one for each group of several replicas; 0 without such groups."""
    groups = plan.input_groups
    return groups.num_groups if groups is not None and groups.size > 1 else 0


def describe_layout(value: object) -> Any:
    """Return a layout, or a part of one, as plain values, fit for JSON.

    >>> describe_layout(TensorSpec("input:0:", (2,), (1,), torch.float32))
    {'name': 'input:0:', 'shape': [2], 'stride': [1], 'dtype': 'float32'}
    """
    if is_dataclass(value):
        return {field.name: describe_layout(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: describe_layout(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return list(map(describe_layout, value))
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    return sorted(value) if isinstance(value, frozenset) else value


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that a program is compiled for."""

    name: str
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor, *, name: str) -> TensorSpec:
        """Describe `tensor`."""
        return cls(name, tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TensorSpec:
        """Make the spec that `describe_layout` described."""
        return cls(values["name"], tuple(values["shape"]), tuple(values["stride"]), dtype_named(values["dtype"]))


@dataclass(frozen=True)
class GroupLayout:
    """A parameter group: `structure` is what its update is compiled for, `trained` the parts that have a gradient.

    `names` are all parts that the group had when the program was made, and `slots` the state tensors of each of them.
    """

    structure: Mapping[str, Any]
    names: Tuple[str, ...]
    trained: Tuple[str, ...]
    slots: Tuple[str, ...]

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GroupLayout:
        """Make the layout that `describe_layout` described."""
        return cls(values["structure"], *(tuple(values[name]) for name in ("names", "trained", "slots")))


@dataclass(frozen=True)
class CallLayout:
    """What a call must look like, and in which runs of which programs it is done.

    `kind` is "steps" where one run of a program does `steps_per_run` whole optimizer steps ("step", or "forward"
    without training). It is "micro-batches" where a run of "accumulate" or "forward" does `micro_batches_at_once` of
    one replica, and "update" ends an optimizer step. `plan` is what `describe_plan` says of the plan that the programs
    are made for. `arguments` are those of each program. `results` says how those of several runs become the results of
    the call: "last" (only the last run's count), "join", "sum", or "micro-batches", where the program
    returns those of each of its micro-batches.

    With `fused_update` no program updates: torch's fused kernels do, after each step. A run of the kind "steps" is then
    one step of the program "gradients", which returns the gradients of `trained` parts after its results; one of the
    kind "micro-batches" leaves them in the accumulators.

    `bounds` are those of inputs that are indices; a program would meet a bad one when it has begun to update.
    """

    kind: str
    trains: bool
    plan: Mapping[str, Any]
    arguments: Mapping[str, Tuple[TensorSpec, ...]]
    inputs: Tuple[TensorSpec, ...]
    num_results: int
    groups: Tuple[GroupLayout, ...] = ()
    steps_per_run: int = 1
    micro_batches_at_once: int = 1
    results: str = "last"
    is_random: bool = False
    constant_outputs: FrozenSet[int] = frozenset()
    parts: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    fused_update: bool = False
    bounds: Tuple[Tuple[int, int, int, Optional[int]], ...] = ()

    @property
    def role_of_runs(self) -> str:
        """The role of the program that runs on the rows of inputs."""
        if not self.trains:
            return "forward"
        if self.kind == "micro-batches":
            return "accumulate"
        return "gradients" if self.fused_update else "step"

    @property
    def trained(self) -> Tuple[str, ...]:
        """All parts of parameters that have a gradient, group by group."""
        return tuple(part for group in self.groups for part in group.trained)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CallLayout:
        """Make the layout that `describe_layout` described; JSON has lists only."""
        converted: Dict[str, Any] = {
            "arguments": {role: _read_specs(specs) for role, specs in values["arguments"].items()},
            "inputs": _read_specs(values["inputs"]),
            "groups": tuple(map(GroupLayout.from_dict, values["groups"])),
            "constant_outputs": frozenset(values["constant_outputs"]),
            "parts": {name: tuple(parts) for name, parts in values["parts"].items()},
            "bounds": tuple(map(tuple, values.get("bounds", ()))),
        }
        plain = {field.name: values[field.name] for field in fields(cls) if field.name not in converted}
        return cls(**plain, **converted)


def _read_specs(values: Sequence[Mapping[str, Any]]) -> Tuple[TensorSpec, ...]:
    return tuple(map(TensorSpec.from_dict, values))


class ResultsOfRuns:
    """Gathers the results of several runs.

    A program has already combined the micro-batches of its run, so that only runs are left to be combined here.
    """

    def __init__(self, layout: CallLayout) -> None:
        """Start an empty collection; `layout` says how results are combined, and which are constant."""
        self._layout = layout
        self._runs: List[List[torch.Tensor]] = []

    def add(self, results: List[torch.Tensor]) -> None:
        """Take the results of the next run."""
        kind = self._layout.results
        if kind == "sum" and self._runs:
            # summed at once, so that a call of many runs keeps the memory of one
            constant = self._layout.constant_outputs
            pairs = enumerate(zip(self._runs[0], results))
            self._runs = [[new if index in constant else total + new for index, (total, new) in pairs]]
        elif kind == "last":
            self._runs = [results]
        else:
            self._runs.append(results)

    def combine(self) -> List[torch.Tensor]:
        """Return one tensor for each result of the call."""
        if len(self._runs) == 1:
            return list(self._runs[0])
        joined = [torch.stack(parts) if parts[0].dim() == 0 else torch.cat(parts) for parts in zip(*self._runs)]
        for index in self._layout.constant_outputs:
            joined[index] = self._runs[-1][index]
        return joined
