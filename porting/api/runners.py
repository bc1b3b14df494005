"""Keep the executors of one ported model, and define `PortedInference`, which users call for inference.

`PortedModel` uses them for training, evaluation and inference.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence

from ..adapters.cumulative_counts import let_host_count
from ..support.uncompiled_code import keep_class_uncompiled
from .optimizer import PortOptimizer
from .port import Port, PortFindings
from .run_report import ExecutorRecord
from .runner import Runner
from .shapes import CompiledShapes

__all__ = ["PortedInference", "Runners"]

_OWNERS = {"training": "ported", "evaluation": "ported", "inference": "ported.inference()"}


@keep_class_uncompiled
class PortedInference:
    """A ported model for inference: call it with the model's arguments (and labels, to get the loss as well).

    It has the weights of the training step, whenever it is called, and runs in eval mode. One executable serves one
    shape of batches; `PortOptions(max_executables=N)` keeps N.
    """

    def __init__(self, ported: object, runners: Runners) -> None:
        """Call `runners`, and keep `ported`, the model that they belong to, alive as long as this is."""
        self._ported = ported
        self._runners = runners

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's output for one batch; the first call compiles. Nothing is trained.

        What `forward` writes to in eval mode, such as a counter, is written to for the training step as well.
        Raises BatchError for a batch unlike the one compiled for (B001-B003), CaptureError for a model that no static
        graph can hold.
        """
        return self._runners.named("inference", args, kwargs).run(args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> float:
        """Compile for batches like this one and return the seconds it took; 0.0 when it is compiled already."""
        return self._runners.named("inference", args, kwargs).compile(args, kwargs)

    def destroy(self) -> None:
        """Drop the executables; the next call compiles anew, for any batch."""
        self._runners.destroy("inference")

    @property
    def device_executor(self) -> Any:
        """The backend's executor that was used last; None while nothing is compiled."""
        return self._runners.last("inference").executor

    def __repr__(self) -> str:
        return f"PortedInference of {self._ported!r}"


class Runners:
    """The runners of a ported model: those that train, and those for evaluation and inference once they are asked for.

    Of each kind there is one for each shape of batch, at most `max_executables` of the options.
    """

    def __init__(self, port: Port, findings: PortFindings, optimizer: PortOptimizer) -> None:
        """Make the runner that trains; nothing is compiled yet."""
        self._port = port
        self._findings = findings
        self._optimizer = optimizer
        # of executors that are not made yet, by name
        self._random_states: Dict[str, List[int]] = {}
        self._by_name: Dict[str, CompiledShapes[Runner]] = {}
        self.training = self.last("training")

    def _make_runner(self, name: str) -> Runner:
        return Runner(
            name,
            self._port,
            self._findings,
            optimizer=self._optimizer if name == "training" else None,
            owner=_OWNERS[name],
            random_states=self._random_states,
        )

    def _find_shapes(self, name: str) -> CompiledShapes[Runner]:
        if name not in self._by_name:
            self._by_name[name] = CompiledShapes(
                lambda: self._make_runner(name), lambda runner: runner, self._findings, self._port.options
            )
        return self._by_name[name]

    def last(self, name: str) -> Runner:
        """Return the runner of a kind that was used last."""
        return self._find_shapes(name).last

    def named(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Runner:
        """Return the runner for "evaluation" or "inference" of this batch."""
        return self._find_shapes(name).find(args, kwargs)

    def is_training_compiled(self) -> bool:
        """Tell whether there is an executable that trains."""
        return any(runner.has_executable() for runner in self._by_name["training"])

    def select_training(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Runner:
        """Let `training` be the runner for this batch, which goes on where another shape's has stopped; return it."""
        compiled = [runner for runner in self._by_name["training"] if runner.has_executable()]
        if self._port.options.max_executables == 1 or not compiled or self.training.accepts(args, kwargs):
            return self.training
        last = compiled[0]
        words = last.executor.rng_state
        last.detach()
        self._optimizer.keep_state()
        self.training = self._by_name["training"].find(args, kwargs)
        if self.training.has_executable():
            self._optimizer.prepare()
            # by this the state of the optimizer is read from here
            self.training.executor.setOptimizer(self._optimizer.device)
            if words is not None:
                self.training.executor.rng_state = words
        elif words is not None:
            self._random_states["training"] = words
        return self.training

    def __iter__(self) -> Iterator[Runner]:
        return iter([runner for runners in self._by_name.values() for runner in runners])

    @property
    def records(self) -> List[ExecutorRecord]:
        """What each executor has done."""
        return [runner.record for runner in self]

    def send_weights(self) -> None:
        """Send the host's weights to the executors that hold a device."""
        for runner in self:
            runner.send_weights()

    def destroy(self, name: Optional[str] = None) -> None:
        """Drop all executables, or those of one kind, after fetching what they have learnt."""
        for runner in self:
            if name in (None, runner.record.name):
                runner.destroy()
        if name is None:
            let_host_count(self._port.model.modules())

    # -- random streams ------------------------------------------------------------------------------------------------

    def read_random_states(self) -> Dict[str, List[int]]:
        """Return seed and state of each executor's random stream, by name; one that has not begun has none."""
        states = dict(self._random_states)
        for name, runners in self._by_name.items():
            # of those of one kind the last used one has drawn the newest numbers
            compiled = [runner for runner in runners if runner.executor is not None]
            words = compiled[0].executor.rng_state if compiled else None
            if words is not None:
                states[name] = list(words)
        return states

    def set_random_states(self, states: Mapping[str, List[int]]) -> None:
        """Let the executors' streams go on from `states`; those that are not made yet begin with theirs."""
        self._random_states.clear()
        self._random_states.update(states)
        for runner in self:
            if runner.executor is not None and runner.record.name in self._random_states:
                runner.executor.rng_state = self._random_states.pop(runner.record.name)

    def is_ahead_of(self, states: Mapping[str, List[int]]) -> bool:
        """Tell whether an executor has drawn numbers that had drawn none when `states` were read."""
        others = (runner for runner in self if runner.executor is not None and runner.record.name not in states)
        return any(runner.executor.rng_state is not None for runner in others)
