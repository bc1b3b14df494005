"""All that a program trains with goes through a watcher, and the program does what it did."""

from __future__ import annotations

import functools
from typing import Any, Iterator, List

import pytest
import torch
from torch import nn

from porting.observe import training_programs
from porting.observe.training_programs import watch_calls, watch_program
from porting.torch_insides.exchanged import exchange


class Notes:
    """Writes down what it runs."""

    def __init__(self) -> None:
        self.events: List[str] = []

    def call_module(self, run: Any, module: nn.Module, *args: object, **kwargs: object) -> Any:
        self.events.append(type(module).__name__)
        return run(module, *args, **kwargs)

    def run_backward(self, run: Any, tensors: Any, *args: object, **kwargs: object) -> Any:
        self.events.append("backward")
        return run(tensors, *args, **kwargs)

    def clip_gradients(self, run: Any, parameters: Any, max_norm: float, *args: object, **kwargs: object) -> Any:
        self.events.append(f"clip to {max_norm}")
        return run(parameters, max_norm, *args, **kwargs)

    def make_step(self, run: Any, optimizer: torch.optim.Optimizer, *args: object, **kwargs: object) -> Any:
        self.events.append(type(optimizer).__name__)
        return run(optimizer, *args, **kwargs)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Notes]:
    ends: List[Any] = []

    @functools.wraps(exchange)
    def exchange_for_now(*args: Any) -> Any:
        ends.append(exchange(*args))
        return ends[-1]

    monkeypatch.setattr(training_programs, "exchange", exchange_for_now)
    made = Notes()
    watch_program(made)
    yield made
    for end in ends[::-1]:
        end()


def train() -> torch.Tensor:
    class Descent(torch.optim.SGD):
        """An optimizer of a new class: torch wraps the step of a class once, when its first optimizer is made."""

        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 1))
    optimizer = Descent(model.parameters(), lr=0.1)
    model(torch.ones(2, 3)).sum().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return model[0].weight.detach()


def test_a_step_is_told_in_its_order(notes: Notes) -> None:
    train()

    assert notes.events == ["Sequential", "Linear", "backward", "clip to 0.5", "Descent"]


def test_a_watched_program_trains_what_it_trained(notes: Notes) -> None:
    watched = train()
    notes.events.clear()

    assert torch.equal(watched, train())
    assert notes.events


def test_a_call_of_another_library_is_watched_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: List[Any] = []
    monkeypatch.setattr(training_programs, "exchange", lambda *args: ends.append(exchange(*args)))

    class Executor:
        def compile(self, size: int) -> int:
            return 2 * size

    watch_calls(Executor, "compile", lambda run, executor, size: run(executor, size + 1))

    assert Executor().compile(1) == 4
    ends[0]()
    assert Executor().compile(1) == 2
