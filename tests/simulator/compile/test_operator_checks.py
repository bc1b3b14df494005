"""Operators that the device lacks are refused when a model is compiled, in PopTorch's words and with a finding."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException

from ..operator_cases.refused import LACKING, REFUSED

COVERAGE = Path(__file__).parents[3] / "shared" / "spec" / "op-coverage.json"

# Listed as unsupported, and yet compositions of what the device has, or told apart by how they are called.
COMPOSED = set(
    "torch.conj torch.real torch.imag torch.lerp torch.deg2rad torch.rad2deg torch.ldexp torch.nn.LPPool1d "
    "torch.nn.LPPool2d torch.nn.LocalResponseNorm torch.nn.SyncBatchNorm torch.nn.utils.spectral_norm "
    "torch.nn.TripletMarginWithDistanceLoss".split()
)
# Automatic differentiation in `forward`, and a layer that needs it: test_tracing.py.
AUTOGRAD = set(
    "torch.autograd.Function torch.autograd.grad torch.Tensor.backward torch.nn.CrossMapLRN2d "
    "torch.nn.AdaptiveLogSoftmaxWithLoss".split()
)


class Weighted(nn.Module):
    """A call on a parameter."""

    def __init__(self, call, *shape):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.1, 2.0, torch.Size(shape).numel()).reshape(shape))
        self.call = call

    def forward(self):
        return self.call(self.weight)


def compiled(poptorch, call, *shape):
    executor = poptorch.inferenceModel(Weighted(call, *shape))
    executor.compile()
    return executor


@pytest.mark.parametrize("name", LACKING)
def test_operators_that_the_device_lacks_are_named(poptorch, name):
    call, shape, operator = LACKING[name]

    with pytest.raises(poptorch.Error) as caught:
        compiled(poptorch, call, *shape)

    assert f"Unsupported ops found in compiled model: [aten::{operator}]. Not all operations" in str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_calls_that_the_device_refuses_are_answered_in_its_words(poptorch, name):
    make, shape, message = REFUSED[name]

    with pytest.raises(poptorch.Error) as caught:
        compiled(poptorch, make(), *shape)

    assert message in str(caught.value)


def test_all_lacking_operators_are_named_at_once(poptorch):
    with pytest.raises(poptorch.Error) as caught:
        compiled(poptorch, lambda x: torch.lgamma(torch.sinc(torch.lgamma(x))), 4)

    assert "[aten::lgamma, aten::sinc]" in str(caught.value)


def test_a_refusal_is_a_finding_with_a_place_and_a_remedy():
    import porting.simulator as simulator

    with pytest.raises(simulator.Error) as caught:
        compiled(simulator, lambda x: F.huber_loss(x, x), 4)

    finding = caught.value.finding
    assert finding.code == "C017"
    assert finding.place.file.endswith("test_operator_checks.py")
    assert "smooth_l1_loss" in finding.help[0]


@pytest.mark.parametrize(
    ("model", "inputs", "remedy"),
    [
        (nn.LSTM(4, 4, num_layers=2), [torch.ones(3, 1, 4)], "one layer after the other"),
        (nn.GRU(4, 4, bidirectional=True), [torch.ones(3, 1, 4)], "a second layer on `x.flip(0)`"),
        (nn.CrossEntropyLoss(torch.ones(4)), [torch.ones(1, 4), torch.tensor([1])], "weigh the samples"),
    ],
    ids=["layers", "directions", "class weights"],
)
def test_a_refused_call_of_a_known_operator_names_the_remedy(model, inputs, remedy):
    import porting.simulator as simulator

    with pytest.raises(simulator.Error) as caught:
        simulator.inferenceModel(model).compile(*inputs)

    assert remedy in caught.value.finding.help[0]


class Called(nn.Module):
    """The same as `Weighted` with an input, which a port needs."""

    def __init__(self, call, *shape):
        super().__init__()
        self.inner = Weighted(call, *shape)

    def forward(self, _x):
        return self.inner()


ALL = {**LACKING, **{name: (make(), shape, message) for name, (make, shape, message) in REFUSED.items()}}
# a port answers assignments with steps, which in a graph look like writes to a view
UNTOLD = {"a write to every other row"}


def find_help(compile):
    """Return the help of the error C017 that `compile()` raises; None for another error or none."""
    import porting.simulator as simulator
    from porting import PortingError

    try:
        compile()
    except (simulator.Error, PortingError) as error:
        return " ".join(error.finding.help) if error.finding.code == "C017" else None
    return None


@pytest.mark.parametrize("name", sorted(ALL.keys() - UNTOLD))
@pytest.mark.filterwarnings("ignore")
def test_the_help_names_ports_where_a_port_has_an_answer(name):
    import porting.simulator as simulator
    from porting import to_ipu

    call, shape, _operator = ALL[name]
    x = torch.ones(1)

    plain = find_help(lambda: simulator.inferenceModel(Called(call, *shape)).compile(x))
    ported = find_help(lambda: to_ipu(Called(call, *shape), device="sim").inference().compile(x))

    assert plain is None or ("`porting.to_ipu(model)` computes it" in plain) == (ported is None)
    assert "to_ipu(model)" not in (ported or "")


def test_a_finding_says_that_the_request_to_report_is_not_meant(poptorch):
    with pytest.raises(poptorch.Error, match="please report(.|\n)*PopTorch's text: there is nothing to report"):
        compiled(poptorch, torch.inverse, 2, 2)


def test_reading_with_a_mask_raises_the_exception_of_torch(poptorch):
    with pytest.raises(DynamicOutputShapeException):
        compiled(poptorch, lambda x: x[x > 0], 4)


def test_reading_with_a_mask_says_what_to_do_instead():
    import porting.simulator as simulator

    with pytest.raises(simulator.Error) as caught:
        compiled(simulator, lambda x: x[x > 0], 4)

    first_line, *explanation = str(caught.value).splitlines()
    assert first_line.startswith("Operations using aten::nonzero are unsupported")
    assert any("torch.where" in line for line in explanation)
    assert caught.value.args == (str(caught.value),)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x * torch.triu(torch.ones(4, 4)),
        lambda x: x * torch.ones(4, 4).tril_(),
        lambda x: x * torch.diag(torch.arange(4)),
        lambda x: x * torch.tensor([1, 2]).repeat_interleave(2),
        lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]).lgamma(),
    ],
)
def test_constants_are_computed_with_any_operator(poptorch, call):
    model = Weighted(call, 4, 4)

    result = poptorch.inferenceModel(model)()

    torch.testing.assert_close(result, model().detach())


def test_what_was_a_constant_is_none_after_a_write(poptorch):
    with pytest.raises(poptorch.Error, match="only supported within constant expressions"):
        compiled(poptorch, lambda x: torch.ones(4, 4).add_(x).triu_(), 4, 4)


def test_random_numbers_are_no_constants(poptorch):
    with pytest.raises(poptorch.Error, match="only supported within constant expressions"):
        compiled(poptorch, lambda x: x + torch.rand(4, 4).triu(), 4, 4)


def test_label_smoothing_is_left_out(poptorch):
    model = Weighted(lambda x: F.cross_entropy(x, torch.tensor([1, 2]), label_smoothing=0.3), 2, 4)

    loss = poptorch.inferenceModel(model)()

    torch.testing.assert_close(loss, F.cross_entropy(model.weight.detach(), torch.tensor([1, 2])))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_reflected_padding_has_no_gradient(poptorch, mode):
    def padded(x):
        return poptorch.identity_loss(F.pad(x, (1, 1), mode).sum(), "none")

    model = Weighted(padded, 2, 4)
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1))

    with pytest.raises(poptorch.Error, match="only supported in inference"):
        executor()


def test_attention_may_unflatten_its_projection(poptorch):
    attention = nn.MultiheadAttention(4, 2)
    x = torch.rand(3, 2, 4)

    result, _weights = poptorch.inferenceModel(attention)(x, x, x)

    torch.testing.assert_close(result, attention(x, x, x)[0].detach())


def test_a_refused_model_is_as_before(poptorch):
    model = Weighted(torch.lgamma, 4)
    weight = model.weight

    with pytest.raises(poptorch.Error):
        poptorch.inferenceModel(model)()

    assert model.weight is weight
    assert torch.equal(model(), torch.lgamma(weight))


def test_the_tables_cover_what_is_known_to_be_unsupported():
    if not COVERAGE.is_file():
        pytest.skip(f"no list of operators: {COVERAGE} does not exist")
    listed = json.loads(COVERAGE.read_text("utf-8"))
    unsupported = {
        name for name, entry in listed.items() if entry.get("status") == "unsupported" and name.startswith("torch.")
    }

    assert unsupported - set(LACKING) - set(REFUSED) - COMPOSED - AUTOGRAD == set()
