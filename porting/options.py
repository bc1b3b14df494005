"""`PortOptions`: batches, precision, seed and cache of a port, and the one place where they become the vendor's."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import math
import os
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import torch

from porting.diagnostics import OptionError, caller_place
from porting.support.process import this_instance

__all__ = ["DEVICES", "PortOptions", "requested_device", "require_precision", "to_poptorch"]

DEVICES = ("auto", "ipu", "sim")
"""What `device` and the environment variable PORTING_DEVICE may say."""

_OUTPUT_MODES = {"default": "Default", "final": "Final", "all": "All", "sum": "Sum", "every_n": "EveryN"}
_REDUCTIONS = {"mean": "Mean", "sum": "Sum"}
_CHOICES = {
    "output_mode": tuple(_OUTPUT_MODES),
    "reduction": tuple(_REDUCTIONS),
    "precision": ("float32", "float16", "bfloat16", "mixed"),
    "memory": ("warn", "error", "ignore"),
}
_COUNTS = ("micro_batch", "accumulation", "replicas", "device_iterations", "output_every")
_ALLOWED = ("custom-autograd-function",)
_MAX_SEED = 2**64 - 1
# PopART's RecomputationType.RecomputeAll: keep what is marked; pipelines have a type of their own by default
_RECOMPUTE_ALL = 4


@dataclass(frozen=True)
class PortOptions:
    """How a model runs on its device; every value is checked when the options are made (OptionError P002).

    A call takes `micro_batch` x `accumulation` x `replicas` x `device_iterations` samples and makes `device_iterations`
    optimizer steps. `output_mode` says what a training call returns: the last micro-batch of each replica ("default",
    "final"), all of them, their sum, or every `output_every`-th; inference returns every row whatever it says.
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
    with stages it keeps what enters a stage besides, and nothing else. It says so to the compiler of the device, and
    changes no result. `computation_order` does the same for the memory of the simulator's own machine, chooses what to
    keep by itself, and says nothing to a device.

    `allow` names what is an error and shall not be one: "custom-autograd-function" (C005) says that the device may
    differentiate what the `forward` of a `torch.autograd.Function` does, because its `backward` is the same derivative.

    `frozen` says what becomes of values that Python decides in `forward`, and that are compiled in: "check" warns of
    them (C020), "allow" does not, and a list names those that may be as they are. `memory` says what becomes of a
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
        problems = _problems(self) or _output_period_problems(self)
        if problems:
            raise _option_error(problems)
        # copies, which nobody changes after they were checked
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


def to_poptorch(options: PortOptions, backend: Any, *, training: bool, popdist: str = "popdist") -> Any:
    """Make the `Options` object of `backend` (a module with PopTorch's API) that means the same as `options`.

    An inference executor takes no accumulation and returns every row. Where a launcher has started several instances of
    the program, the options hold the place of this one, so that gradients are joined over all; `popdist` is the name of
    the backend's module for them. Raises OptionError: P001 for a precision that no such backend has, P002 for another
    number of replicas than the launcher's, P004 for an engine choice that `backend` cannot take.
    """
    require_precision(options, backend)
    vendor = _options_of_instance(options, backend, popdist)
    vendor.deviceIterations(options.device_iterations)
    vendor.broadcastBuffers(options.broadcast_buffers)
    if training:
        vendor.Training.gradientAccumulation(options.accumulation)
        reduction = getattr(backend.ReductionType, _REDUCTIONS[options.reduction])
        vendor.Training.accumulationAndReplicationReductionType(reduction)
    _set_output_mode(vendor, options, backend, training=training)
    if options.seed is not None:
        with _generators_restored():
            vendor.randomSeed(int(options.seed))
    if options.cache_dir is not None:
        vendor.enableExecutableCaching(os.fspath(options.cache_dir))
    _set_engine(vendor, options, backend)
    _set_computation_order(vendor, options, backend)
    _set_pipeline(vendor, options, backend, training=training)
    if options.precision == "bfloat16":
        vendor.useAutocast(torch.bfloat16)
    return vendor


def require_precision(options: PortOptions, backend: Any) -> None:
    """Raise OptionError P001 when `backend` cannot compute in the precision that `options` ask for.

    No IPU has bfloat16 (PopTorch reads such inputs as float32), so there it is refused instead of ignored. A backend
    whose `Options` have `useAutocast` computes in it: the simulator.
    """
    if options.precision == "bfloat16" and not hasattr(backend.Options, "useAutocast"):
        raise OptionError.of(
            "P001",
            message=f"`{_module_name(backend)}` cannot compute in bfloat16",
            notes="IPUs have float32 and float16; PopTorch would read bfloat16 as float32 without a word",
            help="use `precision='float16'`, or `precision='mixed'` to keep float32 weights",
        )


def requested_device(device: str = "auto") -> str:
    """Return which device was asked for: "auto", "ipu" or "sim".

    An argument other than "auto" wins; otherwise the environment variable PORTING_DEVICE decides. Raises OptionError:
    P002 for an unknown argument, P005 for an unknown value of the variable.
    """
    if device not in DEVICES:
        raise OptionError.of("P002", message=f"`device` is {device!r}", help=f"use one of {_listed(DEVICES)}")
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


class _Problem(NamedTuple):
    """What is wrong with one option, and which values it takes."""

    fault: str
    accepted: str


def _problems(options: PortOptions) -> List[_Problem]:
    accepted = {name: "an integer of at least 1" for name in _COUNTS}
    accepted.update({name: f"one of {_listed(values)}" for name, values in _CHOICES.items()})
    accepted["broadcast_buffers"] = accepted["keep_gradients"] = "True or False"
    accepted["seed"] = "None, or an integer from 0 to 2**64 - 1"
    accepted["cache_dir"] = "None, or the path of a folder"
    accepted["engine"] = "'ready', 'auto', or the name of an engine"
    accepted["tuning_seconds"] = "a number above 0"
    accepted["computation_order"] = "'none', 'chen', 'gttime', 'gtmem' or another policy"
    accepted["stages"] = "None, or names of modules with their IPU: 0, 1, ... without a gap"
    accepted["allow"] = f"a list of {_listed(_ALLOWED)}, each once"
    accepted["recompute"] = "a list of names of modules, each once"
    accepted["frozen"] = "'check', 'allow', or a list of names, each once"
    values = {name: getattr(options, name) for name in accepted}
    return [
        _Problem(f"`{name}` is {value!r}", f"{name}: {accepted[name]}")
        for name, value in values.items()
        if not _is_acceptable(name, value)
    ]


def _is_acceptable(name: str, value: Any) -> bool:
    if name in _COUNTS:
        return _is_integer(value) and value >= 1
    if name in _CHOICES:
        return isinstance(value, str) and value in _CHOICES[name]
    if name in ("broadcast_buffers", "keep_gradients"):
        return isinstance(value, bool)
    if name == "seed":
        return value is None or (_is_integer(value) and 0 <= value <= _MAX_SEED)
    if name == "cache_dir":
        return value is None or (isinstance(value, (str, os.PathLike)) and bool(os.fspath(value)))
    if name in _OTHER_CHECKS:
        return _OTHER_CHECKS[name](value)
    return isinstance(value, str) and bool(value)


def _output_period_problems(options: PortOptions) -> List[_Problem]:
    """Check the options that depend on each other, once each is right by itself."""
    if options.keep_gradients and options.output_mode != "all" and options.micro_batches_per_call > 1:
        fault = f"`keep_gradients` with `output_mode` {options.output_mode!r}, which returns some of them only"
        return [_Problem(fault, "output_mode: 'all'")]
    every, per_replica = options.output_every, options.accumulation * options.device_iterations
    if options.output_mode != "every_n" and every != 1:
        fault = f"`output_every` is {every} with `output_mode` {options.output_mode!r}"
        return [_Problem(fault, "output_mode: 'every_n'")]
    if per_replica % every:
        fault = f"`output_every` is {every}, which does not divide a replica's micro-batches per call, {per_replica}"
        return [_Problem(fault, "output_every: a divisor of accumulation x device_iterations")]
    return []


def _option_error(problems: List[_Problem]) -> OptionError:
    accepted = tuple(f"accepted values of {problem.accepted}" for problem in problems)
    if len(problems) == 1:
        return OptionError.of("P002", message=problems[0].fault, place=caller_place(), help=accepted)
    return OptionError.of(
        "P002",
        message=f"{len(problems)} options have values they cannot have",
        place=caller_place(),
        notes=tuple(problem.fault for problem in problems),
        help=accepted,
    )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _are_stages(value: Any) -> bool:
    """Tell whether `value` is None or names modules with IPUs of which none up to the last is left out."""
    if not isinstance(value, Mapping):
        return value is None
    are_names = all(isinstance(name, str) and name for name in value)
    are_numbers = all(_is_integer(ipu) and ipu >= 0 for ipu in value.values())
    return are_names and are_numbers and {0, *value.values()} == set(range(max([0, *value.values()]) + 1))


def _are_names(value: Any) -> bool:
    is_list = isinstance(value, (list, tuple))
    return is_list and all(isinstance(name, str) and name for name in value) and len(set(value)) == len(value)


def _are_allowed(value: Any) -> bool:
    return _are_names(value) and set(value) <= set(_ALLOWED)


_OTHER_CHECKS: Mapping[str, Callable[[Any], bool]] = MappingProxyType(
    {
        "allow": _are_allowed,
        "tuning_seconds": _is_seconds,
        "stages": _are_stages,
        "recompute": _are_names,
        "frozen": lambda value: value in ("check", "allow") or _are_names(value),
    }
)


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names)


def _options_of_instance(options: PortOptions, backend: Any, popdist: str) -> Any:
    """Make the backend's `Options` with the replicas of this process and its place among those that train together.

    poprun's instances get the options of popdist, which know their device, too. torchrun tells no more than the place.
    """
    if "POPDIST_NUM_TOTAL_REPLICAS" in os.environ:
        launcher = importlib.import_module(popdist)
        _check_replicas(options, launcher.getNumLocalReplicas())
        launcher.init()
        # a model that begins blocks by itself takes what the launcher gives it
        return importlib.import_module(f"{popdist}.poptorch").Options(options.num_ipus if options.stages else None)
    vendor = backend.Options()
    vendor.replicationFactor(options.replicas)
    instance = this_instance()
    if instance.size > 1:
        vendor.Distributed.configureProcessId(instance.index, instance.size)
    return vendor


def _check_replicas(options: PortOptions, num_launched: int) -> None:
    if options.replicas != num_launched:
        raise OptionError.of(
            "P002",
            message=f"`replicas` is {options.replicas}, but the launcher gives each instance {num_launched}",
            place=caller_place(),
            help=(
                f"use `PortOptions(replicas={num_launched})`",
                f"or start it with `--num-replicas` = {options.replicas} x the number of instances",
            ),
        )


def _set_output_mode(vendor: Any, options: PortOptions, backend: Any, *, training: bool) -> None:
    if not training:
        vendor.outputMode(backend.OutputMode.All)
    elif options.output_mode == "every_n":
        vendor.outputMode(backend.OutputMode.EveryN, options.output_every)
    elif options.output_mode != "default":
        vendor.outputMode(getattr(backend.OutputMode, _OUTPUT_MODES[options.output_mode]))


def _set_engine(vendor: Any, options: PortOptions, backend: Any) -> None:
    if hasattr(vendor, "useEngine"):
        vendor.useEngine(options.engine, tuning_seconds=options.tuning_seconds)
    elif options.engine not in ("ready", "auto", os.environ.get("PORTING_ENGINE")):
        raise OptionError.of(
            "P004",
            message=f"`engine` is {options.engine!r}, but `{_module_name(backend)}` has only its own",
            help="leave `engine` at 'ready', or run on the simulator with `device='sim'`",
        )


def _set_computation_order(vendor: Any, options: PortOptions, backend: Any) -> None:
    if hasattr(vendor, "useComputationOrder"):
        vendor.useComputationOrder(options.computation_order)
    elif options.computation_order not in ("none", "dummy"):
        raise OptionError.of(
            "P002",
            message=f"`{_module_name(backend)}` has no `computation_order` {options.computation_order!r}",
            help="mark what it keeps with `poptorch.recomputationCheckpoint`, or run on the simulator",
        )


def _set_pipeline(vendor: Any, options: PortOptions, backend: Any, *, training: bool) -> None:
    """Let blocks be stages, and outside of a pipeline forget all but checkpoints where the options ask for that."""
    ipus = options.stage_ipus
    if len(ipus) > 1:
        is_pipelined = training or options.device_iterations >= len(ipus)
        strategy = backend.PipelinedExecution if is_pipelined else backend.ShardedExecution
        # a stage is known by its IPU, unless the pipeline comes back to one
        auto_stage = backend.AutoStage.SameAsIpu if len(set(ipus)) == len(ipus) else backend.AutoStage.AutoIncrement
        vendor.setExecutionStrategy(strategy(auto_stage))
        vendor.autoRoundNumIPUs(True)
    elif options.recompute and training:
        vendor._Popart.set("autoRecomputation", _RECOMPUTE_ALL)


@contextlib.contextmanager
def _generators_restored() -> Iterator[None]:
    """Undo what PopTorch's `randomSeed` does besides: it calls `torch.manual_seed` on the host."""
    cuda_devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    with torch.random.fork_rng(devices=cuda_devices):
        yield


def _module_name(backend: Any) -> str:
    return str(getattr(backend, "__name__", backend))
