"""What a loop on the host asks of a ported call beyond gradients is refused at its line; what helps trains as eager."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.autograd.forward_ad as forward_mode
from torch import nn
from torch.autograd import functional
from torch.func import functional_call

from porting import to_ipu
from porting.diagnostics import CaptureError
from porting.integrations import DeviceCalls, calls_on_host


def make_critic():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


def port(critic, **settings):
    return to_ipu(critic, loop="host", device="sim", **settings)


@pytest.fixture
def ported():
    return port(make_critic())


@pytest.fixture
def x():
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(1), requires_grad=True)


def slope_of(call, x):
    (slope,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    return slope


def penalize(slope):
    return (slope.norm(2, dim=1) - 1).square().mean()


def step_of_maml(call, x):
    weights = dict(call.named_parameters())
    gradients = torch.autograd.grad(call(x).square().mean(), list(weights.values()), create_graph=True)
    return functional_call(call, {name: w - g for (name, w), g in zip(weights.items(), gradients)}, (x,))


def call_with_dual_numbers(call, x):
    with forward_mode.dual_level():
        return forward_mode.unpack_dual(call(forward_mode.make_dual(x.detach(), x.detach()))).tangent


HIGHER = {
    "a penalty on the slope": lambda call, x: penalize(slope_of(call, x)).backward(),
    "a regularizer on the slope at the data": lambda call, x: slope_of(call, x).square().sum().backward(),
    "the residual of an equation": lambda call, x: torch.autograd.grad(slope_of(call, x).sum(), x),
    "a step of MAML": step_of_maml,
    "a backward pass to be differentiated": lambda call, x: call(x).sum().backward(create_graph=True),
    "a product with the Hessian": lambda call, x: functional.hvp(lambda x: call(x).sum(), x, x.detach()),
    "a Hessian": lambda call, x: functional.hessian(lambda x: call(x).sum(), x),
    "a Jacobian to be differentiated": lambda call, x: functional.jacobian(call, x, create_graph=True),
    "a product with the Jacobian": lambda call, x: functional.jvp(call, x, x.detach()),
}
OTHER = {
    "forward mode": call_with_dual_numbers,
    "a Jacobian at once": lambda call, x: functional.jacobian(call, x.detach(), vectorize=True),
    "torch.func.grad": lambda call, x: torch.func.grad(lambda x: call(x).sum())(x),
    "torch.func.vmap": lambda call, x: torch.func.vmap(call)(x),
    "torch.func.jacrev": lambda call, x: torch.func.jacrev(call)(x),
    "torch.func.jvp": lambda call, x: torch.func.jvp(call, (x,), (x,)),
    "weights of the call": lambda call, x: functional_call(call, {"0.weight": torch.zeros(8, 4)}, (x,)),
}


@pytest.mark.parametrize("ask", [*HIGHER.values(), *OTHER.values()], ids=[*HIGHER, *OTHER])
def test_what_the_device_does_not_compute_is_refused_at_the_users_line(ask, ported, x):
    with pytest.raises(CaptureError) as caught:
        ask(ported, x)

    assert caught.value.code == "L015"
    assert caught.value.finding.place.file == __file__
    assert "`ported.model" in str(caught.value) or "ported.model, weights" in str(caught.value)


@pytest.mark.parametrize("ask", [*HIGHER.values(), *OTHER.values()], ids=[*HIGHER, *OTHER])
def test_the_plain_model_computes_what_is_refused(ask, ported, x):
    ask(ported.model, x)


@pytest.mark.parametrize("ask", [*HIGHER.values(), *OTHER.values()], ids=[*HIGHER, *OTHER])
def test_a_model_whose_calls_run_on_the_device_refuses_the_same_unless_it_is_called_on_the_host(ask, x):
    model = make_critic()

    with DeviceCalls(model, device="sim").active():
        with pytest.raises(CaptureError, match="L015"):
            ask(model, x)
        with calls_on_host():
            ask(model, x)


def test_a_second_backward_pass_without_its_graph_is_refused_with_the_line(ported, x):
    loss = ported(x).sum()
    loss.backward()

    with pytest.raises(CaptureError) as caught:
        loss.backward()  # the second one

    assert caught.value.code == "L015"
    assert "# the second one" in str(caught.value)
    assert "retain_graph=True" in caught.value.finding.help[0]


def test_a_backward_pass_is_made_again_where_its_graph_is_kept(ported, x):
    loss = ported(x).square().mean()
    loss.backward(retain_graph=True)
    first = x.grad.clone()

    loss.backward()

    assert torch.equal(x.grad, 2 * first)


def test_gradients_of_gradients_behind_the_ported_call_are_torchs(ported, x):
    def penalty_behind(call, model):
        head, output = make_critic()[2:], call(x).expand(-1, 8)
        (slope,) = torch.autograd.grad(head(output.tanh()).sum(), output, create_graph=True)
        model.zero_grad()
        penalize(slope).backward()
        return [parameter.grad for parameter in model.parameters()]

    plain = copy.deepcopy(ported.model)

    assert all(map(torch.equal, penalty_behind(ported, ported.model), penalty_behind(plain, plain)))


def test_jacobians_of_first_order_are_eagers(ported, x):
    expected = functional.jacobian(copy.deepcopy(ported.model), x)

    assert torch.equal(functional.jacobian(ported, x), expected)


# -- the remedies ----------------------------------------------------------------------------------------------------


def train(model, call, plain, x):
    """Train with a penalty; the score is of `call`, the penalty of `plain`."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(4):
        optimizer.zero_grad()
        (call(x.detach()).mean() + 10 * penalize(slope_of(plain, x))).backward()
        optimizer.step()
    return list(model.parameters())


def test_a_penalty_of_the_plain_model_trains_as_in_eager(x):
    model, eager = make_critic(), make_critic()
    ported = port(model)

    trained = train(model, ported, ported.model, x)

    assert all(map(torch.equal, trained, train(eager, eager, eager, x)))


def test_a_penalty_called_on_the_host_trains_as_in_eager(x):
    def call_on_host(x):
        with calls_on_host():
            return model(x)

    model, eager = make_critic(), make_critic()
    calls = DeviceCalls(model, device="sim")

    with calls.active():
        trained = train(model, model, call_on_host, x)

    assert all(map(torch.equal, trained, train(eager, eager, eager, x)))
    assert calls.reports()[0].executors[0].num_calls == 4


class Penalized(nn.Module):
    """The loss with its penalty in `forward`, by `torch.func` or in the usual way."""

    def __init__(self, find_slope):
        super().__init__()
        self.critic, self.find_slope = make_critic(), find_slope

    def forward(self, x):
        return self.critic(x).mean() + 10 * penalize(self.find_slope(self.critic, x))


def test_a_penalty_by_torch_func_in_forward_trains_as_in_eager(x):
    model = Penalized(lambda critic, x: torch.func.grad(lambda x: critic(x).sum())(x))
    eager = Penalized(slope_of)
    ported = to_ipu(model, optimizer=torch.optim.Adam(model.parameters(), lr=0.01), device="sim")
    optimizer = torch.optim.Adam(eager.parameters(), lr=0.01)

    for _ in range(4):
        ported(x.detach())
        optimizer.zero_grad()
        eager(x).backward()
        optimizer.step()

    assert all(map(torch.equal, model.parameters(), eager.parameters()))


def test_a_penalty_by_autograd_in_forward_is_told_what_works(x):
    model = Penalized(slope_of)

    with pytest.raises(CaptureError) as caught:
        to_ipu(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), device="sim")(x.detach())

    assert caught.value.code == "C007"
    assert "`to_ipu(model, loop='host')`, `ported.model(x)`" in caught.value.finding.help[0]
    assert "torch.func.grad" in caught.value.finding.help[1]


@pytest.mark.parametrize("ask", ["torch.func.grad", "torch.func.vmap"])
@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_port_that_makes_the_steps_refuses_transforms_too(ask, is_compiled, x):
    ported = to_ipu(make_critic(), nn.MSELoss(), device="sim").inference()
    if is_compiled:
        ported(x.detach())

    with pytest.raises(CaptureError, match="L015"):
        OTHER[ask](ported, x)
