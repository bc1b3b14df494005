"""Group blocks into stages and phases. This is bookkeeping only: results do not depend on it.

`Options.setExecutionStrategy` takes one.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Tuple, Union

from .._logging import logger
from .._options_impl import require
from ..enums import AutoStage, Liveness
from .blocks import Block, StageManager

__all__ = [
    "ParallelPhasedExecution",
    "Phase",
    "PipelinedExecution",
    "SerialPhasedExecution",
    "ShardedExecution",
    "Stage",
]

# PopART's numbers
_PIPELINED, _SHARDED, _PHASED = 0, 1, 2


class Stage:
    """Blocks that run together on one IPU.

    >>> Stage("encoder", "bottleneck").ipu(1).blocks
    ('encoder', 'bottleneck')
    """

    def __init__(self, *block_ids: str) -> None:
        kinds = [type(block) for block in block_ids]
        is_text = all(isinstance(block, str) for block in block_ids)
        require(is_text, f"Block IDs are supposed to be strings but got {kinds}")
        self._blocks = block_ids
        self._ipu: Any = None
        # -1 until a strategy gives it a number
        self._stage_id = -1
        self._phase_id = -1

    @property
    def blocks(self) -> Tuple[str, ...]:
        """The ids of the stage's blocks."""
        return self._blocks

    def ipu(self, ipu: int) -> Stage:
        """Run the stage on this IPU."""
        require(isinstance(ipu, int), f"Expected an int for ipu but got {type(ipu)}")
        self._ipu = ipu
        return self

    def _setStage(self, stage_id: int) -> Stage:
        self._stage_id = stage_id
        return self

    def _setPhase(self, phase_id: int) -> Stage:
        self._phase_id = phase_id
        return self


class Phase:
    """Stages that run at the same time: either `Stage` objects, or block ids that form one stage."""

    def __init__(self, *args: Union[str, Stage]) -> None:
        self._stages: Tuple[Stage, ...]
        if all(isinstance(arg, Stage) for arg in args):
            self._stages = args  # type: ignore[assignment]
            return
        kinds = ", ".join(str(type(arg)) for arg in args)
        is_text = all(isinstance(arg, str) for arg in args)
        require(is_text, f"All arguments must either be block IDs (strings) or Stages: {kinds}")
        self._stages = (Stage(*args),)  # type: ignore[arg-type]

    @property
    def stages(self) -> Tuple[Stage, ...]:
        """The phase's stages."""
        return self._stages

    def stage(self, idx: int) -> Stage:
        """Return the stage at this position."""
        return self._stages[idx]

    def ipus(self, *ipus: int) -> None:
        """Set the IPU of each stage, in order."""
        num_stages = len(self._stages)
        require(len(ipus) == num_stages, f"Phase contains {num_stages} stages but you provided {len(ipus)} ipus")
        for stage, ipu in zip(self._stages, ipus):
            stage.ipu(ipu)


class _IExecutionStrategy:
    """The base of all strategies: the stage of a block, and the settings for the compiler."""

    def __init__(self, stages_manager: StageManager, block_map: Dict[str, Stage]) -> None:
        self._stages_manager = stages_manager
        self._block_map = block_map

    def stage(self, block_id: str) -> Stage:
        """Return the block's stage; `AssertionError` for an unknown block."""
        require(block_id in self._block_map, f"Unknown block {block_id}")
        return self._block_map[block_id]

    def onStartTracing(self) -> None:
        """Let blocks begin stages of this strategy, until `onEndTracing`."""
        self._stages_manager.start_tracing()
        # on the class, because blocks are written in `forward`, which knows no strategy
        Block._stages_manager = self._stages_manager

    def onEndTracing(self) -> None:
        """Let blocks have no effect again, and log the stages that they began."""
        Block._stages_manager = None
        self._stages_manager.end_tracing()

    def backendOptions(self) -> Dict[str, Any]:
        """Return the settings for the compiler."""
        raise NotImplementedError


class PipelinedExecution(_IExecutionStrategy):
    """Stages work on different micro-batches at the same time.

    Arguments: nothing, one `AutoStage` (default ``SameAsIpu``), or one argument per stage: a `Stage`, a block id or a
    list of block ids.

    >>> PipelinedExecution("encoder", ["decoder", "loss"]).stage("loss").blocks
    ('decoder', 'loss')
    """

    _execution_mode = _PIPELINED

    def __init__(self, *args: Union[AutoStage, Stage, str, List[str]]) -> None:
        self._auto_stage: Any = None
        if not args:
            args = (AutoStage.SameAsIpu,)
        if len(args) == 1 and isinstance(args[0], AutoStage):
            self._auto_stage = args[0]
            super().__init__(StageManager({}, args[0], _make_numbered_stage), {})
            return
        block_map = _map_blocks(_read_stage(arg)._setStage(number) for number, arg in enumerate(args))
        super().__init__(StageManager(block_map), block_map)

    def backendOptions(self) -> Dict[str, Any]:
        """Return the settings for the compiler."""
        return {"execution_mode": self._execution_mode}


class ShardedExecution(PipelinedExecution):
    """Stages run one after the other; the arguments are those of `PipelinedExecution`."""

    _execution_mode = _SHARDED


class _PhasedExecution(_IExecutionStrategy):
    """Phases follow each other, the stages within one run at the same time."""

    _is_serial: bool

    def __init__(self, *phases: Union[Phase, Stage, str, List[str], List[Stage]]) -> None:
        advice = "There is currently no AutoStage for PhasedExecution, please explicitly specify the phases"
        require(len(phases) > 0, advice)
        self._tensors_liveness = Liveness.AlwaysLive
        self._separate_backward_phase = False
        self._phases = [_read_phase(phase) for phase in phases]
        block_map = _map_blocks(
            stage._setStage(stage_id)._setPhase(phase_id)
            for phase_id, phase in enumerate(self._phases)
            for stage_id, stage in enumerate(phase.stages)
        )
        super().__init__(StageManager(block_map), block_map)

    def phase(self, phase: int) -> Phase:
        """Return the phase with this number, counted from 0."""
        require(isinstance(phase, int) and phase >= 0, "Phases are identified by positive integers")
        return self._phases[phase]

    def useSeparateBackwardPhase(self, use: bool = True) -> _PhasedExecution:
        """Give the backward pass phases of its own."""
        require(isinstance(use, bool), f"Expected a bool but got {type(use)}")
        self._separate_backward_phase = use
        return self

    def backendOptions(self) -> Dict[str, Any]:
        """Return the settings for the compiler."""
        return {
            "execution_mode": _PHASED,
            "separate_backward_phase": self._separate_backward_phase,
            "tensors_liveness": self._tensors_liveness.value,
            "serial_phases_execution": self._is_serial,
        }


class ParallelPhasedExecution(_PhasedExecution):
    """Even phases on even IPUs and odd ones on odd IPUs, alternating."""

    _is_serial = False

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> ParallelPhasedExecution:
        """Move tensors off the chip between the forward and the backward pass."""
        require(isinstance(off_chip, bool), f"Expected a bool but got {type(off_chip)}")
        self._tensors_liveness = Liveness.OffChipAfterFwd if off_chip else Liveness.AlwaysLive
        return self


class SerialPhasedExecution(_PhasedExecution):
    """All phases on the same IPUs, one after the other."""

    _is_serial = True

    def setTensorsLiveness(self, liveness: Liveness) -> SerialPhasedExecution:
        """Choose when tensors leave the chip."""
        require(isinstance(liveness, Liveness), f"Expected poptorch.Liveness but got {type(liveness)}")
        self._tensors_liveness = liveness
        return self


# no lambda, since options are pickled with their strategy
def _make_numbered_stage(block_id: str, stage_id: int) -> Stage:
    return Stage(block_id)._setStage(stage_id)


def _read_stage(arg: Any) -> Stage:
    if isinstance(arg, Stage):
        return arg
    # Anything else is taken apart; what cannot be is a TypeError.
    return Stage(arg) if isinstance(arg, str) else Stage(*arg)


def _read_phase(arg: Any) -> Phase:
    if isinstance(arg, Phase):
        return arg
    return Phase(*arg) if isinstance(arg, (list, tuple)) else Phase(arg)


def _map_blocks(stages: Iterable[Stage]) -> Dict[str, Stage]:
    block_map: Dict[str, Stage] = {}
    for stage in stages:
        for block in stage.blocks:
            require(block not in block_map, f"{block} associated with more than one stage")
            block_map[block] = stage
            phase = f"phase {stage._phase_id} " if stage._phase_id >= 0 else ""
            on_ipu = "" if stage._ipu is None else f" on IPU {stage._ipu}"
            logger.debug("block %s added to %sstage %d%s", block, phase, stage._stage_id, on_ipu)
    return block_map
