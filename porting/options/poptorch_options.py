"""Write `PortOptions` as the vendor's `Options`, the one place of this package that knows the vendor's spelling.

Each port does so for its training and for its inference.
"""

from __future__ import annotations

import importlib
import os
from types import ModuleType
from typing import Any

import torch

from porting.diagnostics import OptionError
from porting.options.port_options import PortOptions
from porting.support.process import this_instance

__all__ = ["require_precision", "to_poptorch"]

# PopART's RecomputationType.RecomputeAll: keep what is marked; pipelines have a type of their own by default
_RECOMPUTE_ALL = 4


def to_poptorch(options: PortOptions, backend: ModuleType, *, training: bool, popdist: str = "popdist") -> Any:
    """Make the `Options` object of `backend` (a module with PopTorch's API) that means the same as `options`.

    An inference executor takes no accumulation and returns every row. Where a launcher has started several instances of
    the program, the options hold the place of this one, so that gradients are joined over all; `popdist` is the name of
    the backend's module for them. Raises OptionError: P001 for a precision that no such backend has, P002 for another
    number of replicas than the launcher's, P004 for an engine choice that `backend` cannot take.
    """
    require_precision(options, backend)
    vendor = _make_instance_options(options, backend, popdist)
    vendor.deviceIterations(options.device_iterations)
    vendor.broadcastBuffers(options.broadcast_buffers)
    if training:
        vendor.Training.gradientAccumulation(options.accumulation)
        reduction = getattr(backend.ReductionType, _spell_as_vendor(options.reduction))
        vendor.Training.accumulationAndReplicationReductionType(reduction)
    output_mode = options.output_mode if training else "all"
    if output_mode != "default":
        every = (options.output_every,) if output_mode == "every_n" else ()
        vendor.outputMode(getattr(backend.OutputMode, _spell_as_vendor(output_mode)), *every)
    if options.seed is not None:
        # PopTorch's `randomSeed` calls `torch.manual_seed` on the host, which is none of its business
        with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else []):
            vendor.randomSeed(int(options.seed))
    if options.cache_dir is not None:
        vendor.enableExecutableCaching(os.fspath(options.cache_dir))
    _set_engine(vendor, options, backend)
    _place_step(vendor, options, backend, training=training)
    if options.precision == "bfloat16":
        vendor.useAutocast(torch.bfloat16)
    return vendor


def require_precision(options: PortOptions, backend: ModuleType) -> None:
    """Raise OptionError P001 when `backend` cannot compute in the precision that `options` ask for.

    No IPU has bfloat16 (PopTorch reads such inputs as float32), so there it is refused instead of ignored. A backend
    whose `Options` have `useAutocast` computes in it: the simulator.
    """
    if options.precision == "bfloat16" and not hasattr(backend.Options, "useAutocast"):
        raise OptionError.of(
            "P001",
            message=f"`{_name_module(backend)}` cannot compute in bfloat16",
            notes="IPUs have float32 and float16; PopTorch would read bfloat16 as float32 without a word",
            help="use `precision='float16'`, or `precision='mixed'` to keep float32 weights",
        )


def _make_instance_options(options: PortOptions, backend: ModuleType, popdist: str) -> Any:
    """Make the backend's `Options` with the replicas of this process and its place among those that train together."""
    # poprun's instances get the options of popdist, which know their device too; torchrun tells no more than the place
    if "POPDIST_NUM_TOTAL_REPLICAS" in os.environ:
        launcher = importlib.import_module(popdist)
        num_launched = launcher.getNumLocalReplicas()
        if options.replicas != num_launched:
            raise OptionError.at_caller(
                "P002",
                message=f"`replicas` is {options.replicas}, but the launcher gives each instance {num_launched}",
                help=(
                    f"use `PortOptions(replicas={num_launched})`",
                    f"or start it with `--num-replicas` = {options.replicas} x the number of instances",
                ),
            )
        launcher.init()
        # a model that begins its own blocks uses the number of IPUs that the launcher gives
        return importlib.import_module(f"{popdist}.poptorch").Options(options.num_ipus if options.stages else None)
    vendor = backend.Options()
    vendor.replicationFactor(options.replicas)
    instance = this_instance()
    if instance.size > 1:
        vendor.Distributed.configureProcessId(instance.index, instance.size)
    return vendor


def _set_engine(vendor: object, options: PortOptions, backend: ModuleType) -> None:
    """Choose how the simulator runs a graph; another backend takes what says nothing, or says so of its own."""
    if hasattr(vendor, "useEngine"):
        waits = options.engine is not None
        vendor.useEngine(options.engine or "auto", tuning_seconds=options.tuning_seconds, waits=waits)
    elif options.engine not in (None, "ready", "auto", os.environ.get("PORTING_ENGINE")):
        raise OptionError.of(
            "P004",
            message=f"`engine` is {options.engine!r}, but `{_name_module(backend)}` has only its own",
            help="leave `engine` out, or run on the simulator with `device='sim'`",
        )
    if hasattr(vendor, "shareMemory"):
        vendor.shareMemory()
    if hasattr(vendor, "useComputationOrder"):
        vendor.useComputationOrder(options.computation_order)
    elif options.computation_order not in ("none", "dummy"):
        raise OptionError.of(
            "P002",
            message=f"`{_name_module(backend)}` has no `computation_order` {options.computation_order!r}",
            help="mark what it keeps with `poptorch.recomputationCheckpoint`, or run on the simulator",
        )


def _place_step(vendor: Any, options: PortOptions, backend: ModuleType, *, training: bool) -> None:
    """Say where the step lies: its stages, what is computed again, the optimizer's state, and room for products."""
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

    shares = options.available_memory
    if shares is not None:
        by_ipu = shares if isinstance(shares, tuple) else (shares,) * options.num_ipus
        vendor.setAvailableMemoryProportion({f"IPU{ipu}": float(share) for ipu, share in enumerate(by_ipu)})
    if options.half_partials:
        vendor.Precision.setPartialsType(torch.half)
    if training and (options.optimizer_state == "off_chip" or options.shard_optimizer_state):
        location = backend.TensorLocationSettings()
        location.useOnChipStorage(options.optimizer_state == "on_chip")
        location.useReplicatedTensorSharding(options.shard_optimizer_state)
        vendor.TensorLocations.setOptimizerLocation(location)


def _spell_as_vendor(name: str) -> str:
    """Write a value of an option as the vendor's enumerations do: `every_n` is `EveryN`."""
    return name.title().replace("_", "")


def _name_module(backend: ModuleType) -> str:
    return str(getattr(backend, "__name__", backend))
