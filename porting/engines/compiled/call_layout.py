"""Describe a call of compiled programs as plain data, all that a process needs that loads them.

The name of an argument says which tensor it is, `kind:detail:name`:

* `parameter::weight`, `slot:Accl1:weight`, `accumulator::weight`: of that part of a parameter; with the detail `own`
  of the part that the replica of the run has.
* `buffer:1:running_mean`: of replica 1, or with the detail `own` of the replica of the run.
* `constant:0:`, `input:0:`: by their index; an input is the window of rows that one run works on.
* `hyper_parameters::`: the hyper-parameters of each step of a run, single precision, [step, field].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from ..calls.call_plan import CallPlan

__all__ = [
    "ArgumentName",
    "CallLayout",
    "GroupLayout",
    "ResultsOfRuns",
    "TensorSpec",
    "argument_name",
    "plan_facts",
    "read_argument_name",
]


class ArgumentName(NamedTuple):
    """The parts of the name of a program's argument."""

    kind: str
    detail: str
    name: str


def argument_name(kind: str, *, detail: str = "", name: str = "") -> str:
    """Return the name of an argument.

    >>> argument_name("slot", detail="Accl1", name="layer.weight")
    'slot:Accl1:layer.weight'
    """
    return f"{kind}:{detail}:{name}"


def read_argument_name(text: str) -> ArgumentName:
    """Take the name of an argument apart.

    >>> read_argument_name("buffer:0:layer.running_mean")
    ArgumentName(kind='buffer', detail='0', name='layer.running_mean')
    """
    # only twice: names of parameters may have colons
    return ArgumentName(*text.split(":", 2))


def plan_facts(plan: CallPlan) -> Dict[str, Any]:
    """Return what programs depend on of a plan, as plain values; all else of it are numbers of a call.

    >>> plan_facts(CallPlan(iterations=2)) == plan_facts(CallPlan(iterations=2, mean_reduction=False))
    True
    """
    groups = plan.input_groups
    is_grouped = groups is not None and groups.size > 1
    return {
        "iterations": plan.iterations,
        "accumulation": plan.accumulation,
        "replicas": plan.replicas,
        "output_mode": plan.output_mode,
        # What has no effect is no difference: it would only compile the same program again.
        "output_period": plan.output_period if plan.output_mode == "every_n" else 1,
        "input_groups": [groups.size, groups.strided] if groups is not None and is_grouped else [],
    }


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

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values, fit for JSON.

        >>> TensorSpec("input:0:", (2,), (1,), torch.float32).to_dict()
        {'name': 'input:0:', 'shape': [2], 'stride': [1], 'dtype': 'float32'}
        """
        dtype = str(self.dtype).replace("torch.", "")
        return {"name": self.name, "shape": list(self.shape), "stride": list(self.stride), "dtype": dtype}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TensorSpec:
        """Make the spec that `to_dict` described."""
        dtype = getattr(torch, values["dtype"])
        return cls(values["name"], tuple(values["shape"]), tuple(values["stride"]), dtype)


@dataclass(frozen=True)
class GroupLayout:
    """A parameter group: `structure` is what its update is compiled for, `trained` the parts that have a gradient.

    `names` are all parts that the group had when the program was made, and `slots` the state tensors of each of them.
    """

    structure: Mapping[str, Any]
    names: Tuple[str, ...]
    trained: Tuple[str, ...]
    slots: Tuple[str, ...]

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {
            "structure": dict(self.structure),
            "names": list(self.names),
            "trained": list(self.trained),
            "slots": list(self.slots),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> GroupLayout:
        """Make the layout that `to_dict` described."""
        lists = {name: tuple(values[name]) for name in ("names", "trained", "slots")}
        return cls(structure=dict(values["structure"]), **lists)


@dataclass(frozen=True)
class CallLayout:
    """What a call must look like, and in which runs of which programs it is done.

    `kind` is "steps" where one run of a program does `steps_per_run` whole optimizer steps ("step", or "forward"
    without training). It is "micro-batches" where a run of "accumulate" or "forward" does `micro_batches_at_once` of
    one replica, and "update" ends an optimizer step. `plan` holds the facts of the plan that the programs are made for,
    as `plan_facts` gives them. `arguments` are those of each program. `results` says how those of several runs become
    the results of the call: "last" (only the last run's count), "join", "sum", or "micro-batches", where the program
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
    scalar_results: FrozenSet[int] = frozenset()
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

    def to_dict(self) -> Dict[str, Any]:
        """Return plain values, fit for JSON."""
        return {
            "kind": self.kind,
            "trains": self.trains,
            "plan": dict(self.plan),
            "arguments": {role: _specs_to_list(specs) for role, specs in self.arguments.items()},
            "inputs": _specs_to_list(self.inputs),
            "num_results": self.num_results,
            "groups": [group.to_dict() for group in self.groups],
            "steps_per_run": self.steps_per_run,
            "micro_batches_at_once": self.micro_batches_at_once,
            "results": self.results,
            "is_random": self.is_random,
            "constant_outputs": sorted(self.constant_outputs),
            "scalar_results": sorted(self.scalar_results),
            "parts": {name: list(parts) for name, parts in self.parts.items()},
            "fused_update": self.fused_update,
            "bounds": [list(bounds) for bounds in self.bounds],
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> CallLayout:
        """Make the layout that `to_dict` described."""
        converted = {
            "plan": dict(values["plan"]),
            "arguments": {role: _specs_from_list(specs) for role, specs in values["arguments"].items()},
            "inputs": _specs_from_list(values["inputs"]),
            "groups": tuple(map(GroupLayout.from_dict, values["groups"])),
            "constant_outputs": frozenset(values["constant_outputs"]),
            "scalar_results": frozenset(values["scalar_results"]),
            "parts": {name: tuple(parts) for name, parts in values["parts"].items()},
            # JSON has lists only
            "bounds": tuple(tuple(bounds) for bounds in values.get("bounds", ())),
        }
        return cls(**{**values, **converted})


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
            pairs = zip(self._runs[0], results)
            self._runs = [[self._add_results(index, total, result) for index, (total, result) in enumerate(pairs)]]
        elif kind == "last":
            self._runs = [results]
        else:
            self._runs.append(results)

    def combine(self) -> List[torch.Tensor]:
        """Return one tensor for each result of the call."""
        if len(self._runs) == 1:
            return list(self._runs[0])
        return [self._join_results(index, parts) for index, parts in enumerate(zip(*self._runs))]

    def _add_results(self, index: int, total: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        return result if index in self._layout.constant_outputs else total + result

    def _join_results(self, index: int, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        if index in self._layout.constant_outputs:
            return parts[-1]
        return torch.stack(list(parts)) if parts[0].dim() == 0 else torch.cat(list(parts))


def _specs_to_list(specs: Tuple[TensorSpec, ...]) -> List[Dict[str, Any]]:
    return [spec.to_dict() for spec in specs]


def _specs_from_list(values: Any) -> Tuple[TensorSpec, ...]:
    return tuple(map(TensorSpec.from_dict, values))
