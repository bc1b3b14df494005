"""Batches of several shapes: an executable for each, one training, equal to eager PyTorch's."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from porting import PortOptions, to_ipu
from porting.diagnostics import BatchError
from porting.diagnostics.delivery import PortingWarning

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5),
}


def make_net(dropout=0.2):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(dropout), nn.ReLU(), nn.Linear(8, 3))


def make_batches(sizes):
    torch.manual_seed(2)
    return [(torch.randn(size, 4), torch.randint(3, (size,))) for size in sizes]


def train_eager(batches, make_optimizer, gamma=0.9, dropout=0.2):
    net = make_net(dropout)
    optimizer = make_optimizer(net.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)
    torch.manual_seed(3)
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return net, optimizer, losses


def port(net, optimizer=None, *, most, **settings):
    options = PortOptions(max_executables=most, frozen="allow")
    return to_ipu(net, nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim", **settings)


def train_ported(batches, make_optimizer, most, gamma=0.9):
    net = make_net()
    optimizer = make_optimizer(net.parameters())
    ported = port(net, optimizer, most=most)
    schedule = ported.scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma))
    torch.manual_seed(3)
    losses = []
    for x, y in batches:
        losses.append(ported(x, y)[1].item())
        schedule.step()
    return ported, optimizer, losses


def assert_same_training(ported, plain):
    (model, optimizer, losses), (net, eager_optimizer, expected) = ported, plain
    assert losses == expected
    for name, tensor in net.state_dict().items():
        assert torch.equal(model.state_dict()[name], tensor), name
    state = optimizer.state_dict()["state"]
    for number, values in eager_optimizer.state_dict()["state"].items():
        for name, value in values.items():
            # the device keeps no steps for RMSprop, which needs none
            if isinstance(value, torch.Tensor) and not (name == "step" and isinstance(optimizer, torch.optim.RMSprop)):
                assert torch.equal(state[number][name], value), (number, name)


@pytest.mark.parametrize("make_optimizer", OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_alternating_shapes_train_as_eager_pytorch_with_schedule_state_and_dropout(make_optimizer):
    batches = make_batches([8, 8, 5, 8, 5, 7, 7, 8, 5, 7])

    ported = train_ported(batches, make_optimizer, most=3)

    assert_same_training(ported, train_eager(batches, make_optimizer))
    assert sorted(record.num_calls for record in ported[0].report().executors) == [3, 3, 4]
    assert all(record.num_compilations == 1 for record in ported[0].report().executors)


@given(sizes=st.lists(st.integers(2, 6), min_size=1, max_size=8), most=st.integers(2, 4))
@settings(max_examples=15, deadline=None)
def test_any_order_of_shapes_trains_as_eager_pytorch_whatever_is_dropped(sizes, most):
    batches = make_batches(sizes)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PortingWarning)
        ported = train_ported(batches, OPTIMIZERS["Adam"], most)

    assert_same_training(ported, train_eager(batches, OPTIMIZERS["Adam"]))
    assert len(ported[0].report().executors) <= most


def test_each_compilation_is_reported_with_what_differed():
    ported = port(make_net(), most=2)
    for x, y in make_batches([4, 6]):
        ported(x, y)

    (finding,) = [finding for finding in ported.report().findings if finding.code == "B001"]
    assert finding.severity.value == "note"
    assert finding.message.endswith("in the batch that was compiled for: training gets executable 2 of 2")
    assert finding.notes == ("compiled for: float32[4, 4]", "this call:    float32[6, 4]")


def test_one_shape_too_many_drops_the_least_recently_used_one_and_suggests_buckets():
    ported = port(make_net(), most=2)
    batches = make_batches([4, 6, 4, 9])
    for x, y in batches[:3]:
        ported(x, y)

    with pytest.warns(PortingWarning, match="`max_executables` is 2: training drops the executable") as caught:
        ported(*batches[3])

    finding = ported.report().findings[-1]
    assert finding.code == "B001"
    assert finding.help[0].startswith("pad dimension 0 of argument 0 to few lengths, such as 6, 9: ")
    assert "PortOptions(max_executables=3)" in finding.help[1]
    assert len(caught) == 1
    ported(*batches[2])  # that of 4 rows was used after that of 6, and is there
    assert sum(record.num_compilations for record in ported.report().executors) == 3


def test_without_the_option_another_shape_is_an_error():
    ported = port(make_net(), most=1)
    (x, y), (others, labels) = make_batches([4, 6])
    ported(x, y)

    with pytest.raises(BatchError, match="B001"):
        ported(others, labels)


def test_shapes_can_be_compiled_beforehand():
    ported = port(make_net(), most=2)
    batches = make_batches([4, 6])

    seconds = [ported.compile(*batch) for batch in (*batches, *batches)]

    assert all(taken > 0 for taken in seconds[:2])
    assert seconds[2:] == [0.0, 0.0]
    assert ported.report().num_training_calls == 0


def test_inference_and_evaluation_have_executables_of_their_own():
    net = make_net()
    ported = port(net, most=2)
    batches = make_batches([4, 6, 4])
    ported(*batches[0])
    inference = ported.inference()

    outputs = [inference(x) for x, _y in batches]
    losses = [ported.eval()(x, y)[1] for x, y in batches]

    plain = make_net()
    plain.load_state_dict(ported.state_dict())
    plain.eval()
    for (x, y), output, loss in zip(batches, outputs, losses):
        assert torch.equal(output, plain(x))
        assert torch.equal(loss, F.cross_entropy(plain(x), y))


def test_a_training_goes_on_from_a_checkpoint_made_between_shapes(tmp_path):
    batches = make_batches([4, 6, 4, 6, 6, 4])
    whole, _optimizer, expected = train_ported(batches, OPTIMIZERS["Adam"], most=2, gamma=1.0)
    ported, _optimizer, losses = train_ported(batches[:3], OPTIMIZERS["Adam"], most=2, gamma=1.0)
    ported.save(tmp_path / "half.pt")

    net = make_net()
    resumed = port(net, OPTIMIZERS["Adam"](net.parameters()), most=2)
    schedule = torch.optim.lr_scheduler.ExponentialLR(resumed.port_optimizer.given, 1.0)
    resumed.scheduler(schedule)
    resumed.load(tmp_path / "half.pt", schedulers=[])
    losses += [resumed(x, y)[1].item() for x, y in batches[3:]]

    assert losses == expected
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_compilation_that_ends_early_leaves_the_training_as_it_was(error, monkeypatch):
    batches = make_batches([4, 6, 4, 6])
    plain = train_eager(batches[0::2] + batches[1:2], OPTIMIZERS["Adam"], gamma=1.0)
    net = make_net()
    ported = port(net, optimizer := OPTIMIZERS["Adam"](net.parameters()), most=2)
    torch.manual_seed(3)
    losses = [ported(*batches[0])[1].item()]

    def stop(*_args):
        raise error

    monkeypatch.setattr(net[3], "forward", stop)
    with pytest.raises(error):
        ported(*batches[1])
    monkeypatch.undo()
    losses += [ported(*batch)[1].item() for batch in (batches[2], batches[1])]

    assert_same_training((ported, optimizer, losses), plain)


def test_destroyed_shapes_compile_anew_and_keep_the_optimizers_state():
    batches = make_batches([4, 6, 4, 6])
    net = make_net(dropout=0.0)
    optimizer = OPTIMIZERS["Adam"](net.parameters())
    ported = port(net, optimizer, most=2)

    losses = [ported(*batch)[1].item() for batch in batches[:2]]
    ported.destroy()
    losses += [ported(*batch)[1].item() for batch in batches[2:]]

    assert_same_training((ported, optimizer, losses), train_eager(batches, OPTIMIZERS["Adam"], gamma=1.0, dropout=0.0))


# -- a loop on the host ----------------------------------------------------------------------------------------------


def test_a_host_loop_has_executables_for_each_shape():
    batches = make_batches([8, 5, 8, 5, 7, 8])
    net, eager = make_net(dropout=0.0), make_net(dropout=0.0)
    losses = []
    called = to_ipu(net, loop="host", options=PortOptions(max_executables=3), device="sim")
    for model, call in ((net, called), (eager, eager)):
        optimizer = OPTIMIZERS["Adam"](model.parameters())
        for x, y in batches:
            optimizer.zero_grad()
            loss = F.cross_entropy(call(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())

    assert losses[:6] == losses[6:]
    assert len(called.report().executors) == 6
    assert all(torch.equal(eager.state_dict()[name], tensor) for name, tensor in net.state_dict().items())


def test_a_host_loop_drops_the_least_recently_used_pair():
    called = to_ipu(make_net(dropout=0.0), loop="host", options=PortOptions(max_executables=2), device="sim")
    batches = make_batches([4, 6, 4, 9])
    for x, _y in batches[:3]:
        called(x).sum().backward()

    with pytest.warns(PortingWarning, match="B001"):
        called(batches[3][0]).sum().backward()

    assert len(called.report().executors) == 4


# -- executables on disk ---------------------------------------------------------------------------------------------


def test_executables_of_each_shape_are_found_on_disk(tmp_path, interpreted_engine):
    batches = make_batches([8, 5])
    records = []
    for _program in range(2):
        net = make_net(dropout=0.0)
        options = PortOptions(max_executables=2, engine="interpreted", cache_dir=tmp_path, frozen="allow")
        optimizer = OPTIMIZERS["SGD"](net.parameters())
        ported = to_ipu(net, nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim")
        for batch in batches:
            ported(*batch)
        records.append(ported.report().executors)
        ported.destroy()

    assert [record.cache for record in records[0]] == ["miss", "miss"]
    assert [record.cache for record in records[1]] == ["hit", "hit"]
    assert all(record.compiler_seconds == 0.0 for record in records[1])
    assert interpreted_engine.calls == ["compile", "load"] * 2 + ["load"] * 2
