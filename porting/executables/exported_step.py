"""Keep a captured step and all else that an executable is made of, in memory and as a file.

`porting export` writes such files, and `porting compile` reads them.
"""

from __future__ import annotations

import dataclasses
import enum
import platform
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Dict, Mapping, Tuple

import torch

from ..capture import StepGraph
from ..capture.graph_data import STEP_FUNCTIONS, Functions, graph_from_data, graph_to_data
from ..capture.plain_values import value_from_data, value_to_data
from ..diagnostics import ExecutableError
from ..engines.calls.call_plan import CallPlan, ReplicaGroups
from ..engines.calls.executable import BuildRequest
from ..engines.calls.group_settings import GroupSettings, OptimizerKind
from ..engines.recompute.recomputation import run_segment
from ..engines.replay.strided_group_norm import strided_group_norm
from ..version import VERSION
from .step_file import Path, make_damaged_error, read_step_file, write_step_file

__all__ = ["BatchRecord", "ExportedStep", "load_step"]

_NO_VALUES: Mapping[str, torch.Tensor] = MappingProxyType({})
# What a graph may call after its computation order was chosen and its memory was laid out.
_FUNCTIONS: Functions = MappingProxyType(
    {**STEP_FUNCTIONS, "run_segment": run_segment, "strided_group_norm": strided_group_norm}
)
_TEXTS = ("target", "model", "precision", "computation_order")
_DAMAGES = (AttributeError, IndexError, KeyError, OverflowError, RecursionError, RuntimeError, TypeError, ValueError)


@dataclass(frozen=True)
class BatchRecord:
    """The batch that a step is for: `micro` samples x accumulation x replicas x iterations, `rows` in one call.

    `arguments` says in words what a call takes.
    """

    micro: int
    accumulation: int
    replicas: int
    iterations: int
    rows: int
    arguments: str

    def __str__(self) -> str:
        counts = ((getattr(self, name), name) for name in ("accumulation", "replicas", "iterations"))
        parts = [f"{count} {name}" for count, name in counts if count > 1]
        return " x ".join([f"batch {self.micro}", *parts]) + (f" = {self.rows} samples a call" if parts else "")


@dataclass(frozen=True, eq=False)
class ExportedStep:
    """A captured step with the request of its executable: what a second process needs to compile it.

    `graph` keeps every value for the backward pass; `computation_order` says what is to be computed again instead.
    `inputs` are those of one call, with its values. `values` are the parameters and buffers as they were; parameters
    are missing when they were left out. `target` is what the step was exported from, `precision` the one it computes
    in, `model` the class of the model.
    """

    graph: StepGraph
    request: BuildRequest
    batch: BatchRecord
    computation_order: str = "none"
    precision: str = "float32"
    target: str = ""
    model: str = ""
    inputs: Tuple[torch.Tensor, ...] = ()
    values: Mapping[str, torch.Tensor] = field(default_factory=lambda: _NO_VALUES)

    def save(self, path: Path, *, weights: bool = True) -> None:
        """Write the step as one file, with the values of its parameters if `weights`.

        Raises ExecutableError E027 for a step with a part that no file can hold, OSError where the file cannot be.
        """
        tensors = {f"constant:{index}": value for index, value in enumerate(self.graph.constant_values)}
        tensors.update({f"input:{index}": value for index, value in enumerate(self.inputs)})
        left_out = set() if weights else {info.name for info in self.graph.parameters}
        tensors.update({f"value:{name}": value for name, value in self.values.items() if name not in left_out})
        write_step_file(path, _to_header(self), tensors)


def load_step(path: Path) -> ExportedStep:
    """Read a step that `ExportedStep.save` wrote.

    Raises ExecutableError: E023 for a file that is damaged or of another kind, E024 for one that another version of
    porting or torch wrote, E027 for operators that this process does not have.
    """
    header, tensors = read_step_file(path)
    _check_versions(path, header.get("versions"))
    try:
        return _from_header(header, tensors)
    except _DAMAGES as error:
        what = f"{type(error).__name__}: {error}"
        raise make_damaged_error(path, f"its content is no step ({what:.200})") from None


def _check_versions(path: Path, versions: Any) -> None:
    """Refuse what another torch captured: its operators may mean something else."""
    if not isinstance(versions, dict):
        raise make_damaged_error(path, "it names no versions")
    written, present = str(versions.get("torch")), str(torch.__version__)
    # major and minor version, which is as often as operators change
    if written.split("+")[0].split(".")[:2] != present.split("+")[0].split(".")[:2]:
        raise ExecutableError.of(
            "E024",
            message=f"`{path}` was exported with torch {written}, this is torch {present}",
            notes="operators may have other arguments and another meaning there",
            help="export the step again with the torch that compiles and trains",
        )


# -- header ------------------------------------------------------------------------------------------------------------


def _to_header(step: ExportedStep) -> Dict[str, Any]:
    request = step.request
    if request.plan.exchange is not None:
        raise ExecutableError.of(
            "E027",
            message="a step that is trained by several processes together cannot be exported",
            help="export it for one process; replicas of one process can be exported",
        )
    return {
        "versions": {"porting": VERSION, "torch": str(torch.__version__), "python": platform.python_version()},
        **{name: getattr(step, name) for name in _TEXTS},
        "batch": dataclasses.asdict(step.batch),
        "graph": graph_to_data(step.graph, functions=_FUNCTIONS),
        "plan": {name: value for name, value in dataclasses.asdict(request.plan).items() if name != "exchange"},
        "groups": [_settings_to_data(settings) for settings in request.groups],
        "group_names": [list(names) for names in request.group_names],
        "replica_groups": {name: dataclasses.asdict(groups) for name, groups in request.replica_groups.items()},
    }


def _from_header(header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> ExportedStep:
    constants, inputs = (
        [value for name, value in tensors.items() if name.startswith(f"{kind}:")] for kind in ("constant", "input")
    )
    graph = graph_from_data(header["graph"], constant_values=constants, functions=_FUNCTIONS)
    if [(value.dtype, tuple(value.shape)) for value in constants] != [(i.dtype, i.shape) for i in graph.constants]:
        raise ValueError("the constants are others than the graph's")
    values = {name.partition(":")[2]: value for name, value in tensors.items() if name.startswith("value:")}
    infos = {info.name: info for info in (*graph.parameters, *graph.buffers)}
    if not {info.name for info in graph.buffers} <= set(values) <= set(infos):
        raise ValueError("the weights are others than the graph's")
    if [value.dtype for value in inputs] != [info.dtype for info in graph.inputs]:
        raise ValueError("the inputs are others than the graph's")
    shared = header["plan"]["input_groups"]
    plan = CallPlan(**{**header["plan"], "input_groups": None if shared is None else _read_groups(shared)})
    _require_counts(plan.iterations, plan.accumulation, plan.replicas)
    batch = BatchRecord(**header["batch"])
    _require_counts(batch.micro, batch.accumulation, batch.replicas, batch.iterations, batch.rows)
    texts = {name: header[name] for name in _TEXTS}
    if not all(isinstance(text, str) for text in (*texts.values(), batch.arguments)):
        raise TypeError("a text is no text")
    request = BuildRequest(
        plan=plan,
        groups=tuple(_settings_from_data(settings) for settings in header["groups"]),
        group_names=tuple(tuple(map(str, names)) for names in header["group_names"]),
        replica_groups={name: _read_groups(groups) for name, groups in header["replica_groups"].items()},
    )
    return ExportedStep(graph, request, batch, **texts, inputs=tuple(inputs), values=MappingProxyType(values))


def _read_groups(data: Mapping[str, Any]) -> ReplicaGroups:
    groups = ReplicaGroups(**data)
    _require_counts(groups.replicas, groups.size)
    return groups


def _require_counts(*counts: Any) -> None:
    if not all(type(count) is int and 0 < count < 1 << 31 for count in counts):
        raise ValueError("a count is none")


def _settings_to_data(settings: Any) -> Dict[str, Any]:
    values = {item.name: getattr(settings, item.name) for item in dataclasses.fields(settings) if item.name != "params"}
    is_kind = {name: isinstance(value, enum.Enum) for name, value in values.items()}
    return {name: {"kind": value.name} if is_kind[name] else value_to_data(value) for name, value in values.items()}


def _settings_from_data(data: Mapping[str, Any]) -> GroupSettings:
    kinds = {"kind": OptimizerKind}
    values = {name: value_from_data(value, lambda kind, text: kinds[kind][text]) for name, value in data.items()}
    if not all(isinstance(value, (bool, int, float, torch.dtype, enum.Enum)) for value in values.values()):
        raise TypeError("a setting is no number")
    return GroupSettings(**values)
