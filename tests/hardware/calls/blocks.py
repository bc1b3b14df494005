"""Blocks: in models and as functions, with strategies that know them and that do not, and scopes of names."""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch
from torch import nn

from tests.hardware.material import Trained, batch, filled


def _two_layers() -> nn.Sequential:
    return nn.Sequential(filled(nn.Linear(3, 3)), filled(nn.Linear(3, 2)))


def _placed(poptorch: Any, *blocks: Any) -> nn.Sequential:
    model = _two_layers()
    for index, (name, ipu) in enumerate(blocks):
        model[index] = poptorch.BeginBlock(model[index], name, ipu_id=ipu)
    return model


def _run(
    strategy: Callable[[Any], Any], *blocks: Any, iterations: int = 4, accumulation: int = 0, rounded: bool = True
) -> Callable[[Any], Any]:
    """Run a model of two blocks in inference, or train it with so much accumulation."""

    def call(poptorch: Any) -> Any:
        options = poptorch.Options().setExecutionStrategy(strategy(poptorch)).autoRoundNumIPUs(rounded)
        model = _placed(poptorch, *blocks)
        if not accumulation:
            options.deviceIterations(iterations)
            return poptorch.inferenceModel(model, options)(batch(4)[0])
        options.Training.gradientAccumulation(accumulation)
        return poptorch.trainingModel(Trained(model), options)(*batch(12))[1]

    return call


class _With(nn.Module):
    def __init__(self, poptorch: Any, *arguments: Any) -> None:
        super().__init__()
        self.poptorch, self.arguments = poptorch, arguments

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.poptorch.Block(*self.arguments):
            return x + 1.0


def _decorated(poptorch: Any) -> Any:
    @poptorch.BlockFunction("a", ipu_id=0)
    def add(x: torch.Tensor) -> torch.Tensor:
        return x + 1.0

    return poptorch.inferenceModel(_Applied(add))(batch()[0])


class _Applied(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def _twice(poptorch: Any) -> Any:
    layer = poptorch.BeginBlock(nn.Linear(3, 3), "a")
    return poptorch.BeginBlock(layer, "b")


def _removed(poptorch: Any) -> Any:
    model = _placed(poptorch, ("a", 0), ("b", 1))
    poptorch.removeBlocks(model)
    return [len(layer._forward_pre_hooks) for layer in model]


def _hook_text(poptorch: Any) -> Any:
    return [repr(hook) for hook in poptorch.BeginBlock(nn.Linear(3, 3), "a", 1)._forward_pre_hooks.values()]


def _scoped(poptorch: Any) -> Any:
    def add(x: torch.Tensor) -> torch.Tensor:
        with poptorch.NameScope("adding"):
            return x + 1.0

    return poptorch.inferenceModel(_Applied(add))(batch()[0])


_AB = (("a", 0), ("b", 1))
_SAME: Callable[[Any], Any] = lambda p: p.PipelinedExecution(p.AutoStage.SameAsIpu)  # noqa: E731
_NEXT: Callable[[Any], Any] = lambda p: p.PipelinedExecution(p.AutoStage.AutoIncrement)  # noqa: E731

CALLS: Dict[str, Callable[[Any], Any]] = {
    "stages as the IPUs": _run(_SAME, *_AB),
    "stages that count up": _run(_NEXT, *_AB),
    "stages as the IPUs, without IPUs": _run(_SAME, ("a", None), ("b", None)),
    "stages by name": _run(lambda p: p.PipelinedExecution("a", "b"), *_AB),
    "stages by name, without IPUs": _run(lambda p: p.PipelinedExecution("a", "b"), ("a", None), ("b", None)),
    "stages on IPUs": _run(lambda p: p.PipelinedExecution(p.Stage("a").ipu(1), p.Stage("b").ipu(0)), *_AB),
    "a block that no stage has": _run(lambda p: p.PipelinedExecution("a", "c"), *_AB),
    "stages that are not filled": _run(_SAME, *_AB, iterations=1),
    "training": _run(_SAME, *_AB, accumulation=4),
    "training that does not fill": _run(_SAME, *_AB, accumulation=2),
    "shards": _run(lambda p: p.ShardedExecution(p.AutoStage.SameAsIpu), *_AB, iterations=1),
    "shards in training": _run(lambda p: p.ShardedExecution(), *_AB, accumulation=1),
    "phases": _run(lambda p: p.SerialPhasedExecution("a", "b"), *_AB, iterations=1),
    "a block that no phase has": _run(lambda p: p.SerialPhasedExecution("a", "c"), *_AB, iterations=1),
    "three IPUs that are rounded up": _run(_SAME, ("a", 0), ("b", 2)),
    "three IPUs": _run(_SAME, ("a", 0), ("b", 2), rounded=False),
    "blocks without names": _run(_NEXT, (None, 0), (None, 1)),
    "a block around code": lambda p: p.inferenceModel(_With(p, "a", 0))(batch()[0]),
    "a block around code without a name": lambda p: p.inferenceModel(_With(p, None, 0))(batch()[0]),
    "a block outside of models": lambda p: _With(p, "a", 0)(batch()[0]),
    "a function as a block": _decorated,
    "a block twice": _twice,
    "a block of a function": lambda p: p.BeginBlock(lambda x: x + 1.0, "a")(batch()[0]),
    "a block of nothing": lambda p: p.BeginBlock(None, "a"),
    "blocks removed": _removed,
    "blocks removed from no module": lambda p: p.removeBlocks(3),
    "the hook's text": _hook_text,
    "the text of a module with blocks": lambda p: repr(p.inferenceModel(_placed(p, ("a", 0), ("b", 1)))),
    "a scope of names": _scoped,
    "a scope without a name": lambda p: p.NameScope(3),
    "automatic ids outside of models": lambda p: p.Block.useAutoId(),
}
