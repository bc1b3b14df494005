"""A workload is a model with its loss, batch, optimizer and options; a source says how another process makes it.

All measurements of this package take workloads.
"""

from __future__ import annotations

import importlib
import pickle
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Callable, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from porting.structure import flatten_tensors, make_call_arguments, map_tensors

__all__ = [
    "Batch",
    "Loss",
    "MakeOptimizer",
    "MicroBatch",
    "Parts",
    "Source",
    "SuiteEntry",
    "Workload",
    "load_by_name",
    "load_pickled",
    "pickle_workload",
]

Batch = Any
"""A combined batch: a tensor, a tuple or list of positional arguments, or a mapping of named ones."""

Loss = Union[Callable[..., torch.Tensor], Mapping[str, Any]]
"""A function of outputs and labels, or several by name."""

MakeOptimizer = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
"""Makes an optimizer of parameters."""


class MicroBatch(NamedTuple):
    """The arguments of one run of `forward` with its labels."""

    args: Tuple[Any, ...]
    kwargs: Mapping[str, Any]


@dataclass(frozen=True)
class Workload:
    """Everything that both sides work with, each on a copy of it.

    `batch` is a combined batch: the rows of one call. `optimizer` is a torch optimizer of the model's parameters, a
    function that makes one of them, or None for the device's default, SGD with a learning rate of 0.01. `options` are
    `PortOptions`, or None for the defaults; they are not imported here, so that a plain eager process stays plain.
    `loss_settings` are those arguments of `to_ipu` that say where label and loss are. What does not train is inference:
    the batch has no labels then.
    """

    model: torch.nn.Module
    loss: Optional[Loss]
    batch: Batch
    optimizer: Union[torch.optim.Optimizer, MakeOptimizer, None] = None
    options: Any = None
    name: str = "model"
    loss_settings: Mapping[str, Any] = field(default_factory=dict)
    trains: bool = True

    @property
    def steps_per_call(self) -> int:
        """Optimizer steps of one call."""
        return 1 if self.options is None else int(self.options.device_iterations)

    @property
    def micro_batches_per_step(self) -> int:
        """Micro-batches between two optimizer steps, over all replicas."""
        return 1 if self.options is None else int(self.options.accumulation * self.options.replicas)

    @property
    def rows(self) -> int:
        """Samples of a call: the rows of the first tensor that has any."""
        return next((tensor.shape[0] for tensor in flatten_tensors(self.batch) if tensor.dim()), 1)

    @property
    def samples_per_step(self) -> int:
        """Samples between two optimizer steps."""
        return self.rows // self.steps_per_call

    @property
    def num_parameters(self) -> int:
        """Elements of all parameters, shared ones counted once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def steps(self, batch: Batch) -> List[List[MicroBatch]]:
        """Cut a combined batch into the micro-batches of each optimizer step, in the device's order.

        >>> workload = Workload(torch.nn.Linear(1, 1), None, torch.zeros(4, 1))
        >>> [[tuple(micro.args[0].shape) for micro in step] for step in workload.steps(workload.batch)]
        [[(4, 1)]]
        """
        whole = MicroBatch(*make_call_arguments(batch))
        per_step, num_steps = self.micro_batches_per_step, self.steps_per_call
        if per_step * num_steps == 1:
            return [[whole]]
        num_parts = per_step * num_steps

        def cut(tensor: torch.Tensor, part: int) -> torch.Tensor:
            # as the device does: each input by its own rows, such as the edges of a graph beside its nodes
            if not tensor.dim():
                return tensor
            size = tensor.shape[0] // num_parts
            return tensor.narrow(0, part * size, size)

        parts = [MicroBatch(*map_tensors(partial(cut, part=part), whole)) for part in range(num_parts)]
        return [parts[first : first + per_step] for first in range(0, num_parts, per_step)]


Parts = Tuple[torch.nn.Module, Optional[Loss], Batch, MakeOptimizer]
"""Model, loss, batch, and the function of parameters that makes the optimizer."""


@dataclass(frozen=True)
class SuiteEntry:
    """A workload by name.

    `make` gets the rows of a call and returns the parts; that of an entry with `has_layers` may be asked for a number
    of `layers`. `demanded` has the speed-up over float32 eager that is asked of each precision; precisions that are not
    in it are not part of the suite. `matrix` (see `Choices`) and `settings` (fields of `BenchSettings`) are what it is
    measured with unless others are named. `options` are `PortOptions`,
    or None for the defaults. `needs` are the libraries without which it cannot be made.
    """

    title: str
    batch: int
    make: Callable[..., Parts]
    demanded: Mapping[str, float]
    options: Any = None
    trains: bool = True
    matrix: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    has_layers: bool = False
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Source:
    """How a fresh process makes the workload: `loader`, as in `package.module:function`, is called with `arguments`.

    The arguments are plain values, so that they can travel in a file.
    """

    loader: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def load(self, seed: int = 0) -> Workload:
        """Make the workload from the state of torch's generator that belongs to `seed`."""
        torch.manual_seed(seed)
        return load_by_name(self.loader)(**self.arguments)

    def with_cache(self, folder: str) -> Source:
        """Return this with another folder of executables."""
        return replace(self, arguments={**self.arguments, "cache_dir": folder})


def load_by_name(text: str) -> Callable[..., Any]:
    """Import `module:name` and return that object.

    >>> load_by_name("math:sqrt")(4.0)
    2.0
    """
    module, _, name = text.partition(":")
    return getattr(importlib.import_module(module), name)


def pickle_workload(workload: Workload, folder: Path) -> Tuple[Optional[Source], str]:
    """Write `workload` into `folder`; return where a process finds it, or None and why it cannot."""
    parts: List[Any] = [workload.loss, workload.optimizer, *workload.model.modules()]
    owners = [part if hasattr(part, "__qualname__") else type(part) for part in parts if part is not None]
    strangers = {owner.__qualname__ for owner in owners if getattr(owner, "__module__", "") == "__main__"}
    if strangers:
        names = ", ".join(sorted(strangers))
        return None, f"{names} is defined in the program itself, where other processes do not find it"
    path = folder / "workload.pt"
    try:
        torch.save(workload, path)
    except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:
        return None, f"the model cannot be pickled: {error}"
    return Source("porting.bench.workloads:load_pickled", {"path": str(path)}), ""


def load_pickled(path: str, cache_dir: Optional[str] = None) -> Workload:
    """Read a workload that `pickle_workload` wrote; `cache_dir` takes the place of its own folder of executables."""
    workload: Workload = torch.load(path, weights_only=False)
    if cache_dir is None:
        return workload
    return replace(workload, options=workload.options.replace(cache_dir=cache_dir))
