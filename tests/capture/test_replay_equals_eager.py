"""The law of the capture: its graph, replayed on the same weights and random state, gives what eager PyTorch gives."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.device_state import DeviceState
from porting.engines.replay.replay import ReplayExecutable
from porting.host_tensors import host_tensors
from porting.structure import flatten_tensors


def replayed(model, *args):
    """Capture `model` on `args` and run the graph once; returns the outputs and the buffers of floats afterwards."""
    graph = capture_step(model, args, mode="inference")
    state = DeviceState.for_graph(graph)
    state.upload({host.name: host.tensor.detach() for host in host_tensors(model)})
    inputs = [tensor.to(info.dtype) for tensor, info in zip(flatten_tensors(args), graph.inputs)]
    outputs = ReplayExecutable(graph).run(state, inputs, CallPlan())
    return outputs, floats(state.buffers[0].values())


def floats(tensors):
    """Leave out integers, which are constants on the device."""
    return [tensor for tensor in tensors if tensor.is_floating_point()]


def assert_equal_values(found, expected):
    torch.testing.assert_close(
        [tensor.double() for tensor in found],
        [tensor.detach().double() for tensor in expected],
        rtol=1e-6,
        atol=1e-6,
        equal_nan=True,
    )


def sentence(*shape):
    return torch.randint(0, 7, shape)


class First(nn.Module):
    """The first result of a layer that returns several."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *args):
        return self.layer(*args)[0]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.output = nn.Linear(4, 7, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, x):
        return self.output(self.embedding(x))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        return x + checkpoint(self.inner, x, use_reentrant=False)


class RunningMean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.long))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.count += 1
        self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
        return x - self.mean


def attention(batch_first=True):
    return nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=batch_first)


MODULES = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), [torch.randn(5, 4)]),
    "cnn": (
        lambda: nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3)),
        [torch.randn(2, 1, 8, 8)],
    ),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, padding="same"), [torch.randn(2, 2, 9)]),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), [torch.randn(1, 1, 3, 3, 3)]),
    "transposed convolution": (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), [torch.randn(1, 2, 3, 3)]),
    "channels last": (
        lambda: nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last),
        [torch.randn(2, 4, 5, 5).contiguous(memory_format=torch.channels_last)],
    ),
    "batch norm in eval mode": (lambda: nn.BatchNorm1d(4).eval(), [torch.randn(5, 4)]),
    "instance norm": (lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), [torch.randn(2, 4, 3, 3)]),
    "layer norm": (lambda: nn.LayerNorm(4), [torch.randn(5, 4)]),
    "group norm": (lambda: nn.GroupNorm(2, 4), [torch.randn(5, 4, 3)]),
    "local response norm": (lambda: nn.LocalResponseNorm(2), [torch.randn(5, 4, 3)]),
    "embedding": (lambda: nn.Embedding(7, 3, padding_idx=0), [sentence(2, 3)]),
    "embedding with a maximal norm": (lambda: nn.Embedding(7, 3, max_norm=0.5), [sentence(2, 3)]),
    "embedding bag": (lambda: nn.EmbeddingBag(7, 3, mode="mean"), [sentence(2, 3)]),
    "rnn": (lambda: First(nn.RNN(3, 4)), [torch.randn(5, 2, 3)]),
    "lstm": (lambda: First(nn.LSTM(3, 4, num_layers=2, bidirectional=True)), [torch.randn(5, 2, 3)]),
    "lstm with a start": (
        lambda: First(nn.LSTM(3, 4)),
        [torch.randn(5, 2, 3), (torch.randn(1, 2, 4), torch.randn(1, 2, 4))],
    ),
    "lstm with dropout": (
        lambda: First(nn.LSTM(3, 4, num_layers=2, dropout=0.5, batch_first=True)),
        [torch.randn(2, 5, 3)],
    ),
    "gru": (lambda: First(nn.GRU(3, 4)), [torch.randn(5, 2, 3)]),
    "lstm cell": (lambda: nn.LSTMCell(3, 4), [torch.randn(2, 3)]),
    "attention": (attention, [torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.randn(2, 3, 8)]),
    "transformer layer": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        [torch.randn(2, 5, 8)],
    ),
    "transformer layer in eval mode": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(),
        [torch.randn(2, 5, 8)],
    ),
    "transformer": (
        lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True),
        [torch.randn(2, 5, 8), torch.randn(2, 3, 8)],
    ),
    "bilinear": (lambda: nn.Bilinear(4, 4, 3), [torch.randn(5, 4), torch.randn(5, 4)]),
    "tied weights": (Tied, [sentence(2, 3)]),
    "checkpointed layers": (Residual, [torch.randn(5, 4)]),
    "written buffers": (RunningMean, [torch.randn(5, 4)]),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(4, 3)), [torch.randn(5, 4)]),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(4, 3)), [torch.randn(5, 4)]),
    "dropout": (lambda: nn.Dropout(0.5), [torch.randn(5, 4)]),
    "randomised leaky relu": (lambda: nn.RReLU(), [torch.randn(5, 4)]),
}

# Functions of a (5, 4) parameter.
FUNCTIONS = {
    "gelu": F.gelu,
    "softmax": lambda w: w.softmax(1),
    "log_softmax": lambda w: F.log_softmax(w, 1),
    "glu": F.glu,
    "silu": F.silu,
    "normalize": F.normalize,
    "layer_norm": lambda w: F.layer_norm(w, (4,)),
    "einsum": lambda w: torch.einsum("ij,kj->ik", w, w),
    "matmul": lambda w: w @ w.T,
    "attention": lambda w: F.scaled_dot_product_attention(w[None, None], w[None, None], w[None, None], is_causal=True),
    "attention with dropout": lambda w: F.scaled_dot_product_attention(*[w[None, None]] * 3, dropout_p=0.5),
    "topk": lambda w: w.topk(2, 1),
    "sort": lambda w: w.sort(1, descending=True),
    "argmax": lambda w: [w.argmax(), w.argmax(1), w.argmin(1, keepdim=True)],
    "max": lambda w: w.max(1),
    "median": lambda w: w.median(1),
    "cumsum": lambda w: w.cumsum(1),
    "var_mean": lambda w: torch.var_mean(w, 1),
    "norms": lambda w: [torch.linalg.vector_norm(w), torch.linalg.matrix_norm(w), w.norm(p=1)],
    "interpolate": lambda w: F.interpolate(w[None, None], scale_factor=2, mode="bilinear"),
    "pad": lambda w: [F.pad(w, (1, 2)), F.pad(w[None], (1, 2), mode="reflect")],
    "unfold": lambda w: F.unfold(w[None, None], 2),
    "max_pool with indices": lambda w: F.max_pool2d(w[None, :4], 2, return_indices=True),
    "adaptive pooling": lambda w: F.adaptive_avg_pool2d(w[None], 2),
    "cdist": lambda w: torch.cdist(w, w + 1),
    "cosine similarity": lambda w: F.cosine_similarity(w, w.roll(1, 0)),
    "where": lambda w: torch.where(w > 0, w, 0.0),
    "masked_fill": lambda w: w.masked_fill(w > 0, -1e9).softmax(-1),
    "list index": lambda w: w[[0, 2, 1]],
    "rearrangement": lambda w: w.unflatten(1, (2, 2)).movedim(1, 2).reshape(5, 4).flip(0).tril(),
    "chunks": lambda w: torch.cat([chunk * index for index, chunk in enumerate(w.chunk(2, 1))], 1),
    "stack": lambda w: torch.stack([w.sum(), w.mean()]),
    "comparison": lambda w: [(w > 0).sum(), (w > 0).any(), (w > 0).float().mean()],
    "vmap": lambda w: torch.func.vmap(lambda row: F.layer_norm(row, (4,)))(w),
    "func.grad": lambda w: torch.func.grad(lambda v: (v**3).sum())(w),
    # the gradient of a product needs the number
    "func.grad, factor": lambda w: torch.func.grad(lambda v: (1.5 * v.sin()).mul(2).exp().sum())(w),
    "func.grad, divisor": lambda w: torch.func.grad(lambda v: (1 / (v * v / 3 + 2)).sum())(w),
    "func.grad, in place": lambda w: torch.func.grad(lambda v: (v.sin().mul_(3) * 2**40).sum())(w),
    "func.grad, twice": lambda w: torch.func.grad(lambda v: torch.func.grad(lambda u: (2.5 * u**3).sum())(v).sum())(w),
    "draws like a tensor": lambda w: [torch.rand_like(w), torch.randn_like(w), F.dropout(w)],
    "draws in place": lambda w: w.new_empty(5, 4).normal_() + w.new_empty(5, 4).uniform_(1, 2),
    "normal distribution": lambda w: torch.distributions.Normal(w, w.exp()).rsample(),
}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize(("make", "args"), MODULES.values(), ids=MODULES.keys())
def test_a_replayed_module_equals_the_module(make, args):
    model = make()
    eager = copy.deepcopy(model)

    found, buffers = replayed(model, *args)
    expected = eager(*args)

    assert_equal_values(found, flatten_tensors(expected))
    assert_equal_values(buffers, floats(host.tensor for host in host_tensors(eager) if host.kind == "buffer"))


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_a_replayed_function_equals_the_function(body, function):
    model = body(function)

    found, _buffers = replayed(model)
    expected = model()

    assert_equal_values(found, flatten_tensors(expected))


def test_factories_without_a_device_draw_the_same_numbers(body):
    model = body(lambda weight: weight + torch.rand(5, 4) * torch.randn(4) + torch.randperm(4))

    (found,), _buffers = replayed(model)
    expected = model()

    assert_equal_values([found], [expected])


def test_writes_to_a_temporary_replay_in_order(body):
    def write(weight, x):
        y = weight * 2
        y += x
        y[0] = 1.0
        y[:, 1] *= 2
        y[y > 1] = -1.0
        return y.clamp_(min=-0.5)

    model, x = body(write), torch.randn(5, 4)

    (found,), _buffers = replayed(model, x)
    expected = model(x.clone())

    assert_equal_values([found], [expected])


def test_a_written_input_comes_back_after_the_outputs(body):
    model, x = body(lambda weight, x: (x[1:3].zero_(), weight * x)[1]), torch.randn(5, 4)

    (product, written), _buffers = replayed(model, x.clone())
    expected = model(x)

    assert_equal_values([product, written], [expected, x])


@pytest.mark.parametrize("drop", [lambda x: F.dropout(x, 0.0), lambda x: F.dropout(x, training=False), nn.Dropout(0)])
def test_a_write_to_what_a_dropout_has_not_changed_is_eagers(body, drop):
    model, x = body(lambda weight, x: (drop(x).mul_(2.0), drop(weight * x).add_(1.0), x + weight)), torch.randn(5, 4)

    found, _buffers = replayed(model, x.clone())
    expected = model(x)

    assert_equal_values(found, [*expected, x])


def test_a_constant_that_forward_adds_to_starts_anew_in_each_call(body):
    def total(weight):
        sum_ = torch.tensor(0.0)
        sum_ += weight.mean()
        return sum_

    model = body(total)
    graph = capture_step(model, mode="inference")
    state = DeviceState.for_graph(graph)
    state.upload({"weight": model.weight.detach()})
    executable = ReplayExecutable(graph)

    results = [executable.run(state, [], CallPlan())[0] for _ in range(3)]

    assert_equal_values(results, [model.weight.mean()] * 3)


NUMBERS_FIRST = {name: getattr(torch, name) for name in ("add", "sub", "mul", "div", "pow", "remainder")}


@pytest.mark.parametrize("function", NUMBERS_FIRST.values(), ids=NUMBERS_FIRST.keys())
@pytest.mark.parametrize(
    "x",
    [torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]).half(), torch.tensor(2.0).half(), torch.tensor([1, 2]).int()],
    ids=["floats", "halves", "a half", "integers"],
)
def test_a_number_may_come_first(function, x):
    class Model(nn.Module):
        def forward(self, x):
            return function(2.5, x)

    found, _buffers = replayed(Model(), x)

    torch.testing.assert_close(found[0], function(2.5, x))
