"""`PortOptions`: batches, precision, seed and cache of a port, and the device that a user asks for."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from porting.diagnostics import OptionError
from porting.options.accepted_values import Problem, find_problems, list_names, make_option_error

__all__ = ["DEVICES", "PortOptions", "read_requested_device"]

DEVICES = ("auto", "ipu", "sim")
"""What `device` and the environment variable PORTING_DEVICE may say."""


@dataclass(frozen=True)
class PortOptions:
    """How a model runs on its device; every value is checked when the options are made (OptionError P002).

    A call takes `micro_batch` x `accumulation` x `replicas` x `device_iterations` samples and makes `device_iterations`
    optimizer steps. `output_mode` says what a training call returns: the last micro-batch of each replica ("default",
    "final"), all of them, their sum, or every `output_every`-th; inference always returns every row.
    `reduction` joins the gradients of accumulation and replicas. `broadcast_buffers=False` says that replicas may have
    buffers of their own: it is needed where `forward` itself writes into one. `precision="bfloat16"` is for the
    simulator alone. `seed` fixes the device's random stream and leaves the host's alone. `cache_dir` keeps compiled
    executables. `keep_gradients` brings the gradients of each call to the host, for `ported.gradients()`; it compiles
    twice, and with several micro-batches a call it needs `output_mode="all"`.

    `engine` chooses how the simulator runs a graph: "ready" takes a compiled executable that is on disk already, or
    else replays the graph at once; "auto" measures which way is the fastest, for at most `tuning_seconds` when a graph
    is compiled for the first time, and keeps the result; or the name of an engine. The environment variable
    PORTING_ENGINE changes the default.

    `stages` cuts the model into a pipeline: {"decoder": 1, "head": 0} begins a stage on IPU 1 where the module
    `decoder` is called, and another on IPU 0 where `head` is; what comes before the first is on IPU 0. The names are
    those of `model.named_modules()`, in the order in which the model runs. A pipeline of N stages trains with an
    accumulation of at least 2 N - 1. Inference is pipelined where `device_iterations` fill it, and else runs stage
    after stage. Losses and gradients are those without stages.
    `recompute` names modules whose output an IPU keeps for the backward pass, which computes what lies between again;
    with stages it also keeps what enters a stage, and nothing else. The device's compiler is told so, and no result
    changes. `computation_order` does the same for the memory of the simulator's own machine. It chooses by itself what
    to keep, and a device is not told.

    `allow` names errors that shall be none: "custom-autograd-function" (C005) says that the device may
    differentiate what the `forward` of a `torch.autograd.Function` does, because its `backward` is the same derivative.

    `frozen` concerns values that Python decides in `forward`, and that are compiled in: "check" warns of
    them (C020), "allow" does not, and a list names those that are meant. `memory` says what becomes of a
    training step on the simulator that would not fit into an IPU (M001): "warn", "error" or "ignore".

    >>> options = PortOptions(micro_batch=4, accumulation=8, replicas=2, device_iterations=3)
    >>> options.samples_per_step, options.samples_per_call, options.micro_batches_per_call
    (64, 192, 48)
    """

    micro_batch: int = 1
    accumulation: int = 1
    replicas: int = 1
    device_iterations: int = 1
    output_mode: str = "default"
    output_every: int = 1
    reduction: str = "mean"
    precision: str = "float32"
    broadcast_buffers: bool = True
    keep_gradients: bool = False
    seed: Optional[int] = None
    cache_dir: Optional[Union[str, os.PathLike[str]]] = None
    engine: str = field(default_factory=lambda: os.environ.get("PORTING_ENGINE") or "ready")
    tuning_seconds: float = 180.0
    computation_order: str = "none"
    stages: Optional[Mapping[str, int]] = field(default=None, hash=False)
    recompute: Sequence[str] = ()
    allow: Sequence[str] = ()
    frozen: Union[str, Sequence[str]] = "check"
    memory: str = "warn"

    def __post_init__(self) -> None:
        """Check every value and name all that are wrong at once."""
        problems = find_problems(self) or _find_contradictions(self)
        if problems:
            raise make_option_error(problems)
        # copies, so that nobody can change them after the check
        object.__setattr__(self, "stages", dict(self.stages) if self.stages else None)
        object.__setattr__(self, "recompute", tuple(self.recompute))
        object.__setattr__(self, "allow", tuple(self.allow))
        if not isinstance(self.frozen, str):
            object.__setattr__(self, "frozen", tuple(self.frozen))

    @property
    def samples_per_step(self) -> int:
        """Samples between two optimizer steps: the batch size that a learning rate was tuned for."""
        return self.micro_batch * self.accumulation * self.replicas

    @property
    def samples_per_call(self) -> int:
        """Samples that one training call takes: the combined batch."""
        return self.samples_per_step * self.device_iterations

    @property
    def samples_per_inference_call(self) -> int:
        """Samples that one inference call takes; nothing is accumulated there."""
        return self.micro_batch * self.replicas * self.device_iterations

    @property
    def micro_batches_per_call(self) -> int:
        """Micro-batches that one training call is cut into."""
        return self.accumulation * self.replicas * self.device_iterations

    @property
    def stage_ipus(self) -> Tuple[int, ...]:
        """The IPU of each stage of the pipeline, in order; modules that follow each other on one IPU are one stage.

        >>> PortOptions(stages={"blocks.2": 1, "blocks.3": 1, "head": 0}).stage_ipus
        (0, 1, 0)
        """
        ipus = [0]
        for ipu in (self.stages or {}).values():
            if ipu != ipus[-1]:
                ipus.append(ipu)
        return tuple(ipus)

    @property
    def num_ipus(self) -> int:
        """IPUs that a replica is spread over."""
        return max(self.stage_ipus) + 1

    def replace(self, **changes: Any) -> PortOptions:
        """Return a copy with some values changed, checked like any other.

        >>> PortOptions(micro_batch=4).replace(replicas=2).samples_per_step
        8
        """
        return dataclasses.replace(self, **changes)


def read_requested_device(device: str = "auto") -> str:
    """Return which device was asked for: "auto", "ipu" or "sim".

    An argument other than "auto" wins; otherwise the environment variable PORTING_DEVICE decides. Raises OptionError:
    P002 for an unknown argument, P005 for an unknown value of the variable.
    """
    if device not in DEVICES:
        raise OptionError.of("P002", message=f"`device` is {device!r}", help=f"use one of {list_names(DEVICES)}")
    value = os.environ.get("PORTING_DEVICE", "").strip().lower()
    if device != "auto" or not value:
        return device
    if value not in DEVICES:
        raise OptionError.of(
            "P005",
            message=f"the environment variable PORTING_DEVICE is {os.environ['PORTING_DEVICE']!r}",
            help=f"set it to one of {', '.join(DEVICES)}, or unset it",
        )
    return value


def _find_contradictions(options: PortOptions) -> List[Problem]:
    """Check the options that depend on each other, once each is valid by itself."""
    if options.keep_gradients and options.output_mode != "all" and options.micro_batches_per_call > 1:
        fault = f"`keep_gradients` with `output_mode` {options.output_mode!r}, which returns some of them only"
        return [Problem(fault, "output_mode: 'all'")]
    every, per_replica = options.output_every, options.accumulation * options.device_iterations
    if options.output_mode != "every_n" and every != 1:
        fault = f"`output_every` is {every} with `output_mode` {options.output_mode!r}"
        return [Problem(fault, "output_mode: 'every_n'")]
    if per_replica % every:
        fault = f"`output_every` is {every}, which does not divide a replica's micro-batches per call, {per_replica}"
        return [Problem(fault, "output_every: a divisor of accumulation x device_iterations")]
    return []
