"""The executors of one ported model, and `PortedInference`, which users call for inference."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Mapping

from .optimizer import PortOptimizer
from .port import Port, PortFindings
from .run_report import ExecutorRecord
from .runner import Runner

__all__ = ["PortedInference", "Runners"]

_OWNERS = {"evaluation": "ported", "inference": "ported.inference()"}


class PortedInference:
    """A ported model for inference: call it with the model's arguments (and labels, to get the loss as well).

    It has the weights of the training step, whenever it is called, and runs in eval mode. One executable serves one
    shape of batches.
    """

    def __init__(self, ported: object, runner: Runner) -> None:
        """Call `runner`, and keep `ported`, the model that it belongs to, alive as long as this is."""
        self._ported = ported
        self._runner = runner

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's output for one batch; the first call compiles. No weight or buffer changes.

        Raises BatchError for a batch unlike the one compiled for (B001-B003), CaptureError for a model that no static
        graph can hold.
        """
        return self._runner.run(args, kwargs)

    def compile(self, *args: Any, **kwargs: Any) -> float:
        """Compile for batches like this one and return the seconds it took; 0.0 when it is compiled already."""
        return self._runner.compile(args, kwargs)

    def destroy(self) -> None:
        """Drop the executable; the next call compiles anew, for any batch."""
        self._runner.destroy()

    @property
    def device_executor(self) -> Any:
        """The backend's executor; None while nothing is compiled."""
        return self._runner.executor

    def __repr__(self) -> str:
        return f"PortedInference of {self._ported!r}"


class Runners:
    """The runner that trains, and those for evaluation and inference from the first time that they are asked for."""

    def __init__(self, port: Port, findings: PortFindings, optimizer: PortOptimizer) -> None:
        """Make the runner that trains; nothing is compiled yet."""
        self._port = port
        self._findings = findings
        # of executors that are not made yet, by name
        self._random_states: Dict[str, List[int]] = {}
        self.training = Runner(
            "training", port, findings, optimizer=optimizer, owner="ported", random_states=self._random_states
        )
        self._by_name = {"training": self.training}

    def named(self, name: str) -> Runner:
        """Return the runner for "evaluation" or "inference"."""
        if name not in self._by_name:
            self._by_name[name] = Runner(
                name, self._port, self._findings, owner=_OWNERS[name], random_states=self._random_states
            )
        return self._by_name[name]

    def __iter__(self) -> Iterator[Runner]:
        return iter(list(self._by_name.values()))

    @property
    def records(self) -> List[ExecutorRecord]:
        """What each executor has done."""
        return [runner.record for runner in self]

    def send_weights(self) -> None:
        """Send the host's weights to the executors that hold a device."""
        for runner in self:
            runner.send_weights()

    def destroy(self) -> None:
        """Drop all executables, after fetching what they have learnt."""
        for runner in self:
            runner.destroy()

    # -- random streams ------------------------------------------------------------------------------------------------

    def read_random_states(self) -> Dict[str, List[int]]:
        """Return seed and state of each executor's random stream, by name; one that has not begun has none."""
        states = dict(self._random_states)
        for runner in self:
            words = None if runner.executor is None else runner.executor.rng_state
            if words is not None:
                states[runner.record.name] = list(words)
        return states

    def set_random_states(self, states: Mapping[str, List[int]]) -> None:
        """Let the executors' streams go on from `states`; those that are not made yet begin with theirs."""
        self._random_states.clear()
        self._random_states.update(states)
        for runner in self:
            if runner.executor is not None and runner.record.name in states:
                runner.executor.rng_state = self._random_states.pop(runner.record.name)

    def is_ahead_of(self, states: Mapping[str, List[int]]) -> bool:
        """Tell whether an executor has drawn numbers that had drawn none when `states` were read."""
        others = (runner for runner in self if runner.executor is not None and runner.record.name not in states)
        return any(runner.executor.rng_state is not None for runner in others)
