"""BatchNorm's batches are counted as in the plain loop, for which a device has no integers."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.adapters.batch_counts import BatchCounts

ROWS = 4


class Norms(nn.Module):
    """A BatchNorm that is used twice, one that is not used, and others that do not count."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.twice = self.alias = nn.BatchNorm1d(6)
        self.unused = nn.BatchNorm1d(6)
        self.of_batch = nn.BatchNorm1d(6, track_running_stats=False)
        self.of_image = nn.InstanceNorm1d(6, track_running_stats=True)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        x = self.of_batch(self.alias(self.twice(self.linear(x))))
        return self.head(self.of_image(x[..., None].expand(-1, -1, 3) * x.new_tensor([1.0, 2.0, 3.0])).sum(-1))


def make_pair():
    torch.manual_seed(0)
    model = Norms()
    return model, copy.deepcopy(model)


def make_port(model, **options):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options = PortOptions(engine="replay", **options)
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, device="sim", options=options)


def call(ported, *, rows=ROWS):
    ported(torch.randn(rows, 4), torch.randint(3, (rows,)))


def read_counts(state):
    return {name: int(value) for name, value in state.items() if name.endswith("num_batches_tracked")}


@pytest.mark.parametrize(
    ("options", "num_runs"),
    [
        ({}, 1),
        ({"device_iterations": 2}, 2),
        ({"device_iterations": 2, "accumulation": 3}, 6),
        ({"replicas": 2, "broadcast_buffers": False}, 1),
    ],
)
def test_each_micro_batch_of_a_replica_counts(options, num_runs):
    model, plain = make_pair()
    ported = make_port(model, **options)

    for _ in range(3):
        call(ported, rows=ROWS * num_runs * options.get("replicas", 1))
        for _ in range(num_runs):
            plain(torch.randn(ROWS, 4))

    assert read_counts(ported.state_dict()) == read_counts(plain.state_dict())


@pytest.mark.parametrize("look", [lambda ported: ported.state_dict(), lambda ported: None], ids=["looked at", "unseen"])
def test_the_count_goes_on_after_looks_and_destroy(look):
    model, _ = make_pair()
    ported = make_port(model)

    for _ in range(2):
        call(ported)
        look(ported)
    ported.destroy()
    call(ported)
    look(ported)
    model(torch.randn(ROWS, 4))

    assert model.twice.num_batches_tracked == 2 * 4


def test_a_count_that_the_user_sets_goes_on_from_there():
    model, _ = make_pair()
    ported = make_port(model)
    call(ported)

    model.twice.reset_running_stats()
    call(ported)

    assert model.twice.num_batches_tracked == 2


def test_evaluation_counts_nothing():
    model, _ = make_pair()
    ported = make_port(model)
    call(ported)

    ported.inference()(torch.randn(ROWS, 4))

    assert model.twice.num_batches_tracked == 2


def test_a_loop_on_the_host_counts_the_same():
    model, plain = make_pair()
    ported = to_ipu(model, loop="host", device="sim", options=PortOptions(engine="replay"))

    for forward in (ported, plain):
        [forward(torch.randn(ROWS, 4)) for _ in range(3)]

    assert read_counts(ported.state_dict()) == read_counts(plain.state_dict())


def test_without_a_graph_each_norm_in_train_mode_counts_once():
    model, _ = make_pair()
    model.unused.eval()
    counts = BatchCounts(model, None)

    counts.num_unseen = 3
    with counts.survive_fetch():
        model.twice.num_batches_tracked.zero_()

    assert (int(model.twice.num_batches_tracked), int(model.unused.num_batches_tracked)) == (3, 0)
