"""The life of an executor: compile, run, detach, attach, destroy; weights, states, seeds and measurements."""

from __future__ import annotations

from typing import Any, Callable, Dict

import torch
from torch import nn

from tests.hardware.material import batch, filled, regression

_IDLE = (
    "copyWeightsToHost",
    "copyWeightsToDevice",
    "copyNamedBuffersToDevice",
    "attachToDevice",
    "detachFromDevice",
    "getTensorNames",
    "cycleCount",
    "compilationTime",
    "getPerfCounters",
    "getLatency",
    "getHostIpuLatency",
    "getComputeLatency",
    "getIpuHostLatency",
    "destroy",
    "isCompiled",
    "isAttachedToDevice",
    "copyWeightsToHostIfNeeded",
)


def _training(poptorch: Any, **settings: Any) -> Any:
    return poptorch.trainingModel(regression(), _options(poptorch, **settings))


def _inference(poptorch: Any, **settings: Any) -> Any:
    return poptorch.inferenceModel(filled(nn.Linear(3, 2)), _options(poptorch, **settings))


def _options(
    poptorch: Any, iterations: int = 1, accumulation: int = 1, replicas: int = 1, output: Any = None, more: Any = None
) -> Any:
    options = poptorch.Options().deviceIterations(iterations).replicationFactor(replicas)
    options.Training.gradientAccumulation(accumulation)
    if output is not None:
        name, *period = output
        options.outputMode(getattr(poptorch.OutputMode, name), *period)
    if more is not None:
        more(options, poptorch)
    return options


def _trained(use: Callable[[Any], Any], **settings: Any) -> Callable[[Any], Any]:
    """Do something with an executor that has trained once."""

    def call(poptorch: Any) -> Any:
        executor = _training(poptorch, **settings)
        executor(*batch(8))
        return use(executor)

    return call


def _before(name: str, of_training: bool) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        found = getattr((_training if of_training else _inference)(poptorch), name)()
        return found if not isinstance(found, float) else None

    return call


def _after(use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Do something with an inference executor that has run once."""

    def call(poptorch: Any) -> Any:
        executor = _inference(poptorch)
        executor(batch()[0])
        return use(executor)

    return call


def _do(*names: str) -> Callable[[Any], Any]:
    def use(executor: Any) -> Any:
        for name in names:
            getattr(executor, name)()
        return [executor.isCompiled(), executor.isAttachedToDevice()]

    return use


def _outputs(name: str, *period: int, **settings: Any) -> Dict[str, Callable[[Any], Any]]:
    shown = "".join(f", {key} {value}" for key, value in settings.items())
    output = (name, *period)
    return {
        f"{name}{list(period) or ''} in training{shown}": lambda p: _training(p, output=output, **settings)(*batch(8)),
        f"{name}{list(period) or ''} in inference{shown}": lambda p: _inference(
            p, output=output, **{key: value for key, value in settings.items() if key != "accumulation"}
        )(batch(8)[0]),
    }


def _states(poptorch: Any) -> Any:
    executor = _training(poptorch)
    found = [[executor.isCompiled(), executor.isAttachedToDevice()]]
    executor.compile(*batch())
    for name in ("detachFromDevice", "attachToDevice", "destroy"):
        found.append([executor.isCompiled(), executor.isAttachedToDevice()])
        getattr(executor, name)()
    return [*found, [executor.isCompiled(), executor.isAttachedToDevice()]]


def _compiled_twice(poptorch: Any) -> Any:
    executor = _inference(poptorch)
    executor.compile(batch()[0])
    executor.compile(batch()[0])
    return executor(batch()[0])


def _compiling_changes_nothing(poptorch: Any) -> Any:
    executor = _training(poptorch)
    executor.compile(*batch())
    return executor.model.state_dict()


def _shared(poptorch: Any) -> Any:
    model = regression()
    training, inference = poptorch.trainingModel(model), poptorch.inferenceModel(model.model)
    found = [inference(batch()[0])]
    training(*batch())
    return [*found, inference(batch()[0])]


def _of_an_executor(poptorch: Any) -> Any:
    training = _training(poptorch)
    training(*batch())
    return poptorch.inferenceModel(training)(*batch())


def _wrapped_twice(poptorch: Any) -> Any:
    model = regression()
    poptorch.trainingModel(model)(*batch())
    return poptorch.trainingModel(model)


def _kept_and_wrapped_twice(poptorch: Any) -> Any:
    model = regression()
    first = poptorch.trainingModel(model)
    return [first.isCompiled(), poptorch.trainingModel(model)]


def _wrapped_again(poptorch: Any) -> Any:
    model = regression()
    first = poptorch.trainingModel(model)
    first(*batch())
    first.destroy()
    return poptorch.trainingModel(model)(*batch())


def _written(poptorch: Any, copies: bool) -> Any:
    model = regression()
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.0))
    losses = [executor(*batch())[1]]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    if copies:
        executor.copyWeightsToDevice()
    return [*losses, executor(*batch())[1]]


def _loaded(poptorch: Any) -> Any:
    executor = _training(poptorch)
    executor(*batch())
    zeros = {name: torch.zeros_like(value) for name, value in executor.state_dict().items()}
    missing = executor.load_state_dict(zeros)
    return [executor(*batch())[1], missing.missing_keys]


def _hooked(poptorch: Any) -> Any:
    seen = []
    handles = [
        poptorch.registerPreCompileHook(lambda: seen.append("before")),
        poptorch.registerPostCompileHook(lambda: seen.append("after")),
    ]
    _inference(poptorch)(batch()[0])
    for handle in handles:
        handle.remove()
    _inference(poptorch)(batch()[0])
    return seen


def _named_buffers(poptorch: Any, is_listed: bool) -> Any:
    model = nn.BatchNorm1d(3)
    options = poptorch.Options()
    if is_listed:
        options.updatableNamedBuffers(["running_mean"])
    executor = poptorch.inferenceModel(model.eval(), options)
    found = [executor(batch()[0])]
    model.running_mean.fill_(1.0)
    executor.copyNamedBuffersToDevice()
    return [*found, executor(batch()[0])]


def _anchored(poptorch: Any) -> Any:
    executor = _training(poptorch, more=lambda o, p: o.anchorTensor("grad", "Gradient___model.weight"))
    executor(*batch())
    return executor.getAnchoredTensor("grad")


class _Buffered(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.how == "in place":
            self.steps += 1
        else:
            self.steps = self.steps + 1
        return x + self.steps


def _counting(how: str) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        executor = poptorch.inferenceModel(_Buffered(how))
        return [executor(torch.zeros(1)) for _ in range(2)]

    return call


def _seeds(poptorch: Any) -> Any:
    executor = _inference(poptorch, more=lambda o, p: o.randomSeed(7))
    executor.compile(batch()[0])
    return executor.rng_state


CALLS: Dict[str, Callable[[Any], Any]] = {
    **{f"{name} of a new training model": _before(name, True) for name in _IDLE},
    **{f"{name} of a new inference model": _before(name, False) for name in _IDLE},
    **_outputs("Final", iterations=2, accumulation=2),
    **_outputs("All", iterations=2, accumulation=2),
    **_outputs("Sum", iterations=2, accumulation=2),
    **_outputs("EveryN", 2, iterations=4),
    **_outputs("All", iterations=2, replicas=2),
    **_outputs("Final", replicas=2),
    "losses with accumulation": _trained(lambda e: [e(*batch(8))[1] for _ in range(2)], accumulation=4),
    "losses summed over accumulation": _trained(
        lambda e: [e(*batch(8))[1] for _ in range(2)],
        accumulation=2,
        more=lambda o, p: o.Training.accumulationAndReplicationReductionType(p.ReductionType.Sum),
    ),
    "losses with replicas": _trained(lambda e: [e(*batch(8))[1] for _ in range(2)], replicas=2, iterations=2),
    "states": _states,
    "compiled twice": _compiled_twice,
    "compiling changes no weight": _compiling_changes_nothing,
    "accumulation in inference": lambda p: _inference(p, accumulation=2),
    "accumulation in inference of shards": lambda p: _inference(
        p, accumulation=2, more=lambda o, q: o.setExecutionStrategy(q.ShardedExecution())
    ),
    "options that are none": lambda p: p.inferenceModel(nn.Linear(1, 1), {"a": 1}),
    "the model": lambda p: isinstance(_training(p).model, nn.Module),
    "the executor's text": lambda p: repr(_inference(p)),
    "the executor's text in training": lambda p: repr(_training(p)),
    "an attribute of the model": lambda p: _inference(p).in_features,
    "an unknown attribute": lambda p: _inference(p).no_such_thing,
    "a parameter of the executor": lambda p: _inference(p).weight.shape,
    "trained weights": _trained(lambda e: e.model.state_dict()),
    "trained weights after copying": _trained(lambda e: [e.copyWeightsToHost(), e.model.state_dict()]),
    "weights to the host if needed": _trained(lambda e: [e.copyWeightsToHostIfNeeded() for _ in range(2)]),
    "detached twice": _trained(_do("detachFromDevice", "detachFromDevice")),
    "attached twice": _trained(_do("attachToDevice")),
    "detached and attached": _trained(lambda e: [_do("detachFromDevice", "attachToDevice")(e), e(*batch(8))[1]]),
    "detached and run": _trained(lambda e: [_do("detachFromDevice")(e), e(*batch(8))[1]]),
    "destroyed": _trained(_do("destroy")),
    "destroyed twice": _trained(_do("destroy", "destroy")),
    "destroyed and weights asked for": _trained(_do("destroy", "copyWeightsToHost")),
    "destroyed and weights sent": _trained(_do("destroy", "copyWeightsToDevice")),
    "destroyed and detached": _trained(_do("destroy", "detachFromDevice")),
    "destroyed and run in inference": _after(lambda e: [_do("destroy")(e), e(batch()[0])]),
    "detached in inference": _after(_do("detachFromDevice")),
    "weights to the host in inference": _after(_do("copyWeightsToHost")),
    "weights to the device in inference": _after(_do("copyWeightsToDevice")),
    "cycles that were not asked for": _after(lambda e: e.cycleCount()),
    "perf counters": _after(lambda e: sorted(e.getPerfCounters())),
    "latency is three numbers": _after(lambda e: len(e.getLatency())),
    "an anchor that was never asked for": _after(lambda e: e.getAnchoredTensor("no_such_tensor")),
    "an anchored gradient": _anchored,
    "names of tensors hold the weights": _trained(lambda e: {"model.weight", "model.bias"} <= set(e.getTensorNames())),
    "backward on an output": _trained(lambda e: e(*batch(8))[1].backward()),
    "backward in inference": _after(lambda e: e(batch()[0]).sum().backward()),
    "backward on the output in inference": _after(lambda e: e(batch()[0]).backward()),
    "weights that two executors share": _shared,
    "an inference model of an executor": _of_an_executor,
    "wrapped twice": _wrapped_twice,
    "wrapped twice while the first is kept": _kept_and_wrapped_twice,
    "wrapped again after destroy": _wrapped_again,
    "weights written on the host": lambda p: _written(p, copies=False),
    "weights written on the host and copied": lambda p: _written(p, copies=True),
    "a state that is loaded": _loaded,
    "hooks": _hooked,
    "a hook that cannot be called": lambda p: p.registerPreCompileHook(3),
    "a hook afterwards that cannot be called": lambda p: p.registerPostCompileHook(3),
    "named buffers": lambda p: _named_buffers(p, True),
    "named buffers that are not listed": lambda p: _named_buffers(p, False),
    "a buffer changed in place": _counting("in place"),
    "a buffer replaced": _counting("replaced"),
    "offline and run": lambda p: _inference(p, more=lambda o, q: o.useOfflineIpuTarget())(batch()[0]),
    "offline and compiled": lambda p: _inference(p, more=lambda o, q: o.useOfflineIpuTarget()).compile(batch()[0]),
    "a seed before the first run": _seeds,
    "the random state of a new executor": lambda p: _inference(p).rng_state,
    "no progress bar and its time": lambda p: _silent(p).compilationTime(),
}


def _silent(poptorch: Any) -> Any:
    executor = _inference(poptorch, more=lambda o, p: o.showCompilationProgressBar(False))
    executor.compile(batch()[0])
    return executor
