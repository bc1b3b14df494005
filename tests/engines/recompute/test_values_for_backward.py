"""Values that `forward` writes over are still there for the gradient: on the device a write makes a new value."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.recompute.values_for_backward import collect_nodes_with_gradient, list_trained_parameters

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])


class Writing(nn.Module):
    """One weight per column; `compute(product, x, buffer)` gives what the loss is the sum of."""

    def __init__(self, poptorch, compute):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0]))
        self.register_buffer("state", torch.tensor([2.0, 3.0, 4.0]))
        self.compute = compute
        self.mark_loss = poptorch.identity_loss

    def forward(self, x):
        return self.mark_loss(self.compute(x * self.weight, x, self.state), "sum")


def change_of_weights(poptorch, compute):
    model = Writing(poptorch, compute)
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))
    executor(X.clone())
    return torch.tensor([1.0, 2.0, 3.0]) - model.weight.detach()


def gradient_of(compute):
    """Return the gradient of a function that writes to nothing."""
    weight = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    compute(X * weight, X, torch.tensor([2.0, 3.0, 4.0])).sum().backward()
    return weight.grad


def writes_to_the_buffer(product, _x, state):
    result = product * state
    state += 1
    return result


def writes_to_the_input(product, x, _state):
    x += 1
    return product


def writes_to_a_view_of_the_input(product, x, _state):
    x.t()[1].zero_()
    return product


def writes_to_a_factor(product, _x, _state):
    square = product * product
    product += 1
    return square + product


def writes_to_a_result(product, _x, _state):
    result = torch.sigmoid(product)
    result[0] = 0.0
    result *= 2
    return result


def writes_twice_in_place(product, _x, _state):
    product.sigmoid_()
    product[1].tanh_()
    product += 1
    return product


def without_writes_twice_in_place(product, _x, _state):
    first, second = product.sigmoid().unbind()
    return torch.stack([first, second.tanh()])


def writes_to_one_of_several_views(product, _x, _state):
    one, other = product.chunk(2)
    one *= other
    return torch.cat([one, other])


def without_writing_to_views(product, _x, _state):
    one, other = product.chunk(2)
    return torch.cat([one * other, other])


def writes_row_by_row(product, _x, _state):
    for number, row in enumerate(product.unbind()):
        row *= number + 1
    return product


@pytest.mark.parametrize(
    ("writing", "pure"),
    [
        (writes_to_the_buffer, lambda product, _x, state: product * state),
        (writes_to_the_input, lambda product, _x, _state: product),
        (writes_to_a_view_of_the_input, lambda product, _x, _state: product),
        (writes_to_a_factor, lambda product, _x, _state: product * product + product),
        (writes_to_a_result, lambda product, _x, _state: 2 * torch.sigmoid(product)[1]),
        (writes_twice_in_place, without_writes_twice_in_place),
        (writes_to_one_of_several_views, without_writing_to_views),
        (writes_row_by_row, lambda product, _x, _state: product * torch.tensor([[1.0], [2.0]])),
    ],
    ids=lambda function: function.__name__.strip("<>"),
)
def test_the_gradient_is_that_of_the_values_before_the_write(poptorch, writing, pure):
    change = change_of_weights(poptorch, writing)

    torch.testing.assert_close(change, gradient_of(pure))


def test_what_is_written_arrives_all_the_same(poptorch):
    model = Writing(poptorch, writes_to_the_buffer)
    executor = poptorch.trainingModel(model, poptorch.Options().deviceIterations(2))

    executor(X.clone())

    assert model.state.tolist() == [4.0, 5.0, 6.0]


def test_an_input_that_is_written_to_after_its_use_comes_back(poptorch):
    x = X.clone()
    executor = poptorch.trainingModel(Writing(poptorch, writes_to_the_input))

    executor(x)

    assert torch.equal(x, X + 1)


# -- buffers that trained values are written to


def adds_to_the_buffer(product, _x, state):
    state += product.sum(0)
    return state * 1


def replaces_the_buffer(product, _x, state):
    state.copy_(product[0])
    return product


@pytest.mark.parametrize("writing", [adds_to_the_buffer, replaces_the_buffer], ids=lambda function: function.__name__)
def test_a_buffer_may_get_trained_values(poptorch, writing):
    model = Writing(poptorch, writing)
    reference = Writing(poptorch, writing)
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    options = poptorch.Options().deviceIterations(2)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))

    for _ in range(2):
        executor(torch.cat([X, X + 1]))
        for x in (X, X + 1):
            optimizer.zero_grad()
            reference(x).backward()
            optimizer.step()
            reference.state = reference.state.detach()

    torch.testing.assert_close(model.weight.detach(), reference.weight.detach())
    torch.testing.assert_close(model.state.detach(), reference.state)


def test_a_buffer_with_trained_values_has_no_history(poptorch):
    model = Writing(poptorch, adds_to_the_buffer)
    executor = poptorch.trainingModel(model)

    executor(X.clone())

    assert not model.state.requires_grad


VIEWS = {
    "hsplit": lambda product: torch.hsplit(product, 3)[0],
    "vsplit": lambda product: torch.vsplit(product, 2)[0],
    "dsplit": lambda product: torch.dsplit(product[None], 3)[0],
    "tensor split": lambda product: product.tensor_split(2)[0],
    "chunk": lambda product: product.chunk(2)[0],
    "unbind": lambda product: product.unbind()[0],
    "at least two dimensions": torch.atleast_2d,
    "broadcast": lambda product: torch.broadcast_tensors(product, product)[0],
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_written_to_one_of_several_views_arrives(poptorch, name):
    def tripled(product, _x, _state):
        VIEWS[name](product).mul_(3)
        return product

    factors = torch.ones_like(X)
    VIEWS[name](factors).mul_(3)

    torch.testing.assert_close(change_of_weights(poptorch, tripled), (X * factors).sum(0))


@pytest.mark.parametrize(
    ("written", "pure"),
    [
        (lambda product, _x, _state: product.pow_(2).mul_(3), lambda product, _x, _state: 3 * product**2),
        (lambda product, _x, _state: product.mul_(product).mul_(3), lambda product, _x, _state: 3 * product**2),
        (lambda product, _x, _state: product.sigmoid_().mul_(3), lambda product, _x, _state: 3 * product.sigmoid()),
    ],
    ids=["power", "product with itself", "sigmoid"],
)
def test_operators_in_place_keep_what_their_gradient_needs(poptorch, written, pure):
    torch.testing.assert_close(change_of_weights(poptorch, written), gradient_of(pure))


class Branches(nn.Module):
    """A loss of one weight; another is detached, a third frozen, a fourth leads to an output only."""

    def __init__(self):
        super().__init__()
        for name in ("trained", "detached", "frozen", "shown"):
            self.register_parameter(name, nn.Parameter(torch.ones(2)))
        self.frozen.requires_grad_(False)

    def forward(self, x):
        output = (x * self.shown).sin()
        loss = nn.functional.l1_loss(x * self.trained + (x * self.detached).detach() * self.frozen, x)
        return output, loss


def test_parameters_are_trained_if_the_loss_depends_on_them():
    graph = capture_step(Branches(), [torch.ones(2)], mode="training")

    assert list_trained_parameters(graph) == ["trained"]


def test_values_beside_the_way_to_the_loss_have_no_gradient():
    graph = capture_step(Branches(), [torch.ones(2)], mode="training")

    targets = [str(node.target) for node in collect_nodes_with_gradient(graph)]

    assert "aten.mul.Tensor" in targets
    assert "aten.sin.default" not in targets


def test_a_graph_for_inference_has_no_gradients():
    graph = capture_step(Branches(), [torch.ones(2)], mode="inference")

    assert collect_nodes_with_gradient(graph) == set()


# -- views that torch makes several of at once


class Doubling(nn.Module):
    """Doubles all of several views of a product but the first."""

    def __init__(self, poptorch, divide):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3, 4))
        self.divide = divide
        self.mark_loss = poptorch.identity_loss

    def forward(self, x):
        product = x * self.weight
        for view in self.divide(product)[1:]:
            view *= 2
        return product, self.mark_loss(product, "sum")


@pytest.mark.parametrize(
    "divide",
    [
        lambda t: t.unbind(),
        lambda t: t.unbind(dim=-1),
        lambda t: t.chunk(2),
        lambda t: t.chunk(3, dim=1),
        lambda t: t.split(2),
        lambda t: t.split([1, 2], dim=0),
        lambda t: torch.split(t, [1, 1, 2], -1),
        lambda t: t.tensor_split(3, dim=1),
        lambda t: t.tensor_split((1, 2)),
        lambda t: t.split_with_sizes((3, 1), 1),
    ],
)
def test_each_view_may_be_written_to(poptorch, divide):
    x = torch.arange(12.0).reshape(3, 4)
    factors = torch.full((3, 4), 2.0)
    divide(factors)[0].fill_(1.0)
    model = Doubling(poptorch, divide)
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))

    product, _loss = executor(x)

    torch.testing.assert_close(product, x * factors)
    torch.testing.assert_close(1.0 - model.weight.detach(), x * factors)
