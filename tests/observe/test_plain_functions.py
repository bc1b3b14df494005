"""A watcher runs each function of torch that plain PyTorch calls, and knows its module and line."""

from __future__ import annotations

import torch
from torch import nn

from porting.observe.plain_functions import KnownTensors, watch_functions
from porting.observe.watcher import NamedValue
from tests.observe.watchers import Notes


class Net(nn.Module):
    """A layer and a function of the model's own."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return torch.tanh(self.layer(x))


def watch(run, model, **settings):
    notes, names = Notes(), {id(module): name or "(model)" for name, module in model.named_modules()}
    result = watch_functions(
        run, notes, find_path=lambda module, around, args: names.get(id(module), around), **settings
    )
    return notes, result


def test_functions_are_told_with_their_modules_and_lines():
    model, x = Net(), torch.ones(4, 3)

    notes, _result = watch(lambda: torch.relu(model(x)), model)

    operators = [call.operator for call in notes.calls]
    assert [(one.name, one.module_path) for one in operators] == [
        ("torch.nn.functional.linear", "layer"),
        ("torch.tanh", "(model)"),
        ("torch.relu", ""),
    ]
    assert all(one.place.file == __file__ for one in operators[1:])


def test_the_result_is_that_of_an_unwatched_run():
    model, x = Net(), torch.ones(4, 3)

    _notes, result = watch(lambda: model(x), model)

    assert torch.equal(result, model(x))


def test_tensors_are_named_as_the_user_knows_them_and_else_by_their_number():
    model, x = Net(), torch.ones(4, 3)
    known = KnownTensors(
        [NamedValue("pixels", x, "input"), NamedValue("layer.weight", model.layer.weight, "parameter")]
    )

    notes, _result = watch(lambda: model(x), model, known=known)

    assert notes.inputs[0] == [("pixels", "input"), ("layer.weight", "parameter"), ("argument 2", "")]


def test_a_module_that_ends_gives_way_to_the_one_around_it():
    model, entered = Net(), []

    def find_path(module, around, args):
        entered.append((type(module).__name__, around, len(args)))
        return type(module).__name__

    watch_functions(lambda: model(torch.ones(4, 3)), Notes(), find_path=find_path)

    assert entered == [("Net", "", 1), ("Linear", "Net", 1)]


def test_nothing_is_watched_afterwards():
    model = Net()
    notes, _result = watch(lambda: model(torch.ones(4, 3)), model)
    count = len(notes.calls)

    model(torch.ones(4, 3))

    assert len(notes.calls) == count
