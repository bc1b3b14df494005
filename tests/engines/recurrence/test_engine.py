"""The engine `recurrence`: steps with recurrent layers train as in replay, and others are refused with the reason."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.device_state import DeviceState
from porting.engines.calls.executable import BuildRequest, Choice
from porting.engines.contract.failures import NotCompilable
from porting.engines.contract.limits import CompileLimits
from porting.engines.contract.trial import Trial
from porting.engines.parity.comparison import compare_with_replay
from porting.engines.recurrence.compiler import LIBRARY
from porting.engines.recurrence.engine import RECURRENCE, list_recurrent_nodes
from porting.engines.replay.replay import ReplayExecutable
from porting.host_tensors import host_tensors


class Tagger(nn.Module):
    """A recurrent layer between two others; `settings` are the layer's."""

    def __init__(self, kind, **settings):
        super().__init__()
        self.embedding = nn.Embedding(50, 24)
        self.recurrent = kind(24, 40, batch_first=True, **settings)
        self.out = nn.Linear(self.recurrent(torch.zeros(1, 1, 24))[0].shape[-1], 7)

    def forward(self, tokens):
        return self.out(self.recurrent(self.embedding(tokens))[0][:, -1])


def make_step(settings, kind=nn.LSTM, num_rows=8, *, choice=None, plan=None, mode="training", **of_layer):
    """Return model, graph, request and batch of a tagger."""
    torch.manual_seed(0)
    plan = plan or CallPlan()
    model = Tagger(kind, **of_layer)
    inputs = [torch.randint(0, 50, (num_rows, 9)), torch.randint(0, 7, (num_rows,))]
    rows = num_rows // plan.num_slices
    graph = capture_step(model, [part[:rows] for part in inputs], loss=F.cross_entropy, mode=mode)
    names = tuple(info.name for info in graph.parameters)
    request = BuildRequest(plan, (settings("ADAM", learning_rate=0.01),), (names,), choice or Choice("recurrence"))
    return model, graph, request, inputs


@pytest.fixture(scope="session")
def folder(tmp_path_factory, settings):
    """Compile the loops as a program would, in another process."""
    place = tmp_path_factory.mktemp("recurrence")
    _model, graph, request, _inputs = make_step(settings)
    RECURRENCE.compile(graph, request, place, limits=CompileLimits())
    return place


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("fused_update", [False, True])
def test_it_agrees_with_replay(settings, folder, kind, fused_update):
    choice = Choice("recurrence", fused_update=fused_update)
    model, graph, request, inputs = make_step(settings, kind, choice=choice)
    weights = {host.name: host.tensor.detach() for host in host_tensors(model)}
    trial = Trial(weights, inputs, request.plan, request.groups, request.group_names)

    parity = compare_with_replay(
        RECURRENCE.load(graph, request, folder), graph, graph=graph, request=request, trial=trial
    )

    assert parity.holds, parity.difference


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("plan", [CallPlan(), CallPlan(accumulation=2, replicas=2), CallPlan(iterations=2)])
def test_twenty_steps_train_alike(settings, folder, kind, plan):
    model, graph, request, inputs = make_step(settings, kind, plan=plan)
    losses, states = [], []
    for executable in (ReplayExecutable(graph), RECURRENCE.load(graph, request, folder)):
        state = DeviceState.for_graph(graph, replicas=plan.replicas)
        state.upload({host.name: host.tensor.detach() for host in host_tensors(model)})
        losses.append(
            [
                executable.run(state, inputs, plan, groups=request.groups, group_names=request.group_names)[-1]
                for _step in range(20)
            ]
        )
        states.append(state.parameters)

    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(states[1], states[0], rtol=1e-3, atol=1e-4)
    assert float(losses[1][-1].mean()) < 0.9 * float(losses[1][0].mean())


def test_several_layers_with_dropout_draw_what_replay_draws(settings, folder):
    model, graph, request, inputs = make_step(settings, nn.GRU, num_layers=2, dropout=0.5, bidirectional=True)
    weights = {host.name: host.tensor.detach() for host in host_tensors(model)}
    trial = Trial(weights, inputs, request.plan, request.groups, request.group_names)

    parity = compare_with_replay(
        RECURRENCE.load(graph, request, folder), graph, graph=graph, request=request, trial=trial
    )

    assert parity.holds, parity.difference


def test_inference_agrees_with_replay(folder):
    torch.manual_seed(0)
    model = Tagger(nn.LSTM).eval()
    tokens = torch.randint(0, 50, (8, 9))
    graph = capture_step(model, [tokens], mode="inference")
    request = BuildRequest(CallPlan(), choice=Choice("recurrence"))
    state = DeviceState.for_graph(graph)
    state.upload({host.name: host.tensor.detach() for host in host_tensors(model)})

    found = RECURRENCE.load(graph, request, folder).run(state, [tokens], CallPlan())

    torch.testing.assert_close(found, ReplayExecutable(graph).run(state, [tokens], CallPlan()))


def test_its_loops_are_what_runs(settings, folder):
    _model, graph, request, _inputs = make_step(settings)

    executable = RECURRENCE.load(graph, request, folder)

    assert executable.name == "recurrence"
    assert [node.target for node in list_recurrent_nodes(graph.graph)] == [torch.ops.aten.lstm.input]
    assert (folder / "recurrence" / LIBRARY).is_file()


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_a_layer_with_a_projection_is_left_to_torch(settings, tmp_path):
    _model, graph, request, _inputs = make_step(settings, proj_size=5)

    with pytest.raises(NotCompilable, match="no recurrent layer in float32"):
        RECURRENCE.compile(graph, request, tmp_path, limits=CompileLimits())

    assert not any(tmp_path.iterdir())


def test_half_precision_is_left_to_torch():
    layer = nn.GRU(4, 4).half()
    graph = capture_step(layer, [torch.ones(3, 2, 4).half()], mode="inference")

    assert not list_recurrent_nodes(graph.graph)


def test_checks_of_floats_see_every_operator_and_need_replay(settings, tmp_path):
    _model, graph, request, _inputs = make_step(settings, plan=CallPlan(checks_floats=True))

    with pytest.raises(NotCompilable, match="the result of each operator"):
        RECURRENCE.compile(graph, request, tmp_path, limits=CompileLimits())
