"""Define blocks, the parts of `forward` that an execution strategy assigns to stages; the CPU ignores them."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Union

from torch import nn

from ...structure import Structure
from ...torch_insides.modules import read_forward_pre_hooks
from .._logging import logger
from .._options_impl import require
from ..enums import AutoStage
from ..errors import createPoptorchError
from .graph_scopes import GraphScopes, change_scopes

__all__ = ["BeginBlock", "Block", "BlockFunction", "BlockId", "LegacyBeginBlockFn", "StageManager", "removeBlocks"]

BlockId = str


class StageManager:
    """Gives each block its stage, phase and IPU while a model is traced.

    These are the stages of `block_map`, which the user listed. With `auto_stage` they are made as blocks appear, one
    for each IPU or one for each block: `make_stage` makes a stage from a block's id and the stage's number.
    """

    def __init__(
        self, block_map: Dict[str, Any], auto_stage: Optional[AutoStage] = None, make_stage: Any = None
    ) -> None:
        self._block_map, self._auto_stage, self._make_stage = block_map, auto_stage, make_stage
        self._next_auto_id = 0
        self._messages: List[str] = []

    def start_tracing(self) -> None:
        """Forget the stages of the trace before."""
        self.resetAutoId()
        self._messages.clear()
        if self._auto_stage is not None:
            self._block_map = {}

    def end_tracing(self) -> None:
        """Log the stages that were begun, and forget them."""
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
        """Put the next operators into the stage of a block, by default the next number; AssertionError without one."""
        block_id = user_id if user_id is not None else self.nextAutoId()
        stage = self.getStage(block_id, ipu_id)
        ipu = ipu_id if stage._ipu is None else stage._ipu
        if ipu is None:
            self._messages.append(f"No IPU specified for block {block_id}: default to stage_id {stage._stage_id}")
            ipu = stage._stage_id
        self._messages.append(f"Starting block id={block_id} stage={stage._stage_id} phase={stage._phase_id} ipu={ipu}")
        change_scopes(GraphScopes.begin_block, stage._stage_id, max(stage._phase_id, 0), ipu, block_id)

    def getStage(self, block_id: str, ipu_id: Optional[int] = None) -> Any:
        """Return the stage of a block; AssertionError for one that is in no stage, or lacks the IPU that decides."""
        stages = self._block_map
        if self._auto_stage is None:
            require(block_id in stages, f"Unknown Block '{block_id}' list of expected Blocks: {list(stages)}")
        elif self._auto_stage == AutoStage.SameAsIpu:
            require(
                ipu_id is not None or block_id in stages,
                f"poptorch.AutoStage.SameAsIpu was selected but no IPU was specified for block {block_id}",
            )
            if ipu_id is not None:
                stages[block_id] = self._make_stage(block_id, ipu_id)
        elif block_id not in stages:
            # number 0 is that of the operators before the first block
            stages[block_id] = self._make_stage(block_id, len(stages) + 1)
        return stages[block_id]


class Block(nn.Module):
    """The operators inside ``with Block("encoder", ipu_id=1):`` belong to the block of this id.

    Without an id, blocks are numbered "0", "1", ... as they are entered; without an IPU, the execution strategy
    chooses one. Leaving the context leaves the block: an operator that follows must be in another one.

    >>> with Block("encoder", ipu_id=0) as nothing:
    ...     print(nothing)
    None
    """

    # The manager of the strategy with which a model is being traced, None otherwise.
    _stages_manager: Optional[StageManager] = None

    def __init__(self, user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> None:
        super().__init__()
        self._user_id = user_id
        self._ipu_id = ipu_id

    @staticmethod
    def useAutoId() -> None:
        """Number blocks without an id from 0 again; meant for the first line of `forward`."""
        if Block._stages_manager is not None:
            Block._stages_manager.resetAutoId()

    @staticmethod
    def start(user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> None:
        """Begin a block that lasts until the next one begins.

        Raises AssertionError, while a model is traced, for a block that the execution strategy cannot place.
        """
        if Block._stages_manager is not None:
            Block._stages_manager.beginStage(user_id, ipu_id)

    def __enter__(self) -> None:
        Block.start(self._user_id, self._ipu_id)

    def __exit__(self, *_exception: object) -> None:
        change_scopes(GraphScopes.end_block)


def BlockFunction(user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> Callable[[Any], Any]:
    """Make a decorator that runs a function inside a `Block`.

    >>> @BlockFunction("double", ipu_id=1)
    ... def double(x):
    ...     return 2 * x
    >>> double(3)
    6
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        def run_in_block(*args: Any, **kwargs: Any) -> Any:
            with Block(user_id, ipu_id):
                return function(*args, **kwargs)

        return run_in_block

    return decorate


class _BlockHook:
    """The forward pre-hook with which `BeginBlock` marks a module: a block keeps the number of the first trace."""

    def __init__(self, user_id: Optional[str], ipu_id: Optional[int]) -> None:
        self.user_id, self.ipu_id = user_id, ipu_id
        self._is_numbered = user_id is None

    def start(self) -> None:
        """Begin the block."""
        manager = Block._stages_manager
        if manager is None:
            return
        if self.user_id is None:
            self.user_id = manager.nextAutoId()
        elif self._is_numbered:
            # the blocks that get a number after it must not get the same one
            manager.noteAutoId(self.user_id)
        manager.beginStage(self.user_id, self.ipu_id)

    def __call__(self, module: nn.Module, inputs: Structure) -> None:
        self.start()

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self.user_id}, ipu_id={self.ipu_id})"


class LegacyBeginBlockFn(nn.Module):
    """A function that begins a block when it is called."""

    def __init__(
        self, layer_to_call: Callable[..., Any], user_id: Optional[str] = None, ipu_id: Optional[int] = None
    ) -> None:
        super().__init__()
        self._layer_to_call = layer_to_call
        self._block = _BlockHook(user_id, ipu_id)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Begin the block and call the function."""
        self._block.start()
        return self._layer_to_call(*args, **kwargs)


def BeginBlock(
    layer_to_call: Union[nn.Module, Callable[..., Any]], user_id: Optional[str] = None, ipu_id: Optional[int] = None
) -> Any:
    """Let a block begin where `layer_to_call` is called; it lasts until the next one begins.

    A module is returned itself, with a hook and nothing else changed; another callable is wrapped. Raises
    `poptorch.Error` for a module that begins a block already and for what cannot be called.

    >>> BeginBlock(nn.ReLU(), "activation", ipu_id=1)
    ReLU()
    """
    if not isinstance(layer_to_call, nn.Module):
        if not callable(layer_to_call):
            raise createPoptorchError("module is not an instance of torch.nn.Module or function.")
        return LegacyBeginBlockFn(layer_to_call, user_id, ipu_id)
    if any(isinstance(hook, _BlockHook) for hook in read_forward_pre_hooks(layer_to_call).values()):
        raise createPoptorchError("module has already been assigned to a block.")
    # a module around it would change the names of its parameters in state dicts
    layer_to_call.register_forward_pre_hook(_BlockHook(user_id, ipu_id))
    return layer_to_call


def removeBlocks(module: nn.Module) -> None:
    """Remove the hooks of `BeginBlock` from `module` and all modules in it; raises AssertionError unless it is one."""
    require(isinstance(module, nn.Module), f"Expected a torch.nn.Module but got {type(module)}")
    for part in module.modules():
        for number, hook in list(read_forward_pre_hooks(part).items()):
            if isinstance(hook, _BlockHook):
                del read_forward_pre_hooks(part)[number]
