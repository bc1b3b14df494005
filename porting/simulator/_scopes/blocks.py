"""Blocks: the parts of `forward` that an execution strategy assigns to stages. On the CPU they do nothing."""

from __future__ import annotations

from typing import Any, Callable, Optional

from torch import nn

from .._options_impl import require
from ..errors import createPoptorchError
from .graph_scopes import GraphScopes, change_scopes
from .stage_managers import StageManager

__all__ = ["BeginBlock", "Block", "BlockFunction", "BlockId", "LegacyBeginBlockFn", "removeBlocks"]

BlockId = str


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

    def __exit__(self, *_exception: Any) -> None:
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


class _AutoIdentified:
    """The id and IPU of a block that keeps the number it gets in the first trace."""

    def __init__(self, user_id: Optional[str], ipu_id: Optional[int]) -> None:
        self.user_id = user_id
        self.ipu_id = ipu_id
        self._is_numbered = user_id is None

    def start(self) -> None:
        """Begin the block."""
        manager = Block._stages_manager
        if manager is None:
            return
        if self.user_id is None:
            self.user_id = manager.nextAutoId()
        elif self._is_numbered:
            manager.noteAutoId(self.user_id)
        manager.beginStage(self.user_id, self.ipu_id)


class _BlockHook:
    """The forward pre-hook with which `BeginBlock` marks a module."""

    def __init__(self, user_id: Optional[str], ipu_id: Optional[int]) -> None:
        self._block = _AutoIdentified(user_id, ipu_id)

    def __call__(self, module: nn.Module, inputs: Any) -> None:
        self._block.start()

    def __repr__(self) -> str:
        return f"BeginBlock(user_id={self._block.user_id}, ipu_id={self._block.ipu_id})"


class LegacyBeginBlockFn(nn.Module):
    """A function that begins a block when it is called."""

    def __init__(
        self, layer_to_call: Callable[..., Any], user_id: Optional[str] = None, ipu_id: Optional[int] = None
    ) -> None:
        super().__init__()
        self._layer_to_call = layer_to_call
        self._block = _AutoIdentified(user_id, ipu_id)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Begin the block and call the function."""
        self._block.start()
        return self._layer_to_call(*args, **kwargs)


def BeginBlock(layer_to_call: Any, user_id: Optional[str] = None, ipu_id: Optional[int] = None) -> Any:
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
    if any(isinstance(hook, _BlockHook) for hook in layer_to_call._forward_pre_hooks.values()):
        raise createPoptorchError("module has already been assigned to a block.")
    layer_to_call.register_forward_pre_hook(_BlockHook(user_id, ipu_id))
    return layer_to_call


def removeBlocks(module: nn.Module) -> None:
    """Take the hooks of `BeginBlock` away from `module` and all modules in it; AssertionError unless it is one."""
    require(isinstance(module, nn.Module), f"Expected a torch.nn.Module but got {type(module)}")
    for part in module.modules():
        for number, hook in list(part._forward_pre_hooks.items()):
            if isinstance(hook, _BlockHook):
                del part._forward_pre_hooks[number]
