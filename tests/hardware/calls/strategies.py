"""Execution strategies: pipelines, shards and phases, and what the compiler gets of them."""

from __future__ import annotations

from typing import Any, Callable, Dict

_PIPELINES = ("PipelinedExecution", "ShardedExecution")
_PHASED = ("ParallelPhasedExecution", "SerialPhasedExecution")


def _stages(strategy: Any, *names: str) -> Any:
    found = [strategy.stage(name) for name in names]
    return [
        [list(stage.blocks), stage._phase_id if stage._phase_id >= 0 else stage._stage_id, stage._ipu]
        for stage in found
    ]


def _by_name(name: str) -> Dict[str, Callable[[Any], Any]]:
    return {
        f"{name} of names": lambda p: _stages(getattr(p, name)("a", "b"), "a", "b"),
        f"{name} of stages": lambda p: _stages(getattr(p, name)(p.Stage("a", "b").ipu(1), "c"), "a", "b", "c"),
        f"{name} of a number": lambda p: getattr(p, name)(3),
        f"{name} with a block twice": lambda p: getattr(p, name)("a", p.Stage("b", "a")),
        f"{name} and an unknown block": lambda p: getattr(p, name)("a").stage("b"),
    }


def _pipelines(name: str) -> Dict[str, Callable[[Any], Any]]:
    return {
        f"{name} for the compiler": lambda p: getattr(p, name)("a").backendOptions(),
        f"{name} counts up": lambda p: getattr(p, name)(p.AutoStage.AutoIncrement).backendOptions(),
        f"{name} of automatic stages and a name": lambda p: getattr(p, name)(p.AutoStage.AutoIncrement, "a"),
    }


def _phased(name: str) -> Dict[str, Callable[[Any], Any]]:
    return {
        f"{name} of nothing": lambda p: getattr(p, name)(),
        f"{name} of lists": lambda p: _stages(getattr(p, name)(["a", "b"], ["c"]), "a", "b", "c"),
        f"{name} of phases": lambda p: _stages(
            getattr(p, name)(p.Phase(p.Stage("a"), p.Stage("b")), p.Phase("c")), "a", "b", "c"
        ),
        f"{name} for the compiler": lambda p: getattr(p, name)("a").backendOptions(),
        f"{name} with a separate backward phase": lambda p: (
            getattr(p, name)("a").useSeparateBackwardPhase().backendOptions()
        ),
        f"{name} with a backward phase of 1": lambda p: getattr(p, name)("a").useSeparateBackwardPhase(1),
        f"{name}: a phase by number": lambda p: len(getattr(p, name)("a", "b").phase(1).stages),
        f"{name}: a phase that is not there": lambda p: getattr(p, name)("a").phase(3),
        f"{name}: a negative phase": lambda p: getattr(p, name)("a").phase(-1),
        f"{name}: IPUs of a phase": lambda p: _ipus_of(p, getattr(p, name)),
        f"{name}: too few IPUs": lambda p: getattr(p, name)(p.Phase(p.Stage("a"), p.Stage("b"))).phase(0).ipus(1),
    }


def _ipus_of(poptorch: Any, cls: Any) -> Any:
    strategy = cls(poptorch.Phase(poptorch.Stage("a"), poptorch.Stage("b")))
    strategy.phase(0).ipus(2, 3)
    return _stages(strategy, "a", "b")


def _calls() -> Dict[str, Callable[[Any], Any]]:
    found: Dict[str, Callable[[Any], Any]] = {}
    for name in (*_PIPELINES, *_PHASED):
        found.update(_by_name(name))
    for name in _PIPELINES:
        found.update(_pipelines(name))
    for name in _PHASED:
        found.update(_phased(name))
    return {
        **found,
        "tensors off the chip": lambda p: p.ParallelPhasedExecution("a").sendTensorsOffChipAfterFwd().backendOptions(),
        "tensors off the chip by 1": lambda p: p.ParallelPhasedExecution("a").sendTensorsOffChipAfterFwd(1),
        "liveness": lambda p: (
            p.SerialPhasedExecution("a").setTensorsLiveness(p.Liveness.OffChipAfterEachPhase).backendOptions()
        ),
        "liveness of a number": lambda p: p.SerialPhasedExecution("a").setTensorsLiveness(1),
        "a stage of a number": lambda p: p.Stage(1),
        "a stage on an IPU by name": lambda p: p.Stage("a").ipu("1"),
        "blocks of a stage": lambda p: list(p.Stage("a", "b").blocks),
        "a phase of numbers": lambda p: p.Phase(1, 2),
        "a phase of a stage and a name": lambda p: p.Phase(p.Stage("a"), "b"),
        "a strategy in the options": lambda p: (
            p.Options()
            .setExecutionStrategy(p.ShardedExecution())
            .outputMode(p.OutputMode.All)
            .toDict()["execution_mode"]
        ),
    }


CALLS = _calls()
