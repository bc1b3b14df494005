"""A port is a part of what `torch.compile` compiles: it runs as it is, and what is around it is compiled."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from porting import to_ipu
from porting.support.versions import read_version

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit")


class Around(nn.Module):
    """Doubles what the model gets, and scales what comes out of it."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, x, *labels):
        result = self.model(x * 2, *labels)
        return result[1] if labels else result * self.scale


def port(model):
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=sgd(model))


def sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.fixture(autouse=True)
def _compiles_anew():
    yield
    torch._dynamo.reset()


@pytest.fixture
def said(caplog, recwarn):
    """Return what is logged and warned of, without what torch says of its own modules and optimizers."""
    caplog.set_level("WARNING")
    of_torch = ("`torch.jit", "Profiler record function", "Profiler function")

    def list_messages():
        messages = [*caplog.messages, *(str(warning.message) for warning in recwarn.list)]
        return [message for message in messages if not message.startswith(of_torch)]

    return list_messages


def test_a_port_in_a_compiled_module_trains_as_alone(make_model, batches, said):
    alone, inside = port(make_model()), Around(port(make_model()))
    compiled = torch.compile(inside, backend="eager")
    said_before = said()

    losses = [compiled(x, y).item() for x, y in batches]

    assert losses == [alone(x * 2, y)[1].item() for x, y in batches]
    assert said() == said_before


def test_a_port_in_a_compiled_function_trains_as_alone(make_model, batches, said):
    alone, ported = port(make_model()), port(make_model())
    said_before = said()

    @torch.compile(backend="eager")
    def train(x, y):
        output, loss = ported(x, y)
        return output.argmax(dim=1), loss * 2

    losses = [train(x, y)[1].item() for x, y in batches]

    assert losses == [alone(x, y)[1].item() * 2 for x, y in batches]
    assert said() == said_before


def test_inference_in_a_compiled_function(make_model, batches):
    ported = port(make_model())
    predict = ported.inference()
    x = batches[0][0]

    compiled = torch.compile(lambda x: predict(x).softmax(dim=1), backend="eager")

    assert torch.equal(compiled(x), predict(x).softmax(dim=1))


@pytest.mark.parametrize("is_step_compiled", [False, True], ids=["module", "step"])
def test_a_host_loop_in_what_is_compiled_trains_as_plainly(make_model, batches, said, is_step_compiled):
    plain, ported = Around(make_model()), Around(to_ipu(make_model(), loop="host"))
    said_before = said()

    def run(around, call, wrap):
        optimizer = sgd(around)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(call(x), y)
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        return [step(x, y).item() for x, y in batches]

    if is_step_compiled:
        losses = run(ported, ported, lambda step: torch.compile(step, backend="eager"))
    else:
        losses = run(ported, torch.compile(ported, backend="eager"), lambda step: step)

    assert losses == pytest.approx(run(plain, plain, lambda step: step), rel=1e-5)
    assert said() == said_before


def test_the_compiled_module_has_the_weights_of_the_device(make_model, batches):
    ported = port(make_model())
    before = copy.deepcopy(ported.state_dict())
    compiled = torch.compile(Around(ported), backend="eager")

    compiled(*batches[0])

    after = compiled.state_dict()
    assert not torch.equal(after["_orig_mod.model.0.weight"], before["0.weight"])
    assert torch.equal(after["_orig_mod.model.0.weight"], ported.state_dict()["0.weight"])


@pytest.mark.skipif(read_version(torch.__version__) < (2, 8), reason="torch shows no reason of others before 2.8")
def test_a_full_graph_is_refused_with_the_reason(make_model, batches):
    compiled = torch.compile(Around(port(make_model())), backend="eager", fullgraph=True)

    with pytest.raises(torch._dynamo.exc.Unsupported, match="compiled for a device already"):
        compiled(*batches[0])


@pytest.mark.slow
def test_torchs_own_backend_gives_the_same(make_model, batches):
    alone, inside = port(make_model()), torch.compile(Around(port(make_model())))

    losses = [inside(x, y).item() for x, y in batches[:3]]

    assert losses == [alone(x * 2, y)[1].item() for x, y in batches[:3]]
