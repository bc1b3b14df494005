"""What is compiled for a device already runs as it is where `torch.compile` comes upon it."""

from __future__ import annotations

import warnings

import pytest
import torch

from porting.support.uncompiled_code import keep_class_uncompiled, keep_uncompiled


@pytest.fixture(autouse=True)
def _torch_loads_its_compiler():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch._dynamo
    yield
    torch._dynamo.reset()


def count_graphs(function, *args):
    """Call the compiled `function`, and return what it returns with the number of graphs that were compiled."""
    graphs = []

    def note(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    return torch.compile(function, backend=note)(*args), len(graphs)


def inner(x):
    return x.sin()


@keep_uncompiled
def kept(x):
    return inner(x) + (1 if x.sum().item() > 0 else 2)


@keep_class_uncompiled
class Kept:
    def __call__(self, x):
        return inner(x)

    def read(self, x):
        return inner(x)

    def _read_within(self, x):
        return inner(x)


def test_neither_the_function_nor_what_it_calls_is_compiled():
    result, num_graphs = count_graphs(lambda x: kept(x), torch.ones(2))

    assert torch.equal(result, torch.ones(2).sin() + 1)
    assert num_graphs == 0


def test_what_is_around_it_is_compiled():
    result, num_graphs = count_graphs(lambda x: kept(x * 2) * 3, torch.ones(2))

    assert torch.equal(result, (torch.tensor([2.0, 2.0]).sin() + 1) * 3)
    assert num_graphs == 2


def test_what_it_calls_is_compiled_where_others_call_it():
    kept(torch.ones(2))

    assert count_graphs(lambda x: inner(x), torch.ones(2))[1] == 1


@pytest.mark.parametrize(
    ("name", "num_graphs"), [("__call__", 0), ("read", 0), ("_read_within", 1)], ids=["call", "public", "private"]
)
def test_of_a_class_it_is_the_call_and_the_public_methods(name, num_graphs):
    method = getattr(Kept(), name)

    result, num_compiled = count_graphs(lambda x: method(x), torch.ones(2))

    assert torch.equal(result, torch.ones(2).sin())
    assert num_compiled == num_graphs


def test_a_full_graph_is_refused_with_the_reason():
    with pytest.raises(torch._dynamo.exc.Unsupported, match="compiled for a device already"):
        torch.compile(lambda x: kept(x), backend="eager", fullgraph=True)(torch.ones(2))


def test_a_torch_without_such_a_mark_is_left_as_it_is(monkeypatch):
    monkeypatch.setattr("porting.torch_insides.compiler._choose", None)

    def function(x):
        return x

    assert keep_uncompiled(function) is function
    assert not vars(function)
