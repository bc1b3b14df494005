"""A search ends the run that it watches at the first fault, whatever runs the operators."""

from __future__ import annotations

from typing import Any, Callable, List, Optional

import torch

from porting.nan_search import NotFinite, NotFiniteSearch
from porting.observe.plain_functions import KnownTensors
from porting.observe.watcher import BackwardPass, ForwardResults, NamedValue, OperatorCall, StepState, WatchedOperator

NAN = float("nan")


class Run:
    """A run of one weight, step by step, that tells a search of itself."""

    def __init__(self, **settings: Any) -> None:
        self.weight = torch.tensor([1.0], requires_grad=True)
        self.done: List[str] = []
        self.search = NotFiniteSearch((), (), self.state, **settings)

    @property
    def state(self) -> StepState:
        return StepState({"weight": self.weight})

    def call(self, name: str, function: Callable[[torch.Tensor], torch.Tensor], value: torch.Tensor) -> torch.Tensor:
        self.done.append(name)
        operands = KnownTensors([NamedValue("weight", self.weight, "parameter")])
        operator = WatchedOperator(name, "layer")
        made: torch.Tensor = self.search.run_operator(OperatorCall(operator, name, operands, function, (value,), {}))
        return made

    def make_step(self, function: Callable[[torch.Tensor], torch.Tensor], new: float = 0.5) -> None:
        loss = self.call("loss", lambda x: x.sum(), self.call("function", function, self.weight))
        self.search.end_forward(ForwardResults(loss))
        self.search.run_backward(BackwardPass(loss.backward, {"weight": self.weight}))
        with torch.no_grad():
            self.weight.fill_(new)
        self.weight.grad = None
        self.search.end_update(self.state)
        self.done.append("step")


def find(run: Run, *steps: Callable[[], None]) -> Optional[NotFinite]:
    return run.search.find(lambda: [step() for step in steps])


def test_a_run_that_stays_finite_has_no_fault() -> None:
    run = Run()

    assert find(run, lambda: run.make_step(torch.exp)) is None
    assert run.done == ["function", "loss", "step"]


def test_a_loss_ends_the_run_before_its_backward_pass() -> None:
    run = Run()

    fault = find(run, lambda: run.make_step(lambda x: (x - 2).log()))

    assert fault is not None
    assert (fault.phase, fault.module_path) == ("forward", "layer")
    assert run.done == ["function", "loss"]
    assert run.weight.grad is None


def test_a_gradient_ends_the_run_before_its_update() -> None:
    run = Run()

    fault = find(run, lambda: run.make_step(lambda x: (x - 1).sqrt()))

    assert fault is not None
    assert (fault.phase, fault.name) == ("backward", "weight")
    assert "step" not in run.done


def test_an_update_is_told_with_its_step() -> None:
    run = Run()

    fault = find(run, lambda: run.make_step(torch.exp), lambda: run.make_step(torch.exp, new=NAN))

    assert fault is not None
    assert (fault.phase, fault.name, fault.step, fault.micro_batch) == ("update", "weight", 2, 1)


def test_a_buffer_that_a_pass_has_written_is_a_fault_unless_it_was_so_before() -> None:
    results = ForwardResults(buffers={"mean": torch.tensor([NAN])}, has_backward=False)
    new, known = Run(), Run(known=["mean"])

    faults = [find(run, lambda run=run: run.search.end_forward(results)) for run in (new, known)]

    assert faults[0] is not None
    assert faults[0].name == "mean"
    assert faults[1] is None


def test_an_output_counts_where_nothing_else_is_wrong() -> None:
    run, output = Run(), ForwardResults(outputs=[torch.tensor([NAN])], has_backward=False)

    fault = find(run, lambda: run.search.end_forward(output))
    other = find(Run(), lambda: run.search.end_forward(output), lambda: run.make_step(lambda x: (x - 2).log()))

    assert fault is not None
    assert fault.name == "output 0"
    assert other is not None
    assert other.operator is not None
    assert other.operator.name == "function"
