"""Precision: what is cast, what is converted, and what is refused."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.adapters.loss import LossInForward
from porting.adapters.precision import apply_precision, cast_floats, cast_weights
from porting.diagnostics import OptionError, Severity
from porting.options import PortOptions

X = torch.linspace(-1, 1, 24).reshape(6, 4)
Y = torch.tensor([0, 1, 2, 0, 1, 2])
Pair = namedtuple("Pair", ["first", "second"])


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


def train(model, poptorch, precision):
    plan = apply_precision(model, PortOptions(precision=precision), poptorch)
    wrapped = LossInForward(
        model, nn.CrossEntropyLoss(), backend=poptorch, input_dtype=plan.input_dtype, loss_dtype=plan.loss_dtype
    )
    executor = poptorch.trainingModel(wrapped, optimizer=poptorch.optim.SGD(wrapped.parameters(), lr=0.1))
    result = executor(X, Y)
    executor.destroy()
    return result


def test_float32_changes_nothing(model, poptorch):
    plan = apply_precision(model, PortOptions(), poptorch)

    assert (plan.input_dtype, plan.loss_dtype, plan.findings) == (None, None, ())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_float16_converts_the_weights_and_says_so(model, poptorch):
    before = list(model.parameters())

    plan = apply_precision(model, PortOptions(precision="float16"), poptorch)

    assert [id(parameter) for parameter in model.parameters()] == [id(parameter) for parameter in before]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float16}
    assert [finding.code for finding in plan.findings] == ["P003"]
    assert plan.findings[0].severity is Severity.NOTE
    assert "4 parameters and buffers with 43 elements" in plan.findings[0].notes[0]


def test_weights_that_are_half_already_are_no_news(model, poptorch):
    plan = apply_precision(model.half(), PortOptions(precision="float16"), poptorch)

    assert plan.findings == ()
    assert plan.input_dtype == torch.float16


def test_bfloat16_is_refused_where_the_backend_lacks_it_before_anything_changes(model):
    vendor = SimpleNamespace(__name__="vendor", Options=object)

    with pytest.raises(OptionError, match="P001"):
        apply_precision(model, PortOptions(precision="bfloat16"), vendor)

    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_bfloat16_leaves_weights_and_inputs_to_the_backend_and_says_so(model, poptorch):
    plan = apply_precision(model, PortOptions(precision="bfloat16"), poptorch)

    assert (plan.input_dtype, plan.loss_dtype, plan.output_dtype) == (None, None, torch.float32)
    assert [(finding.code, finding.severity) for finding in plan.findings] == [("P006", Severity.NOTE)]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_a_float16_step_computes_in_half_and_the_loss_in_single(model, poptorch):
    expected = F.cross_entropy(model(X), Y)

    output, loss = train(model, poptorch, "float16")

    assert (output.dtype, loss.dtype) == (torch.float16, torch.float32)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float16}
    torch.testing.assert_close(loss, expected.detach(), rtol=2e-3, atol=2e-3)


def test_a_mixed_step_computes_in_half_and_keeps_single_weights(model, poptorch):
    expected = F.cross_entropy(model(X), Y)
    before = model[0].weight.detach().clone()

    output, loss = train(model, poptorch, "mixed")

    assert (output.dtype, loss.dtype) == (torch.float16, torch.float32)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not torch.equal(model[0].weight, before)
    torch.testing.assert_close(loss, expected.detach(), rtol=2e-3, atol=2e-3)


def test_only_floats_inside_containers_are_cast():
    value = {"a": [torch.ones(1), 2, None], "b": (torch.ones(1, dtype=torch.int64), Pair(torch.ones(1), "text"))}

    cast = cast_floats(value, torch.float16)

    assert cast["a"][0].dtype == cast["b"][1].first.dtype == torch.float16
    assert cast["b"][0].dtype == torch.int64
    assert (cast["a"][1:], cast["b"][1].second) == ([2, None], "text")
    assert value["a"][0].dtype == torch.float32


@pytest.mark.parametrize("value", [OrderedDict(a=torch.ones(1)), defaultdict(list, a=torch.ones(1))])
def test_dictionaries_keep_their_kind(value):
    cast = cast_floats(value, torch.float16)

    assert type(cast) is type(value)
    assert cast["a"].dtype == torch.float16


class Words(nn.Module):
    """A model whose inputs are integers, as those of language models."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.linear = nn.Linear(4, 3)

    def forward(self, tokens):
        return self.linear(self.embedding(tokens))


def test_a_mixed_step_computes_in_half_from_the_embeddings_on(poptorch):
    torch.manual_seed(0)
    model, tokens = Words(), torch.tensor([0, 4, 2, 2])
    plan = apply_precision(model, PortOptions(precision="mixed"), poptorch)
    wrapped = LossInForward(
        model, nn.CrossEntropyLoss(), backend=poptorch, input_dtype=plan.input_dtype, loss_dtype=plan.loss_dtype
    )
    executor = poptorch.trainingModel(wrapped, optimizer=poptorch.optim.SGD(wrapped.parameters(), lr=0.1))

    output, loss = executor(tokens, torch.tensor([0, 1, 2, 1]))

    executor.destroy()
    assert (output.dtype, loss.dtype) == (torch.float16, torch.float32)
    assert model.embedding.weight.dtype == torch.float32


def test_embeddings_give_floats_again_when_the_context_ends():
    model = Words()

    with cast_weights(model, torch.float16):
        assert model.embedding(torch.tensor([1])).dtype == torch.float16

    assert model.embedding(torch.tensor([1])).dtype == torch.float32


class Tied(nn.Module):
    """Tokens in, tokens out by the embedding's own table; a float32 buffer and a float32 parameter on the way."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.position = nn.Parameter(torch.randn(4))
        self.register_buffer("offset", torch.randn(4))
        self.inner = nn.Linear(4, 4)
        self.seen = []

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position
        self.seen = [str(x.dtype)]
        x = self.inner(x + self.offset)
        self.seen.append(str(x.dtype))
        return F.linear(x, self.embedding.weight)


def test_a_tied_table_a_parameter_and_a_buffer_do_not_end_half_precision():
    torch.manual_seed(0)
    model = Tied()

    with cast_weights(model, torch.float16):
        output = model(torch.tensor([0, 4, 2]))

    assert (output.dtype, model.seen) == (torch.float16, ["torch.float16", "torch.float16"])


def test_gradients_reach_the_float32_weights():
    torch.manual_seed(0)
    model, tokens = Tied(), torch.tensor([0, 4, 2])
    weights = list(model.parameters())
    expected = torch.autograd.grad(model(tokens).sum(), weights)

    with cast_weights(model, torch.float64):
        found = torch.autograd.grad(model(tokens).sum(), weights)

    torch.testing.assert_close(found, expected)


def test_a_weight_of_two_modules_is_cast_once():
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight

    with cast_weights(nn.Sequential(first, second), torch.float16):
        assert first.weight is second.weight
        assert first.weight.dtype == torch.float16


def test_recurrent_layers_use_the_casts(poptorch):
    torch.manual_seed(0)
    layer, x = nn.LSTM(3, 2), torch.randn(4, 1, 3)
    expected = layer.double()(x.double())[0].float()
    layer.float()

    with cast_weights(layer, torch.float64):
        found = layer(x)[0]

    assert found.dtype == torch.float64
    torch.testing.assert_close(found.float(), expected)
    assert layer(x)[0].dtype == torch.float32


def test_the_weights_are_back_after_an_error():
    model = nn.Sequential(nn.Embedding(3, 2), nn.LSTM(2, 2))
    before = [*model.parameters()]

    with pytest.raises(IndexError), cast_weights(model, torch.float16):
        model(torch.tensor([[7]]))

    assert all(one is other for one, other in zip(model.parameters(), before))
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())


def test_a_mixed_convolution_with_a_bias_gets_operands_of_one_type(poptorch):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    plan = apply_precision(model, PortOptions(precision="mixed"), poptorch)
    wrapped = LossInForward(
        model, nn.CrossEntropyLoss(), backend=poptorch, input_dtype=plan.input_dtype, loss_dtype=plan.loss_dtype
    )
    executor = poptorch.trainingModel(wrapped, optimizer=poptorch.optim.SGD(wrapped.parameters(), lr=0.1))

    output, loss = executor(torch.randn(6, 1, 4, 4), Y)

    executor.destroy()
    assert (output.dtype, loss.dtype) == (torch.float16, torch.float32)
    assert model[1].running_mean.dtype == torch.float32
