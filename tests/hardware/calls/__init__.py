"""The calls whose outcomes are compared: each a function of the module with PopTorch's API, by topic and name."""

from __future__ import annotations

from typing import Any, Callable, Dict

from tests.hardware.calls import (
    arguments,
    blocks,
    executor,
    loaders,
    losses,
    operators,
    optimizers,
    options,
    strategies,
    tools,
)

__all__ = ["CALLS"]

_TOPICS = (options, strategies, optimizers, losses, loaders, arguments, executor, blocks, operators, tools)

CALLS: Dict[str, Callable[[Any], Any]] = {
    f"{topic.__name__.rsplit('.', 1)[1]}: {name}": call for topic in _TOPICS for name, call in topic.CALLS.items()
}
