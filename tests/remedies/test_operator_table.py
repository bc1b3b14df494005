"""Operators that the device lacks train as in plain PyTorch, and a program adds its own."""

from __future__ import annotations

from typing import List

import pytest
import torch
from torch import nn

import porting
from porting.remedies import list_substitutes
from porting.remedies.operator_table import name_target, order_substitutes
from tests.remedies.operator_cases import FUNCTIONS, MODULES, make_input, make_model

# torch says so of even kernels
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")


def train_plainly(model: nn.Module, x: torch.Tensor) -> List[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _step in range(3):
        optimizer.zero_grad()
        loss = model(x)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", [*FUNCTIONS, *MODULES])
def test_an_operator_computed_by_others_trains_like_plain(name):
    x = make_input()
    plain = train_plainly(make_model(name), x)

    model = make_model(name)
    ported = porting.to_ipu(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), device="sim")
    losses = [float(ported(x)) for _step in range(3)]

    assert losses == pytest.approx(plain, rel=1e-5, abs=1e-7)
    assert "C025" in {finding.code for finding in ported.report().findings}


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", [*FUNCTIONS, *MODULES])
def test_an_operator_computed_by_others_infers_like_plain(name):
    x = make_input()

    value = porting.to_ipu(make_model(name), device="sim").inference()(x)

    assert float(value) == pytest.approx(make_model(name)(x).item(), rel=1e-5)


def test_without_substitutes_the_device_refuses():
    model = make_model("LSTM of 2 layers")
    ported = porting.to_ipu(model, options=porting.PortOptions(without_remedies=["all"]), device="sim")

    with pytest.raises(porting.PortingError, match="lstm"):
        ported(make_input())


def test_initial_states_reach_each_layer_and_direction():
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.layers = nn.LSTM(6, 5, num_layers=2, bidirectional=True, batch_first=True)

        def forward(self, x, h, c):
            output, (h, c) = self.layers(x, (h.transpose(0, 1), c.transpose(0, 1)))
            return output, h.transpose(0, 1), c.transpose(0, 1)

    x, h, c = make_input(), torch.randn(3, 4, 5), torch.randn(3, 4, 5)
    with torch.no_grad():
        plain = Stateful().eval()(x, h, c)

    results = porting.to_ipu(Stateful(), device="sim").inference()(x, h, c)

    assert [tuple(result.shape) for result in results] == [(3, 4, 10), (3, 4, 5), (3, 4, 5)]
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(results, plain))


def test_one_layer_is_left_to_the_device():
    class Plain(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LSTM(6, 5)

        def forward(self, x):
            return self.layer(x)[0].pow(2).mean()

    ported = porting.to_ipu(Plain(), device="sim")
    ported(make_input())

    assert "C025" not in {finding.code for finding in ported.report().findings}


# -- a program's own ---------------------------------------------------------------------------------------------------


class Cubed(nn.Module):
    """A module that reads a value on the host."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x):
        return self.layer(x) * (1.0 if x.sum().item() > 1e9 else 3.0)


def test_a_module_is_computed_by_a_function_of_its_own():
    class Own(Cubed):
        pass

    @porting.op(Own)
    def triple(module, x):
        return module.layer(x) * 3.0

    model = nn.Sequential(Own(), nn.Linear(6, 2))
    x = make_input()

    value = porting.to_ipu(model, device="sim").inference()(x)

    assert torch.allclose(value, model(x), atol=1e-6)
    assert Own.forward is Cubed.forward


def test_fallback_leaves_the_call_to_the_next():
    @porting.op(torch.special.entr, name="all")
    def entropy(x):
        return -x * torch.log(x)

    @porting.op(torch.special.entr, name="of two dimensions")
    def entropy_of_matrices(x):
        return -x * torch.log(x) * 2 if x.dim() == 2 else porting.Fallback

    class Entropy(nn.Module):
        def forward(self, x):
            return torch.special.entr(x)

    x = torch.rand(2, 3, 4) + 0.1
    of_three = porting.to_ipu(Entropy(), device="sim").inference()(x)
    of_two = porting.to_ipu(Entropy(), device="sim").inference()(x[0])

    assert torch.allclose(of_three, torch.special.entr(x))
    assert torch.allclose(of_two, 2 * torch.special.entr(x[0]))
    assert [entry.name for entry in order_substitutes(torch.special.entr)[:2]] == ["of two dimensions", "all"]


class Spread(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return torch.linalg.eigvalsh(self.layer(x))


@pytest.fixture
def host_eigenvalues():
    @porting.op(torch.linalg.eigvalsh, host=True)
    def compute(x, UPLO="L"):  # noqa: N803 - torch's spelling
        return torch.linalg.eigvalsh(x, UPLO)


def test_the_host_computes_in_inference_and_says_what_it_costs(host_eigenvalues):
    x = torch.randn(3, 4, 4)
    ported = porting.to_ipu(Spread(), device="sim")

    with pytest.warns(porting.PortingWarning, match="192 bytes go there and 48 come back"):
        values = ported.inference()(x)

    assert torch.allclose(values, Spread()(x), atol=1e-5)
    assert "C024" in str(ported.report())


def test_the_host_has_no_gradient_for_training(host_eigenvalues):
    ported = porting.to_ipu(Spread(), nn.MSELoss(), device="sim")

    with pytest.raises(porting.PortingError, match="C024.*has no gradient"):
        ported(torch.randn(3, 4, 4), torch.randn(3, 4))


def test_strict_refuses_the_host(host_eigenvalues):
    ported = porting.to_ipu(Spread(), options=porting.PortOptions(strict=True), device="sim")

    with pytest.raises(porting.PortingError, match="`strict` allows none"):
        ported.inference()(torch.randn(3, 4, 4))


@pytest.mark.parametrize("target", [3, "no path", nn.Module, len.__class__, lambda x: x])
def test_what_torch_does_not_call_cannot_be_substituted(target):
    with pytest.raises(porting.PortingError, match="cannot substitute"):
        porting.op(target)


def test_an_operator_needs_a_target():
    with pytest.raises(porting.PortingError, match="no target"):
        porting.op()


def test_plain_calls_stay_as_they_are():
    x = torch.randn(3, 4)

    porting.to_ipu(make_model("tril"), device="sim").inference()(make_input())

    assert torch.equal(x.tril(), torch.tril(x))
    assert not isinstance(x[x > 0], tuple)


def test_targets_have_the_names_that_a_program_calls_them_by():
    assert name_target(torch.xlogy) == "torch.xlogy"
    assert name_target(torch.Tensor.xlogy) == "torch.Tensor.xlogy"
    assert name_target(torch.linalg.svdvals) == "torch.linalg.svdvals"
    assert name_target("library.module:Class.method") == "library.module:Class.method"


def test_all_substitutes_can_be_listed():
    names = {entry.name for entry in list_substitutes()}

    assert {"torch.lstm", "torch.tril", "F.pad", "torch.Tensor.__getitem__"} <= names
