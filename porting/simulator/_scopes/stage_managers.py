"""Give each block its stage, phase and IPU while a model is traced."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .._logging import logger
from .._options_impl import require
from ..enums import AutoStage
from .graph_scopes import GraphScopes, change_scopes

__all__ = ["AutoStageManager", "ExplicitStageManager", "StageManager"]


class StageManager:
    """What all stage managers do: number blocks without an id, begin stages, keep the log of it."""

    def __init__(self) -> None:
        self._next_auto_id = 0
        self._messages: List[str] = []

    def start_tracing(self) -> None:
        """Forget what was traced before."""
        self._next_auto_id = 0
        self._messages.clear()

    def end_tracing(self) -> None:
        """Write the log of the stages that were begun, and forget them."""
        for message in self._messages:
            logger.debug("%s", message)
        self.start_tracing()

    def resetAutoId(self) -> None:
        """Number the blocks without an id from 0 again."""
        self._next_auto_id = 0

    def nextAutoId(self) -> str:
        """Return the id of the next block that has none."""
        auto_id = str(self._next_auto_id)
        self._next_auto_id += 1
        return auto_id

    def noteAutoId(self, auto_id: str) -> None:
        """Count a block whose number was given in an earlier trace."""
        self._next_auto_id = max(self._next_auto_id, int(auto_id) + 1)

    def beginStage(self, user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> None:
        """Put the operators that follow into the stage of the block `user_id`, of the next number if it is None.

        Raises AssertionError for a block that the strategy does not know or cannot place.
        """
        block_id = user_id if user_id is not None else self.nextAutoId()
        stage = self.getStage(block_id, ipu_id)
        ipu = ipu_id if stage._ipu is None else stage._ipu
        if ipu is None:
            self._messages.append(f"No IPU specified for block {block_id}: default to stage_id {stage._stage_id}")
            ipu = stage._stage_id
        self._messages.append(f"Starting block id={block_id} stage={stage._stage_id} phase={stage._phase_id} ipu={ipu}")
        change_scopes(GraphScopes.begin_block, stage._stage_id, max(stage._phase_id, 0), ipu, block_id)

    def getStage(self, block_id: str, ipu_id: Optional[int] = None) -> Any:
        """Return the stage of a block."""
        raise NotImplementedError


class ExplicitStageManager(StageManager):
    """The stages that the user listed."""

    def __init__(self, block_map: Dict[str, Any]) -> None:
        super().__init__()
        self._block_map = block_map

    def getStage(self, block_id: str, ipu_id: Optional[int] = None) -> Any:
        """Return the stage of a block; AssertionError for a block that is in no stage."""
        require(
            block_id in self._block_map,
            f"Unknown Block '{block_id}' list of expected Blocks: {list(self._block_map)}",
        )
        return self._block_map[block_id]


class AutoStageManager(StageManager):
    """Stages made as blocks appear: one for each IPU, or one for each block.

    `make_stage` makes the stage of a block from its id and number.
    """

    def __init__(self, auto_stage: AutoStage, make_stage: Any) -> None:
        super().__init__()
        self._auto_stage = auto_stage
        self._make_stage = make_stage
        self._stages: Dict[str, Any] = {}

    def start_tracing(self) -> None:
        """Forget the stages of the last trace."""
        super().start_tracing()
        self._stages = {}

    def getStage(self, block_id: str, ipu_id: Optional[int] = None) -> Any:
        """Return the stage of a block; AssertionError where the IPU decides and the block names none."""
        if self._auto_stage == AutoStage.SameAsIpu:
            require(
                ipu_id is not None or block_id in self._stages,
                f"poptorch.AutoStage.SameAsIpu was selected but no IPU was specified for block {block_id}",
            )
            if ipu_id is not None:
                self._stages[block_id] = self._make_stage(block_id, ipu_id)
        elif block_id not in self._stages:
            self._stages[block_id] = self._make_stage(block_id, len(self._stages) + 1)
        return self._stages[block_id]
