"""Each side of a proof has its own batches: the reference's come from the user's loader, and nobody's are changed."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import porting
from porting import PortedTraining, PortOptions
from porting.diagnostics import PortingError
from porting.verify import Verdict
from porting.verify.calls import Calls
from porting.verify.inputs import collect_inputs, compare_samples

LOSS = nn.CrossEntropyLoss()


def make_port(model=None, **options):
    model = nn.Linear(4, 3) if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return porting.to_ipu(model, LOSS, optimizer=optimizer, options=PortOptions(**options), device="sim")


def rows(count=24):
    return torch.arange(count * 4.0).reshape(count, 4) / 96, torch.arange(count) % 3


def are_equal(one, other):
    pairs = [(a, b) for (first, _), (second, _) in zip(one, other) for a, b in zip(first, second)]
    return len(one) == len(other) and all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("options", [{}, {"accumulation": 2}, {"device_iterations": 3}, {"micro_batch": 2}])
@pytest.mark.parametrize("settings", [{}, {"shuffle": True}, {"shuffle": True, "drop_last": True}], ids=str)
def test_the_ports_loader_gives_what_the_users_own_gives_joined_to_calls(options, settings):
    loader = DataLoader(TensorDataset(*rows()), batch_size=4, **settings)

    inputs = collect_inputs(loader, PortedTraining(make_port(**options)), 9, seed=3)

    assert inputs.theirs is inputs.calls
    assert len(inputs.calls) == 9


class Noisy(Dataset):
    """Draws a number for each sample."""

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return torch.full((4,), float(index)) + torch.rand(4), index % 3


class Counting(IterableDataset):
    def __iter__(self):
        return iter([(torch.full((4,), float(number)), number % 3) for number in range(24)])


@pytest.mark.filterwarnings("ignore:warning.B010:porting.diagnostics.delivery.PortingWarning")
@pytest.mark.parametrize("dataset", [Noisy, Counting])
def test_samples_that_are_drawn_or_divided_among_processes_are_loaded_in_this_one(dataset):
    loader = DataLoader(dataset(), batch_size=4, num_workers=2)

    inputs = collect_inputs(loader, PortedTraining(make_port(accumulation=2)), 3, seed=3)

    assert inputs.theirs is inputs.calls
    assert loader.num_workers == 2


def test_a_loader_goes_on_afterwards_as_if_nobody_had_asked_it():
    draws = torch.Generator().manual_seed(5)
    loader = DataLoader(TensorDataset(*rows()), batch_size=4, shuffle=True, generator=draws)
    before = draws.get_state()

    collect_inputs(loader, PortedTraining(make_port()), 3, seed=3)

    assert torch.equal(draws.get_state(), before)


def test_batches_of_several_lengths_are_refused_with_their_shapes():
    def pad(samples):
        width = max(int(label) for _x, label in samples) + 2
        return torch.stack([x[:width] for x, _label in samples]), torch.stack([label for _x, label in samples])

    loader = DataLoader(TensorDataset(rows()[0], torch.arange(24) // 12), batch_size=8, collate_fn=pad)

    with pytest.raises(PortingError, match=r"cannot be joined") as caught:
        collect_inputs(loader, PortedTraining(make_port(device_iterations=3)), 1, seed=3)

    assert caught.value.code == "V002"


def test_a_loader_that_fills_the_same_tensors_again_gives_other_batches():
    x, y = rows(4)

    class Filling:
        def __iter__(self):
            for number in range(3):
                yield x.fill_(float(number)), y

    inputs = collect_inputs(Filling(), PortedTraining(make_port()), 3, seed=3)

    assert [args[0][0, 0].item() for args, _kwargs in inputs.calls] == [0.0, 1.0, 2.0]


# -- what is changed in place


class Halving(nn.Linear):
    """Changes its input in place."""

    def forward(self, x):
        return super().forward(x.mul_(0.5))


def prove(model, **settings):
    given = [(torch.randn(6, 4), torch.randint(3, (6,))) for _ in range(2)]
    before = copy.deepcopy(given)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    certificate = porting.verify(model, LOSS, given, optimizer=optimizer, steps=4, device="sim", **settings)
    assert all(torch.equal(a, b) for one, other in zip(given, before) for a, b in zip(one, other))
    return certificate


def test_a_model_that_changes_its_input_in_place_passes_and_what_it_changes_is_compared():
    certificate = prove(Halving(4, 3))

    compared = {kind.kind: kind.num_compared for kind in certificate.kinds}
    assert certificate.verdict is Verdict.PASS
    assert compared["input"] == 4


def test_a_loop_that_changes_its_batch_in_place_is_found_there():
    def port(model):
        def call(ported, x, y):
            return ported(x.copy_((10 * x).round() / 10), y)

        return PortedTraining(make_port(model, keep_gradients=True), call=call)

    certificate = prove(nn.Linear(4, 3), ported=port)

    assert certificate.verdict is Verdict.FAIL
    assert (certificate.first.kind, certificate.first.note) == ("input", "only the port changes it in place")


# -- samples -----------------------------------------------------------------------------------------------------------

X, Y = torch.arange(8.0).view(4, 2), torch.arange(4)


def compare(theirs, *, ours=(X, Y), source=None, batches=None, **options):
    ported = PortedTraining(SimpleNamespace(options=PortOptions(**options)), batches=batches)
    return list(compare_samples(source, ported, Calls([(ours, {})]), Calls([(theirs, {})])))


def test_the_same_samples_are_no_difference():
    (found,) = compare((X.clone(), Y.clone()))

    assert found.is_inside


@pytest.mark.parametrize(
    ("theirs", "note"),
    [
        ((X, Y.roll(1)), "tensor 1 of the batch has other values"),
        ((X.flip(0), Y.flip(0)), "tensor 0 of the batch has other values"),
        ((X[:3], Y[:3]), "[[3, 2], [3]] in the port, not [[4, 2], [4]]"),
        ((X,), "[[4, 2]] in the port, not [[4, 2], [4]]"),
    ],
)
def test_other_samples_are_told(theirs, note):
    (found,) = compare(theirs)

    assert not found.is_inside
    assert found.note == note


def test_batches_that_both_share_are_not_compared():
    calls = Calls([((X, Y), {})])

    assert list(compare_samples(None, PortedTraining(SimpleNamespace(options=PortOptions())), calls, calls)) == []


def test_samples_that_the_ports_epoch_drops_are_counted():
    data = TensorDataset(torch.arange(10.0))
    plain = DataLoader(data, batch_size=2)

    found = compare((X, Y), source=plain, batches=DataLoader(data, batch_size=4, drop_last=True), micro_batch=4)

    (dropped,) = (one for one in found if one.name == "dropped")
    assert not dropped.is_inside
    assert "an epoch of the port has 2 samples dropped, one of plain PyTorch 0" in dropped.note
