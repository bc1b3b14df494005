"""Every sample of an epoch is accounted for: seen once, dropped, repeated, or padding."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, RandomSampler, TensorDataset

from porting import FixedBatchDataset, partition
from porting.adapters.sample_audit import audit_samples


def _make_dataset(num_samples: int) -> TensorDataset:
    return TensorDataset(torch.arange(num_samples), torch.zeros(num_samples, dtype=torch.int64))


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 4), st.booleans())
def test_what_is_not_dropped_fills_whole_calls(num_samples, batch_size, num_joined, shuffle):
    loader = DataLoader(_make_dataset(num_samples), batch_size=batch_size, shuffle=shuffle)
    samples_per_call = batch_size * num_joined

    audit = audit_samples(loader, samples_per_call=samples_per_call)

    assert audit.num_dropped == num_samples % samples_per_call
    assert audit.num_repeated == audit.num_padding == 0


@given(st.integers(1, 60), st.integers(1, 5))
def test_a_distributed_sampler_repeats_what_makes_its_shares_equal(num_samples, num_ranks):
    dataset = _make_dataset(num_samples)
    loader = DataLoader(dataset, sampler=DistributedSampler(dataset, num_replicas=num_ranks, rank=0))

    audit = audit_samples(loader, samples_per_call=1, instances=num_ranks)

    assert audit.num_repeated == -num_samples % num_ranks
    assert audit.num_dropped == 0


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 4))
def test_a_padded_dataset_shared_out_is_seen_exactly_once(num_samples, num_ranks, batch_size):
    padded = FixedBatchDataset(_make_dataset(num_samples), batch_size=num_ranks * batch_size)
    loader = DataLoader(partition(padded, 0, num_ranks), batch_size=batch_size)

    audit = audit_samples(loader, samples_per_call=batch_size, instances=num_ranks)

    assert audit.is_exact
    assert audit.num_samples == num_samples
    assert audit.num_padding == -num_samples % (num_ranks * batch_size)


def test_instances_without_a_sampler_divide_the_samples_as_a_ports_loader_does():
    audit = audit_samples(DataLoader(_make_dataset(11), batch_size=2), samples_per_call=2, instances=3)

    # three blocks of three samples, of which a call of two is one
    assert audit.num_dropped == 5
    assert audit.num_repeated == 0


def test_a_sampler_with_replacement_repeats_and_leaves_out():
    dataset = _make_dataset(50)

    audit = audit_samples(DataLoader(dataset, sampler=RandomSampler(dataset, replacement=True)), samples_per_call=1)

    assert audit.num_repeated == audit.num_dropped > 0
    assert len(audit.repeated) == 5


def test_the_audit_draws_no_random_number_of_the_training():
    dataset = _make_dataset(20)
    torch.manual_seed(3)
    expected = [batch.tolist() for batch, _label in DataLoader(dataset, batch_size=4, shuffle=True)]
    torch.manual_seed(3)
    loader = DataLoader(dataset, batch_size=4, shuffle=True)

    audit_samples(loader, samples_per_call=4)

    assert [batch.tolist() for batch, _label in loader] == expected


def test_positions_of_an_iterable_dataset_are_not_known():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(4))

    assert audit_samples(DataLoader(Stream()), samples_per_call=1) is None


def test_keys_that_are_no_positions_are_not_counted():
    class Pairs:
        def __iter__(self):
            return iter([[("cat", 1), ("dog", 2)]])

    dataset = {("cat", 1): 0, ("dog", 2): 1}

    assert audit_samples(DataLoader(dataset, batch_sampler=Pairs()), samples_per_call=2) is None
