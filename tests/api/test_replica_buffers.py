"""Replicas keep buffers of their own through inference, evaluation and batches of other shapes, to the last bit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics.delivery import PortingWarning

OPTIONS = PortOptions(micro_batch=3, replicas=2, broadcast_buffers=False, frozen="allow", engine="replay")


def port(make_model, *, learning_rate=0.1, **changes):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate, momentum=0.9)
    options = OPTIONS.replace(**changes)
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim")


def read_replicas(ported):
    """The running statistics of all replicas, as the device has them."""
    state = ported._runners.training.executor.device_session.compiled.state
    return [{name: buffers[name].clone() for name in buffers if "running" in name} for buffers in state.buffers]


def assert_same(one, other):
    for ours, theirs in zip(read_replicas(one), read_replicas(other)):
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    weights = other.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in one.state_dict().items())


def infer(ported, x, _y):
    ported.inference()(x)


def evaluate(ported, x, y):
    ported.eval()
    ported(x, y)
    ported.train()


def release_the_device(ported, _x, _y):
    ported.detach()


def end_the_executables(ported, _x, _y):
    ported.destroy()


def go_on_from_a_checkpoint(ported, _x, _y):
    ported.save("checkpoint.pt")
    ported.load("checkpoint.pt")


def load_its_own_state(ported, _x, _y):
    ported.load_state_dict(ported.state_dict())


def write_a_weight(ported, _x, _y):
    with torch.no_grad():
        next(ported.parameters()).mul_(1.0)


def load_the_optimizer(ported, _x, _y):
    optimizer = ported.port_optimizer.given
    optimizer.load_state_dict(optimizer.state_dict())


BETWEEN = [
    *(infer, evaluate, release_the_device),
    *(end_the_executables, go_on_from_a_checkpoint, load_its_own_state, write_a_weight, load_the_optimizer),
]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("every", [1, 2, 5])
def test_a_training_with_other_calls_in_between_is_that_without(
    between, every, make_model, batches, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    interrupted, plain = port(make_model), port(make_model)

    for step, (x, y) in enumerate(batches[:10]):
        losses = [ported(x, y)[1] for ported in (interrupted, plain)]
        assert torch.equal(*losses)
        if step % every == 0 and step < 9:
            between(interrupted, x, y)

    first, second = read_replicas(plain)
    assert not torch.equal(first["1.running_mean"], second["1.running_mean"])
    assert_same(interrupted, plain)


def train_with_all_that_a_training_has(between):
    """Random numbers, momenta, a schedule, groups of all kinds and both kinds of average; `between` runs each step."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.BatchNorm1d(8, momentum=None), nn.Linear(8, 3)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options = OPTIONS.replace(accumulation=2, device_iterations=2, seed=3)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim")
    schedule = ported.scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9))
    for number in range(8):
        x = torch.randn(24, 4, generator=torch.Generator().manual_seed(number))
        y = torch.arange(24) % 3
        between(ported, x, y)
        ported(x, y)
        schedule.step()
    return ported


def test_all_that_a_training_has_goes_on_as_without_other_calls():
    def infer_and_evaluate(ported, x, y):
        ported.inference()(x[:12])
        evaluate(ported, x, y)

    interrupted = train_with_all_that_a_training_has(infer_and_evaluate)
    plain = train_with_all_that_a_training_has(lambda *_batch: None)

    assert_same(interrupted, plain)


@pytest.mark.parametrize("most", [2, 3])
def test_executables_of_several_shapes_go_on_with_the_buffers_of_all_replicas(most, make_model, batches):
    """The weights stay as they are, so that each replica's statistics are those of its own rows."""
    ported = port(make_model, learning_rate=0.0, micro_batch=1, max_executables=most)
    replicas = [make_model(), make_model()]

    for number, (x, y) in enumerate(batches[:9]):
        size = 4 - number % most
        rows = torch.cat([x, x.roll(1, dims=1)])[: 2 * size]
        ported(rows, y.repeat(2)[: 2 * size])
        ported.inference()(x[:2])
        for replica, own in zip(replicas, rows.split(size)):
            replica(own)

    for kept, replica in zip(read_replicas(ported), replicas):
        assert torch.equal(kept["1.running_mean"], replica[1].running_mean)
        assert torch.equal(kept["1.running_var"], replica[1].running_var)


def test_buffers_that_the_host_has_written_to_since_are_those_of_the_host(make_model, batches):
    ported = port(make_model, learning_rate=0.0)
    x, y = batches[0]
    ported(x, y)
    ported.inference()(x)

    with torch.no_grad():
        ported.model[1].running_mean.fill_(3.0)
    ported(x[:3].repeat(2, 1), y)

    first, second = read_replicas(ported)
    assert torch.equal(first["1.running_mean"], second["1.running_mean"])
    assert not torch.equal(first["1.running_var"], second["1.running_var"])


def test_another_port_goes_on_from_a_checkpoint_with_the_buffers_of_all_replicas(make_model, batches, tmp_path):
    plain, again = port(make_model), port(make_model)
    for x, y in batches[:2]:
        plain(x, y)

    plain.save(tmp_path / "checkpoint.pt")
    again.load(tmp_path / "checkpoint.pt")
    for ported in (plain, again):
        ported(*batches[2])

    assert_same(again, plain)


def test_another_number_of_replicas_cannot_have_those_of_a_checkpoint(make_model, batches, tmp_path):
    plain, again = port(make_model), port(make_model, micro_batch=2, replicas=3)
    plain(*batches[0])
    plain.save(tmp_path / "checkpoint.pt")

    again.load(tmp_path / "checkpoint.pt")

    with pytest.warns(PortingWarning, match="P011.*the replicas go on with the running statistics of the first one"):
        again(*batches[1])


def test_a_machine_that_cannot_hand_them_over_says_so(make_model, batches, monkeypatch):
    ported = port(make_model)
    ported(*batches[0])
    monkeypatch.setattr(type(ported._port.backend), "compiled_step", lambda _backend, _executor: None)
    ported.inference()(batches[0][0])

    with pytest.warns(PortingWarning, match="P011.*the replicas go on with the running statistics of the first one"):
        ported(*batches[1])
