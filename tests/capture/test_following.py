"""A second run of `forward` follows the first as long as it does the same, and says where it does not."""

from __future__ import annotations

from collections import namedtuple

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.capture.following import FirstRun

Pair = namedtuple("Pair", "one other")


class Model(nn.Module):
    """Computes a function of the module, the input and the number of the run."""

    def __init__(self, function):
        super().__init__()
        self.function, self.runs, self.kept = function, 0, {}
        self.layer, self.drop = nn.Linear(3, 3), nn.Dropout(0.5)
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x):
        self.runs += 1
        return self.function(self, x, self.runs)


def run_twice(function, *, mode="inference", **options):
    model, first = Model(function), FirstRun()
    graph = capture_step(model, [torch.ones(2, 3)], mode=mode, first_run=first, **options)
    nodes = [(node.name, node.args, dict(node.meta)) for node in graph.graph.nodes]

    followed = first.follow()

    assert [(node.name, node.args, dict(node.meta)) for node in graph.graph.nodes] == nodes
    return followed


def count_in_place(model, x, _runs):
    model.count += x.sum(0)
    return model.layer(x) * model.count


def look_at_gradients(model, x, _runs):
    before = (x.requires_grad, model.count.requires_grad)
    hidden = model.layer(x)
    return (hidden * 2 if (*before, hidden.requires_grad) == (False, False, True) else hidden).sum()


def write_with_gradient(model, x, _runs):
    total = torch.zeros(2, 3, device=x.device)
    factor = 3.0 if total.requires_grad else 2.0
    total += model.layer(x)
    return (total * factor).sum() if total.requires_grad else total


def tag(_model, x, _runs):
    hidden = x * 2
    factor = 3.0 if hasattr(hidden, "tag") else 2.0
    hidden.tag = True
    return hidden * factor


@pytest.mark.parametrize(
    "function",
    [
        lambda model, x, _runs: model.drop(model.layer(x)).relu_(),
        lambda _model, x, _runs: x * float("nan"),
        lambda _model, x, _runs: Pair(x * 2, [x.split(1), {"text": "a"}]),
        lambda _model, x, _runs: x + torch.tensor([1.0, 2.0, 3.0]).to(x.device),
        lambda _model, x, _runs: x * torch.tensor(2.0),
        lambda _model, x, _runs: x[torch.tensor([1, 0])],
        lambda _model, x, _runs: x.contiguous().view(6)[1:].clone(),
        lambda _model, x, _runs: torch.rand(2, 3, device=x.device) + x.new_zeros(3) + torch.arange(3, device=x.device),
        count_in_place,
        tag,
    ],
    ids="layers nan outputs constant number indices views factories buffer attribute".split(),
)
def test_a_run_that_does_the_same_is_followed_to_its_end(function):
    assert run_twice(function) == (True, None)


@pytest.mark.parametrize("function", [look_at_gradients, write_with_gradient])
def test_gradient_paths_are_those_of_the_moment(function):
    loss = lambda output, _label: output.sum() if output.dim() else output * 1.0  # noqa: E731
    model, first = Model(function), FirstRun()
    batch = [torch.ones(2, 3), torch.ones(2)]
    capture_step(model, batch, loss=loss, first_run=first)

    assert first.follow() == (True, None)


def swallow(_model, x, runs):
    try:
        x = x * runs
    except BaseException:  # noqa: BLE001 - what some programs do
        pass
    return x


def translate(_model, x, runs):
    try:
        return x * runs
    except BaseException as error:  # noqa: BLE001 - what some programs do
        raise ValueError("no luck") from error


def change_mode(model, x, runs):
    with torch.set_grad_enabled(runs > 1):
        return model.layer(x)


DIFFERENT = {
    "number": (lambda _model, x, runs: x * runs, 1, 2),
    "kind of a number": (lambda _model, x, runs: x * (2 if runs == 1 else 2.0), 2, 2.0),
    "constant": (lambda _model, x, runs: x * torch.tensor(float(runs)), 1.0, 2.0),
    "constant of several": (lambda _model, x, runs: x * torch.tensor([1.0, 2.0, runs]).to(x.device), None, None),
    "operator": (lambda _model, x, runs: x.exp() if runs == 1 else x.sin(), "exp.default", "sin.default"),
    "one less": (lambda _model, x, runs: x.exp().sin() if runs == 1 else x.exp(), "sin.default", "nothing"),
    "one more": (lambda _model, x, runs: x.exp() if runs == 1 else x.exp().sin(), "nothing", "sin.default"),
    "tensor": (lambda model, x, runs: (model.layer(x), x.exp(), x.sin())[runs] + 1, None, None),
    "other input": (lambda model, x, runs: (model.count if runs == 1 else x[0]) * 2, None, None),
    "shape": (lambda _model, x, runs: x.view((2, 3) if runs == 1 else (3, 2)), None, None),
    "size of a list": (lambda _model, x, runs: x.view((2, 3) if runs == 1 else (6,)), None, None),
    "returned value": (lambda _model, x, runs: (x * 2, runs), 1, 2),
    "returned tensor": (lambda _model, x, runs: Pair(x, (x * 2, x)[runs - 1]), None, None),
    "swallowed": (swallow, 1, 2),
    "translated": (translate, 1, 2),
}


@pytest.mark.parametrize(("function", "before", "after"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_a_run_does_otherwise_is_found(function, before, after):
    is_same, difference = run_twice(function)

    assert not is_same
    assert before is None or (difference.before, difference.after) == (before, after)


def test_another_mode_is_found():
    model, first = Model(change_mode), FirstRun()
    capture_step(model, [torch.ones(2, 3), torch.ones(2)], loss=lambda out, _label: out.sum(), first_run=first)

    is_same, difference = first.follow()

    assert (is_same, difference.changes_operators) == (False, True)


def test_the_line_is_that_of_the_first_run():
    _is_same, difference = run_twice(lambda _model, x, runs: x * torch.tensor(float(runs)))

    assert difference.place.file == __file__


CACHE = {}


def cache_result(_model, x, _runs):
    hidden = x * 2
    return CACHE.setdefault("hidden", hidden) + 1


@pytest.mark.parametrize("function", [cache_result])
def test_tensors_of_the_first_run_are_of_no_use(function):
    CACHE.clear()

    assert run_twice(function)[0] is False


@pytest.mark.parametrize(
    "function",
    [
        lambda _model, x, _runs: x.clone().unsqueeze_(0) * 2,
        lambda _model, x, _runs: _try(lambda: x.view(5)) or x * 2,
    ],
    ids=["turned in place", "a call that failed"],
)
def test_what_cannot_be_repeated_is_not_followed(function):
    assert run_twice(function) == (False, None)


def _try(function):
    try:
        return function()
    except RuntimeError:
        return None


def test_an_error_of_the_second_run_comes_through():
    def once(_model, x, runs):
        if runs > 1:
            raise KeyError("only once")
        return x * 2

    with pytest.raises(KeyError):
        run_twice(once)


def test_the_model_is_as_before():
    model, first = Model(count_in_place), FirstRun()
    state = {name: id(tensor) for name, tensor in model._parameters.items()}
    capture_step(model, [torch.ones(2, 3)], mode="inference", first_run=first)
    first.follow()

    assert {name: id(tensor) for name, tensor in model._parameters.items()} == state
    assert (model.runs, type(model.count)) == (2, torch.Tensor)


def test_what_was_dropped_is_not_followed():
    model, first = Model(count_in_place), FirstRun()
    capture_step(model, [torch.ones(2, 3)], mode="inference", first_run=first)
    first.drop()

    assert first.follow() == (False, None)
