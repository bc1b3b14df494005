"""A graph as a Python function: one line for each operator, each of which knows where it comes from."""

from __future__ import annotations

import gc
import linecache
import traceback
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.replay.graph_function import GraphFunction


class Body(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def function_of(function, *example):
    return GraphFunction(capture_step(Body(function), example, mode="inference").graph)


def look_up(table, indices):
    chosen = F.embedding(indices, table)
    return chosen.sum()


def test_each_operator_is_one_line():
    function = function_of(lambda x: (x * 2).relu() + 1, torch.ones(3))

    assert [line.split(" = ")[0].strip() for line in function.source.splitlines()[1:-1]] == [
        "mul_tensor",
        "relu_default",
        "add_tensor",
    ]


def test_a_call_returns_the_outputs():
    function = function_of(lambda x: [(x * 2).relu(), x.sum()], torch.ones(3))

    doubled, total = function.call(torch.tensor([1.0, -1.0, 3.0]))

    assert doubled.tolist() == [2.0, 0.0, 6.0]
    assert total == 3.0


def test_values_are_let_go_in_the_line_that_uses_them_last():
    function = function_of(lambda x: torch.cos((x + 1).sin()), torch.ones(3))

    assert [line.partition(";")[2].strip() for line in function.source.splitlines()[1:-1]] == [
        "",
        "del add_tensor",
        "del sin_default",
    ]


def test_values_that_nobody_uses_are_let_go_at_once():
    function = function_of(lambda x: (x.exp(), x.sin())[1], torch.ones(3))

    assert "exp_default = _0(input_0); del exp_default" in function.source


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), 0.1, -0.0, True, None, torch.float16])
def test_any_constant_can_be_an_argument(value):
    function = function_of(lambda x: torch.where(x > 0, x, 0 if value is None else x.to(torch.float32)), torch.ones(3))

    assert function.call(torch.ones(3))[0].tolist() == [1.0, 1.0, 1.0]


def test_infinity_is_an_argument():
    function = function_of(lambda x: x.masked_fill(x > 0, float("-inf")), torch.ones(2))

    assert function.call(torch.tensor([1.0, -1.0]))[0].tolist() == [float("-inf"), -1.0]


def test_parameters_may_have_any_name():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.names = nn.ParameterDict({"0": nn.Parameter(torch.ones(2)), "lambda": nn.Parameter(torch.ones(2))})
            self.a_b = nn.Parameter(torch.ones(2))
            self.a = nn.ParameterDict({"b": nn.Parameter(torch.full((2,), 5.0))})
            self.forward_ = nn.ParameterList([nn.Parameter(torch.ones(2))])

        def forward(self, input_, forward):
            return self.names["0"] * self.names["lambda"] * self.a_b - self.a["b"] + self.forward_[0] + input_ + forward

    model, x = Odd(), torch.ones(2)
    graph = capture_step(model, [x, x], mode="inference")
    tensors = [dict(model.named_parameters())[info.name].detach() for info in graph.parameters]

    assert torch.equal(GraphFunction(graph.graph).call(*tensors, x, x)[0], model(x, x))


def test_parameters_may_be_called_by_numbers():
    class Numbered(nn.Module):
        def __init__(self):
            super().__init__()
            for index in range(4):
                self.register_parameter(str(index), nn.Parameter(torch.full((2,), float(index))))

        def forward(self, x):
            zero, one, two, three = self.parameters()
            return x + zero * one + two * 3 + three

    model = Numbered()
    graph = capture_step(model, [torch.ones(2)], mode="inference")

    (result,) = GraphFunction(graph.graph).call(*(p.detach() for p in model.parameters()), torch.ones(2))

    assert result.tolist() == [10.0, 10.0]


def test_an_error_of_an_operator_leads_to_the_users_line():
    function = function_of(look_up, torch.ones(3, 2), torch.tensor([0, 1]))

    with pytest.raises(IndexError) as caught:
        function.call(torch.ones(3, 2), torch.tensor([0, 7], dtype=torch.int32))

    place = function.find_place(caught.value.__traceback__)
    assert linecache.getline(place.file, place.line).strip() == "chosen = F.embedding(indices, table)"


def test_an_error_elsewhere_has_no_place():
    function = function_of(look_up, torch.ones(3, 2), torch.tensor([0, 1]))

    with pytest.raises(ZeroDivisionError) as caught:
        _ = 1 / 0

    assert function.find_place(caught.value.__traceback__) is None


def test_a_traceback_shows_the_line_of_the_function():
    function = function_of(look_up, torch.ones(3, 2), torch.tensor([0, 1]))

    with pytest.raises(IndexError) as caught:
        function.call(torch.ones(3, 2), torch.tensor([0, 7], dtype=torch.int32))

    assert "embedding_default = " in "".join(traceback.format_tb(caught.value.__traceback__))


def test_a_function_that_is_gone_leaves_no_source_behind():
    function = function_of(look_up, torch.ones(3, 2), torch.tensor([0, 1]))
    file, reference = function._file, weakref.ref(function)
    assert file in linecache.cache

    del function
    gc.collect()

    assert reference() is None
    assert file not in linecache.cache
