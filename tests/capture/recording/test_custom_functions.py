"""Custom autograd functions in a ported model train as they do in eager PyTorch, or are refused."""

from __future__ import annotations

import copy
import functools

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting import LossInForward, PortOptions, capture_step, to_ipu
from porting.capture.graph_data import graph_from_data, graph_to_data
from porting.capture.subgraphs import bodies_of
from porting.diagnostics import CaptureError, OptionError, PortingError

Function = torch.autograd.Function


class Rounding(Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx, x):
        return (x * 4).round() / 4

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Masked(Function):
    """A straight-through estimator that lets the gradient pass where the input was small."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        gradient = gradient.clone()
        gradient[x.abs() > 1] = 0
        return gradient


class Early(Masked):
    """What is saved has the name of early torch."""

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_variables
        return gradient * (x.abs() <= 1)


class Reversal(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.neg() * ctx.factor, None


class Same(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class Clipped(Function):
    """Not linear in its gradient."""

    @staticmethod
    def forward(ctx, x, limit=0.01):
        ctx.limit = limit
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-ctx.limit, ctx.limit), None


class Normalised(Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient / (gradient.norm() + 1e-6)


class Activation(Function):
    """SiLU, saving its result besides its input, in the form with a context apart."""

    @staticmethod
    def forward(x, slope):
        return x * torch.sigmoid(slope * x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.slope = inputs
        ctx.save_for_backward(x, output)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        x, output = ctx.saved_tensors
        sigmoid = torch.sigmoid(ctx.slope * x)
        return gradient * (sigmoid + ctx.slope * output * (1 - sigmoid)), None


class Spike(Function):
    """A step with the gradient of a smooth one, as spiking networks have it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).float()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / (1 + x.abs()) ** 2


class Product(Function):
    """Two inputs and two results, one of which nobody differentiates."""

    @staticmethod
    def forward(ctx, x, weight, label):
        ctx.save_for_backward(x, weight)
        ctx.set_materialize_grads(True)
        largest = x.abs().argmax(dim=1)
        ctx.mark_non_differentiable(largest)
        return x * weight, x + weight, largest

    @staticmethod
    def backward(ctx, first, second, _largest):
        x, weight = ctx.saved_tensors
        gradient_x = first * weight * 2 + second if ctx.needs_input_grad[0] else None
        gradient_weight = (first * x).sum(0) * 0.5 if ctx.needs_input_grad[1] else None
        return gradient_x, gradient_weight, None


class Silent(Function):
    """Has no gradient for its first input."""

    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient * 2


class Net(nn.Module):
    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.scale = nn.Parameter(torch.rand(8))
        self.function = function

    def forward(self, x):
        return self.last(self.function(self, self.norm(self.first(x))))


def product(net, x):
    first, second, largest = Product.apply(x, net.scale, 0)
    return first + second.relu_() + largest.unsqueeze(1) * 0.1


FUNCTIONS = {
    "straight-through": lambda net, x: Rounding.apply(x),
    "straight-through, masked": lambda net, x: Masked.apply(x),
    "straight-through, in early words": lambda net, x: Early.apply(x),
    "reversal": lambda net, x: Reversal.apply(x, 0.5),
    "the input itself": lambda net, x: Same.apply(x),
    "changed afterwards": lambda net, x: Rounding.apply(x).relu_(),
    "clipped": lambda net, x: Clipped.apply(x, 0.001),
    "normalised": lambda net, x: Normalised.apply(x),
    "activation": lambda net, x: Activation.apply(x, 1.5),
    "several inputs and results": product,
    "input without gradient": lambda net, x: Silent.apply(x, net.scale * x),
    "a constant input": lambda net, x: Product.apply(x.detach(), net.scale, 0)[0] + x,
    "several, nested": lambda net, x: Clipped.apply(Rounding.apply(Activation.apply(x, 0.7)) * net.scale, 0.002),
    "a tensor that the backward computes with": lambda net, x: Silent.apply(x, Masked.apply(net.scale) * x),
}


def batches():
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(8, 4, generator=generator), torch.randint(3, (8,), generator=generator)) for _step in range(5)]


def trained_plainly(model):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for x, y in batches():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model.state_dict()


def port(model, **options):
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, device="sim", options=PortOptions(**options))


def trained_ported(model, **options):
    ported = port(model, **options)
    for x, y in batches():
        ported(x, y)
    return ported.state_dict()


def floats(state):
    return {name: value for name, value in state.items() if value.is_floating_point()}


# of torch's own, in eager
@pytest.mark.filterwarnings("ignore:'saved_variables' is deprecated:DeprecationWarning")
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_custom_function_trains_as_in_eager(name):
    model = Net(FUNCTIONS[name])
    plain = copy.deepcopy(model)

    torch.testing.assert_close(floats(trained_ported(model)), floats(trained_plainly(plain)), rtol=0, atol=0)


spike, activate = Spike.apply, Activation.apply
BOUND = {
    "old style": lambda net, x: spike(x),
    "old style, in a partial": lambda net, x: PARTIALS["spike"](x),
    "old style, a part of the model": lambda net, x: net.spike(x),
    "new style": lambda net, x: activate(x, 1.5),
    "new style, in a partial": lambda net, x: PARTIALS["activate"](x, *(() if KEYWORDS else (1.5,))),
}
# older torch's `apply` takes no keywords, in plain PyTorch neither
KEYWORDS = {"slope": 1.5} if torch.__version__ >= (2, 13) else {}
PARTIALS = {"spike": functools.partial(spike), "activate": functools.partial(activate, **KEYWORDS)}


class Spiking(nn.Module):
    """Several layers with a function that was bound before the model was ported."""

    def __init__(self, function):
        super().__init__()
        torch.manual_seed(0)
        self.layers, self.last = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), nn.Linear(4, 3)
        self.function, self.spike = function, spike

    def forward(self, x):
        for layer in self.layers:
            x = self.function(self, layer(x))
        return self.last(x)


@pytest.mark.parametrize("name", BOUND)
def test_a_function_that_was_bound_beforehand_trains_as_in_eager_in_either_loop(name):
    model, loop = Spiking(BOUND[name]), Spiking(BOUND[name])

    expected = trained_plainly(Spiking(BOUND[name]))

    torch.testing.assert_close(dict(trained_ported(model)), dict(expected), rtol=0, atol=0)
    trained = trained_plainly(to_ipu(loop, loop="host", device="sim"))
    torch.testing.assert_close(dict(trained), dict(expected), rtol=0, atol=0)


@pytest.mark.parametrize("options", [{"accumulation": 2}, {"accumulation": 2, "replicas": 2}, {"device_iterations": 2}])
def test_a_custom_function_trains_alike_however_a_call_is_cut(options):
    model = Net(FUNCTIONS["activation"])
    model.norm = nn.Identity()
    twin = copy.deepcopy(model)
    twin.function = lambda net, x: nn.functional.silu(x * 1.5) / 1.5

    torch.testing.assert_close(trained_ported(model, **options), trained_ported(twin, **options), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_a_compiled_step_has_the_backward_too():
    model = Net(FUNCTIONS["several, nested"])
    model.norm = nn.Identity()
    plain = copy.deepcopy(model)
    ported = port(model, engine="aot")

    for x, y in batches():
        ported(x, y)

    assert "aot" in str(ported.report())
    torch.testing.assert_close(dict(ported.state_dict()), dict(trained_plainly(plain)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("precision", ["mixed", "bfloat16"])
def test_a_custom_function_trains_in_lower_precision(precision):
    model = Net(FUNCTIONS["activation"])
    model.norm = nn.Identity()
    twin = copy.deepcopy(model)
    twin.function = lambda net, x: nn.functional.silu(x * 1.5) / 1.5
    states = [trained_ported(each, precision=precision) for each in (model, twin)]

    for trained, expected in zip(states[0].values(), states[1].values()):
        assert (trained.float() - expected.float()).abs().max() < 0.2


def test_inference_runs_forward_alone():
    model = Net(FUNCTIONS["clipped"])
    x, _y = batches()[0]
    expected = copy.deepcopy(model).eval()(x)

    torch.testing.assert_close(port(model).inference()(x), expected)


def test_the_report_says_once_that_ipus_have_no_such_backward():
    same = Same.apply
    ported = port(Net(lambda net, x: same(Same.apply(x))))

    ported(*batches()[0])

    assert [finding.message for finding in ported.report().findings if finding.code == "C005"] == [
        "`Same` is a custom autograd function: here its `backward` runs, on IPUs it is an error"
    ]


# -- what has no static form


class Reading(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient if gradient.norm() > 1 else gradient * 2  # read here


class Overwriting(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3


class Recomputing(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(x.sin(), x, gradient)


class Accumulating(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return ctx.saved_tensors[0].mul_(gradient)


@pytest.mark.parametrize("function", [Reading, Overwriting, Recomputing, Accumulating])
def test_a_backward_without_a_static_form_is_refused_with_the_line(function):
    ported = port(Net(lambda net, x: function.apply(x * 1)))  # applied here

    with pytest.raises(CaptureError) as caught:
        ported(*batches()[0])

    assert caught.value.code == "C005"
    assert f"`{function.__name__}` is a custom autograd function" in str(caught.value)
    assert "allow=['custom-autograd-function']" in str(caught.value)


def test_the_refusal_names_the_line_and_what_was_wrong_with_the_backward():
    ported = port(Net(lambda net, x: Reading.apply(x)))  # applied here

    with pytest.raises(CaptureError) as caught:
        ported(*batches()[0])

    assert "# applied here" in str(caught.value)
    assert "C001" in str(caught.value)


def test_a_refused_function_leaves_a_plain_model():
    model = Net(lambda net, x: Reading.apply(x))

    with pytest.raises(PortingError):
        port(model)(*batches()[0])

    assert type(model.scale) is nn.Parameter
    trained_plainly(model)


def test_what_is_allowed_trains_as_the_device_differentiates_without_a_warning():
    model = Net(lambda net, x: Same.apply(x))
    twin = Net(lambda net, x: x)

    trained = trained_ported(model, allow=["custom-autograd-function"])

    torch.testing.assert_close(floats(trained), floats(trained_plainly(twin)), rtol=0, atol=0)


TRANSFORMED = {
    "grad": lambda net, x: torch.func.grad(lambda x: activate(x, 1.5).sum())(x),
    "vmap": lambda net, x: torch.func.vmap(lambda x: Activation.apply(x, 1.5))(x),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_function_under_a_transform_is_refused_with_the_line(name):
    with pytest.raises(CaptureError) as caught:
        port(Spiking(TRANSFORMED[name]))(*batches()[0])

    assert (caught.value.code, caught.value.finding.place.file) == ("C005", __file__)


def test_a_function_under_a_transform_that_is_allowed_is_differentiated_as_its_forward():
    model, twin = Spiking(TRANSFORMED["grad"]), Spiking(TRANSFORMED["grad"])
    twin.function = lambda net, x: torch.func.grad(lambda x: (x * torch.sigmoid(1.5 * x)).sum())(x)

    trained = trained_ported(model, allow=["custom-autograd-function"])

    torch.testing.assert_close(dict(trained), dict(trained_plainly(twin)), rtol=0, atol=0)


@pytest.mark.parametrize("allow", ["custom-autograd-function", ["C005"], ["host-read"], 1])
def test_only_what_can_be_allowed_is_taken(allow):
    with pytest.raises(OptionError, match="allow"):
        PortOptions(allow=allow)


def test_a_custom_backward_is_written_to_step_files_and_read_back():
    wrapped = LossInForward(Net(FUNCTIONS["several, nested"]), nn.CrossEntropyLoss(), backend=poptorch, allowed=())
    graph = capture_step(wrapped, batches()[0], host_features="computed")

    read = graph_from_data(graph_to_data(graph), constant_values=graph.constant_values)

    assert str(read) == str(graph)
    assert [bodies_of(node) != [] for node in read.graph.nodes].count(True) == 3
