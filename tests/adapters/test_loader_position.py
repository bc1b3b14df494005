"""An epoch goes on after the batches that were seen, in the order that it had."""

from __future__ import annotations

import io
import random

import numpy
import pytest
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, DistributedSampler, RandomSampler, TensorDataset

import porting.simulator
from porting import FixedBatchDataset, fit, partition
from porting.adapters.loader_position import collect_host_streams, collect_streams, read_states, set_states
from porting.diagnostics import OptionError
from tests import resumed_training


@pytest.fixture(autouse=True)
def _host_streams_stay():
    state = random.getstate()
    yield
    random.setstate(state)


def test_samples_that_were_seen_are_not_read_again(tmp_path):
    read = []

    class Counted(TensorDataset):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    def make():
        torch.manual_seed(0)
        ported, _scheduler = resumed_training.make_port()
        data = Counted(torch.randn(24, 4), torch.randint(3, (24,)))
        return ported, ported.dataloader(DataLoader(data, batch_size=4, shuffle=True, collate_fn=list_of_samples))

    def stop(_returned):
        if len(read) >= 16:
            raise KeyboardInterrupt

    ported, loader = make()
    with pytest.raises(KeyboardInterrupt):
        fit(ported, loader, 1, progress=False, checkpoint=tmp_path, every=1, after_call=stop)
    first, read[:] = read[:12], []
    ported, loader = make()
    fit(ported, loader, 1, progress=False, checkpoint=tmp_path)

    assert len(read) == 12
    assert sorted(first + read) == list(range(24))


def list_of_samples(samples):
    """Collate as torch does, by a function that the loader does not know."""
    return torch.utils.data.default_collate(samples)


def test_an_order_that_is_drawn_in_another_process_is_refused(tmp_path):
    ported, _scheduler = resumed_training.make_port()
    data = TensorDataset(torch.ones(24, 4), torch.zeros(24, dtype=torch.int64))
    loader = ported.dataloader(data, shuffle=True, mode=porting.simulator.DataLoaderMode.Async)

    with pytest.raises(OptionError, match="a process of its own"):
        fit(ported, loader, 1, progress=False, checkpoint=tmp_path)

    loader.terminate()


DRAW = {
    "torch": lambda: torch.rand(3).tolist(),
    "python": lambda: [random.random(), random.gauss(0, 1)],
    "numpy": lambda: [*numpy.random.rand(3), numpy.random.randn()],
}


class Noisy(Dataset):
    """A dataset with generators of its own."""

    def __init__(self, **generators):
        vars(self).update(generators)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return torch.tensor([index]), torch.tensor(0)


def stored(states):
    """Write states as a checkpoint does, and read them as anybody can."""
    file = io.BytesIO()
    torch.save(states, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("name", DRAW)
def test_a_stream_of_the_host_goes_on_from_a_stored_state(name):
    DRAW[name]()  # Gaussian numbers come in pairs, and one of a pair is waiting now
    states = stored(read_states(collect_host_streams()))
    expected = [DRAW[name](), DRAW[name]()]

    missing = set_states(collect_host_streams(), states)

    assert missing == []
    assert [DRAW[name](), DRAW[name]()] == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: numpy.random.default_rng(1),
        lambda: numpy.random.Generator(numpy.random.MT19937(1)),
        lambda: numpy.random.Generator(numpy.random.Philox(1)),
        lambda: numpy.random.RandomState(1),
        lambda: random.Random(1),
    ],
    ids=["PCG64", "MT19937", "Philox", "RandomState", "Random"],
)
def test_a_generator_of_a_dataset_goes_on_from_a_stored_state(make):
    generator = make()
    draw = generator.random if hasattr(generator, "random") else generator.rand
    draw()
    streams = collect_streams(DataLoader(Noisy(noise=generator)))
    states = stored(read_states(streams))
    expected = [draw() for _ in range(3)]

    set_states(streams, states)

    assert [draw() for _ in range(3)] == expected


def test_streams_are_found_wherever_a_loader_keeps_them():
    own, inner, loaders = torch.Generator(), random.Random(), torch.Generator()
    data = FixedBatchDataset(ConcatDataset([Noisy(noise=inner), Noisy()]), 4)
    loader = DataLoader(data, sampler=RandomSampler(data, generator=own), generator=loaders)

    found = collect_streams(loader)

    assert found == {"generator": loaders, "sampler.generator": own, "dataset.dataset.datasets[0].noise": inner}


def test_a_generator_that_is_the_hosts_is_not_found_again():
    assert collect_streams(DataLoader(Noisy(), shuffle=True, generator=torch.default_generator)) == {}


def test_epochs_are_counted_on():
    data = TensorDataset(torch.arange(8))
    share, sampler = partition(data, 0, 2, shuffle=True), DistributedSampler(data, num_replicas=2, rank=0)
    for counter in (share, sampler):
        loader = DataLoader(share) if counter is share else DataLoader(data, sampler=sampler)
        counter.set_epoch(3)
        order, states = [batch[0].item() for batch in loader], read_states(collect_streams(loader))
        counter.set_epoch(0)

        set_states(collect_streams(loader), states)

        assert [batch[0].item() for batch in loader] == order


def test_what_is_on_one_side_only_is_told():
    states = read_states({"a": torch.Generator(), "b": torch.Generator()})

    assert set_states({"b": torch.Generator(), "c": torch.Generator()}, states) == ["a", "c"]
