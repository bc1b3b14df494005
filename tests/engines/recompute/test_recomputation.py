"""Computation orders change what waits for the backward pass, and nothing that a step computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from porting import PortOptions, to_ipu
from porting.capture import capture_step
from porting.diagnostics import ExecutableError
from porting.engines.calls.executable import BuildRequest
from porting.engines.compiled.executable import CompiledExecutable
from porting.engines.compiled.step_program import build_programs
from porting.engines.recompute.recomputation import order_computation, run_segment
from porting.engines.replay.replay import ReplayExecutable
from porting.options import ComputationOrder
from tests.engines.interpreted_programs import interpret_programs

ORDERS = ("dummy2", "chen", "gttime", "gtmem", "chen:0.01", "gttime:0.1", "custom_CF0_CF1_FFo0_FFt1_FFo2_CB")


class Residual(nn.Module):
    """Blocks of convolution, BatchNorm and ReLU in place, each around a way past it."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.Dropout(0.2))
            for _ in range(5)
        )
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x.mean((2, 3)))


class Attention(nn.Module):
    """A small transformer: views of one memory, softmax, GELU, dropout."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 12)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(12, 2, 24, dropout=0.1, activation="gelu", batch_first=True) for _ in range(3)
        )
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        x = self.embedding(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1))


class Unrolled(nn.Module):
    """A recurrent cell over 12 steps: two values cross every cut."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 6), x.new_zeros(x.shape[0], 6)
        for step in range(12):
            state = self.cell(x[:, step], state)
        return self.head(state[0])


class InPlace(nn.Module):
    """Writes over values that others have read, in a region without gradients too."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        for layer in self.layers:
            hidden = layer(x)
            early = torch.sigmoid(hidden)
            hidden.mul_(2.0)
            with torch.no_grad():
                self.calls.add_(1.0)
                scale = hidden.abs().max() + 1
            x = early + torch.tanh(hidden) / scale
        return x[:, :3]


class MakesTensors(nn.Module):
    """Operators that make tensors of their own, and constants that Python makes."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.resize = nn.Upsample(scale_factor=2.0, mode="bilinear")
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)) * torch.linspace(0.5, 1.0, 16).to(x.device)
            x = x + functional.one_hot(x.argmax(-1), 16)
            x = x * functional.cosine_similarity(x, x.roll(1, -1), dim=-1).unsqueeze(-1)
            x = functional.max_pool2d(self.resize(x.reshape(-1, 1, 4, 4)), 2).flatten(1)
        return self.head(x)


MODELS = {
    "residual": (Residual, torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))),
    "attention": (Attention, torch.arange(20).reshape(4, 5) % 16),
    "unrolled": (Unrolled, torch.randn(4, 12, 4, generator=torch.Generator().manual_seed(1))),
    "in_place": (InPlace, torch.randn(4, 6, generator=torch.Generator().manual_seed(1))),
    "makes_tensors": (MakesTensors, torch.randn(4, 16, generator=torch.Generator().manual_seed(1))),
}
LABELS = torch.tensor([0, 1, 2, 0])


@pytest.fixture(params=MODELS)
def trained(request, device, settings):
    """Give a function that trains a model for two steps in a computation order, and all that this leaves."""
    make, inputs = MODELS[request.param]

    def train(order):
        torch.manual_seed(0)
        made = device(make(), inputs, LABELS, loss=functional.cross_entropy)
        made.executable = ReplayExecutable(order_computation(made.graph, ComputationOrder.of(order)))
        made.state.rng_state = torch.Generator().manual_seed(1).get_state()
        results = [made.run(inputs, LABELS, settings=settings(momentum=0.9)) for _ in range(2)]
        return [*results[0], *results[1], *made.weights().values(), *made.buffers().values(), made.state.rng_state]

    return train


def num_segments(graph):
    return sum(node.target is run_segment for node in graph.graph.nodes)


def graph_of(name):
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    return capture_step(make(), [inputs, LABELS], loss=functional.cross_entropy, mode="training")


def saved_bytes(graph, device):
    """Run a step for real and add up the memory that autograd keeps for its backward pass."""
    make, inputs = MODELS["residual"]
    torch.manual_seed(0)
    made = device(make(), inputs, LABELS, loss=functional.cross_entropy)
    made.executable = ReplayExecutable(graph)
    known = made.state.collect_storages()
    kept = []

    def note(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        made.run(inputs, LABELS)
    memories = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in kept}
    return sum(size for memory, size in memories.items() if memory not in known)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("order", ORDERS)
def test_losses_gradients_and_state_are_the_same_to_the_last_bit(trained, order):
    expected = trained("none")

    found = trained(order)

    assert [torch.equal(one, other) for one, other in zip(found, expected)] == [True] * len(expected)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("order", ["dummy2", "chen", "gttime", "gtmem"])
def test_every_policy_finds_something_to_compute_again(name, order):
    assert num_segments(order_computation(graph_of(name), ComputationOrder.of(order))) > 0


@pytest.mark.parametrize("order", ["chen", "gttime", "gtmem", "dummy2"])
def test_less_waits_for_the_backward_pass(device, order):
    graph = graph_of("residual")

    saved = saved_bytes(order_computation(graph, ComputationOrder.of(order)), device)

    assert saved < 0.8 * saved_bytes(graph, device)


def test_random_operators_run_once():
    ordered = order_computation(graph_of("residual"), ComputationOrder.of("dummy2"))

    inside = [op.operator for op in ordered.operators]

    assert inside.count("aten.dropout.default") == 5


@pytest.mark.parametrize("order", ["none", "dummy"])
def test_an_order_that_keeps_everything_leaves_the_graph_as_it_is(order):
    graph = graph_of("attention")

    assert order_computation(graph, ComputationOrder.of(order)) is graph


def test_inference_stays_as_it_is():
    graph = capture_step(nn.Linear(4, 2), [torch.ones(2, 4)], mode="inference")

    assert order_computation(graph, ComputationOrder.of("chen")) is graph


def test_the_order_of_the_graph_does_not_depend_on_the_process():
    texts = {str(order_computation(graph_of("attention"), ComputationOrder.of("gttime"))) for _ in range(3)}

    assert len({line for text in texts for line in text.splitlines()}) == len(next(iter(texts)).splitlines())


def test_a_custom_order_names_units_that_there_are():
    with pytest.raises(ExecutableError, match="the step has units 0 to"):
        order_computation(graph_of("in_place"), ComputationOrder.of("custom_FFo99"))


def test_a_ported_model_trains_the_same_in_another_order():
    def losses(order):
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.3), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 3)
        )
        options = PortOptions(micro_batch=4, accumulation=2, device_iterations=2, seed=3, computation_order=order)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, device="sim", options=options)
        batch = torch.linspace(-1, 1, 128).reshape(16, 8), torch.arange(16) % 3
        return [float(ported(*batch)[1]) for _ in range(3)]

    assert losses("chen") == losses("none")


def test_the_compiled_programs_compute_the_same(settings, twins):
    torch.manual_seed(0)
    make, inputs = MODELS["residual"]
    pair = twins(make(), inputs, LABELS, settings=settings(), loss=functional.cross_entropy)
    ordered = order_computation(pair.graph, ComputationOrder.of("chen"))
    request = BuildRequest(pair.plan, tuple(pair.settings), tuple(map(tuple, pair.names)))
    programs = build_programs(ordered, request)
    pair.compiled = CompiledExecutable(
        ordered, request, programs.layout, interpret_programs(programs), lambda: ReplayExecutable(ordered)
    )

    pair.assert_same(inputs, LABELS)
