"""PopTorch's own operators: in models where the stub has them, else what their Python refuses."""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch
from torch import nn

from tests.hardware.material import Applied, batch

_X = batch()[0]
_INDEX = torch.tensor([0])


def _in_model(function: Callable[[Any, torch.Tensor], Any], training: bool = False) -> Callable[[Any], Any]:
    """Run a function of the module and a tensor as an inference model, or train it on the sum of what it returns."""

    def call(poptorch: Any) -> Any:
        if not training:
            return poptorch.inferenceModel(Applied(lambda x: function(poptorch, x)))(_X)
        model = Applied(lambda x: poptorch.identity_loss(function(poptorch, x), "sum"))
        executor = poptorch.trainingModel(model)
        return [executor(_X) for _ in range(2)]

    return call


def _convolved(settings: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    return lambda p: settings(p, p.MultiConv()) is not None


def _two_convolutions(poptorch: Any) -> Any:
    layers = [nn.Conv1d(1, 1, 2) for _ in range(2)]
    for layer in layers:
        nn.init.ones_(layer.weight)
        nn.init.zeros_(layer.bias)

    def both(x: torch.Tensor) -> torch.Tensor:
        with poptorch.MultiConv():
            return layers[0](x) + layers[1](x)

    model = Applied(both)
    model.layers = nn.ModuleList(layers)
    return poptorch.inferenceModel(model)(torch.arange(6.0).reshape(1, 1, 6))


def _overlapped(poptorch: Any) -> Any:
    mode = poptorch.OverlapMode.OverlapAccumulationLoop

    class Overlap(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = poptorch.set_overlap_for_input(x, mode)
            return poptorch.set_overlap_for_output(x + 1.0, mode)

    options = poptorch.Options().deviceIterations(1)
    options.TensorLocations.numIOTiles(32)
    options.setExecutionStrategy(poptorch.ShardedExecution())
    return poptorch.inferenceModel(Overlap(), options)(_X)


def _custom(**settings: Any) -> Callable[[Any], Any]:
    arguments = {"name": "Cube", "domain": "com.acme", "domain_version": 1, "example_outputs": [_X], **settings}
    return lambda p: p.custom_op([_X], **arguments)


def _pick(poptorch: Any, condition: torch.Tensor) -> Any:
    return poptorch.cond(condition, lambda x: x + 1.0, [_X], lambda x: x - 1.0, [_X])


CALLS: Dict[str, Callable[[Any], Any]] = {
    "nop": _in_model(lambda p, x: p.nop(x)),
    "nop outside of models": lambda p: p.nop(_X),
    "nop of a number": lambda p: p.nop(3),
    "print": _in_model(lambda p, x: p.ipu_print_tensor(x, "x")),
    "print in training": _in_model(lambda p, x: p.ipu_print_tensor(x, "x"), training=True),
    "print a number": lambda p: p.ipu_print_tensor(3),
    "print in an unknown format": lambda p: p.ipu_print_tensor(_X, float_format="roman"),
    "checkpoint": _in_model(lambda p, x: p.recomputationCheckpoint(x), training=True),
    "checkpoint of two": _in_model(lambda p, x: p.recomputationCheckpoint(x, x + 1.0)),
    "checkpoint of a list": _in_model(lambda p, x: p.recomputationCheckpoint([x, x])),
    "checkpoint of a number": lambda p: p.recomputationCheckpoint(3),
    "checkpoint of a tensor and a number": lambda p: p.recomputationCheckpoint(_X, 3),
    "serialized product": _in_model(
        lambda p, x: p.serializedMatMul(x, x.t(), p.MatMulSerializationMode.OutputChannels, factor=2)
    ),
    "serialized product without a mode": lambda p: p.serializedMatMul(_X, _X.t(), "output_channels"),
    "serialized product by a float": lambda p: p.serializedMatMul(
        _X, _X.t(), p.MatMulSerializationMode.OutputChannels, factor=2.0
    ),
    "serialized product that keeps 1": lambda p: p.serializedMatMul(
        _X, _X.t(), p.MatMulSerializationMode.OutputChannels, keep_precision=1
    ),
    "available memory": _in_model(lambda p, x: p.set_available_memory(x @ x.t(), 0.3)),
    "available memory of a number": lambda p: p.set_available_memory(3, 0.3),
    "overlap": _overlapped,
    "overlap of a number": lambda p: p.set_overlap_for_input(3, p.OverlapMode.NoOverlap),
    "overlap of numbers for the output": lambda p: p.set_overlap_for_output((3, 4), p.OverlapMode.NoOverlap),
    "two convolutions": _two_convolutions,
    "convolutions: shares of memory": _convolved(lambda p, m: m.availableMemoryProportions([0.1, 0.2])),
    "convolutions: a share of memory": _convolved(lambda p, m: m.availableMemoryProportions(0.1)),
    "convolutions: a share that is a text": _convolved(lambda p, m: m.availableMemoryProportions("half")),
    "convolutions: no shares": _convolved(lambda p, m: m.availableMemoryProportions([])),
    "convolutions: partials": _convolved(lambda p, m: m.partialsTypes([torch.float, torch.half])),
    "convolutions: other partials": _convolved(lambda p, m: m.partialsTypes(torch.int32)),
    "convolutions: dithering": _convolved(lambda p, m: m.enableConvDithering([True, False])),
    "convolutions: dithering of 1": _convolved(lambda p, m: m.enableConvDithering(1)),
    "convolutions: dithering of some": _convolved(lambda p, m: m.enableConvDithering([True, 1])),
    "convolutions: plan": _convolved(lambda p, m: m.planType(p.MultiConvPlanType.Serial)),
    "convolutions: plan of 1": _convolved(lambda p, m: m.planType(1)),
    "convolutions: tiles": _convolved(lambda p, m: m.perConvReservedTiles(4)),
    "convolutions: tiles by a float": _convolved(lambda p, m: m.perConvReservedTiles(4.0)),
    "convolutions: back-off": _convolved(lambda p, m: m.cycleBackOff(0.1)),
    "convolutions: back-off of 1": _convolved(lambda p, m: m.cycleBackOff(1)),
    "slice of a number": lambda p: p.dynamic_slice(3, 0, _INDEX, 1, 1),
    "slice along a float": lambda p: p.dynamic_slice(_X, 0.0, _INDEX, 1, 1),
    "slice from a number": lambda p: p.dynamic_slice(_X, 0, 0, 1, 1),
    "slice of a size that is a float": lambda p: p.dynamic_slice(_X, 0, _INDEX, 1.0, 1),
    "slice in steps that are a float": lambda p: p.dynamic_slice(_X, 0, _INDEX, 1, 1.0),
    "update of a number": lambda p: p.dynamic_update(3, _X, 0, _INDEX, 1),
    "update along a text": lambda p: p.dynamic_update(_X, _X, "0", _INDEX, 1),
    "update from a number": lambda p: p.dynamic_update(_X, _X, 0, 0, 1),
    "update with a number": lambda p: p.dynamic_update(_X, 3, 0, _INDEX, 1),
    "update of a size that is a float": lambda p: p.dynamic_update(_X, _X, 0, _INDEX, 1.0),
    "update of other dimensions": lambda p: p.dynamic_update(_X, _X[0], 0, _INDEX, 1),
    "update of another type": lambda p: p.dynamic_update(_X, _X.half(), 0, _INDEX, 1),
    "loop over a tensor": lambda p: p.for_loop(3, lambda x: x, _X),
    "loop over a number": lambda p: p.for_loop(3, lambda x: x, [_X, 3]),
    "choice outside of models": lambda p: [_pick(p, torch.tensor(True)), _pick(p, torch.tensor(False))],
    "choice without lists": lambda p: p.cond(torch.tensor(True), lambda x: x, _X, lambda x: x, [_X]),
    "decoder of a number": lambda p: p.ctc_beam_search_decoder(3, _INDEX),
    "decoder with lengths that are a list": lambda p: p.ctc_beam_search_decoder(_X, [1]),
    "custom operator with a number as a name": _custom(attributes={3: 1.0}),
    "custom operator with a dictionary": _custom(attributes={"a": {}}),
    "custom operator with mixed numbers": _custom(attributes={"a": [1, 2.0]}),
    "custom operator with other letters": _custom(attributes={"a": "\u00e4"}),
    "custom operator with a name in other letters": _custom(attributes={"\u00e4": 1}),
    "custom operator with no outputs": _custom(example_outputs=None),
    "farthest points of a number": lambda p: p.fps(3, [0, 2]),
    "farthest points between numbers": lambda p: p.fps(_X, 3),
    "farthest points of one": lambda p: p.fps(_X, [0]),
    "farthest points in a ratio of 1": lambda p: p.fps(_X, [0, 4], ratio=1),
    "farthest points from 1": lambda p: p.fps(_X, [0, 4], random_start=1),
    "nearest of a number": lambda p: p.nearest(3, _X),
    "nearest to a number": lambda p: p.nearest(_X, 3),
    "nearest in batches that are a number": lambda p: p.nearest(_X, _X, 3, [0]),
    "identity loss of an unknown reduction": lambda p: p.identity_loss(_X, "median"),
    "identity losses outside of models": lambda p: [p.identity_loss(_X, r) for r in ("mean", "sum", "none")],
    "a value that is read": _in_model(lambda p, x: x if float(x.sum()) > 0 else -x),
    "a shape that depends on values": _in_model(lambda p, x: x[x > 0]),
    "moved to the CPU": _in_model(lambda p, x: x.cpu()),
    "with a tensor of the CPU": _in_model(lambda p, x: x + torch.arange(3.0, device="cpu")),
    "on the device": _in_model(lambda p, x: x + 1.0 if p.isRunningOnIpu() else x),
    "not on the device": lambda p: p.isRunningOnIpu(),
}
