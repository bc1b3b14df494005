"""Instances divide a dataset so that each sample is somebody's, and their counts add up to those of one process."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

import porting.simulator as simulator
from porting import FixedBatchDataset, PortingError, partition, sum_over_instances
from porting.adapters import to_ipu_dataloader
from porting.adapters.instances import average_over_instances

sizes = st.tuples(st.integers(1, 40), st.integers(1, 7))


def options_of(index, size):
    options = simulator.Options()
    options.Distributed.configureProcessId(index, size)
    return options


@pytest.fixture
def second_of_two(monkeypatch):
    """Let this process be the second of two that torchrun has started."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")


@given(sizes, st.booleans())
def test_together_the_shares_have_every_sample_once(numbers, shuffle):
    num_samples, size = numbers

    shares = [partition(range(num_samples), i, size, shuffle=shuffle, force_equal_length=False) for i in range(size)]

    assert sorted(sample for share in shares for sample in share) == list(range(num_samples))


@given(sizes, st.booleans())
def test_shares_of_equal_length_repeat_less_than_one_sample_each(numbers, shuffle):
    num_samples, size = numbers

    shares = [list(partition(range(num_samples), i, size, shuffle=shuffle, seed=3)) for i in range(size)]

    assert {len(share) for share in shares} == {-(-num_samples // size)}
    assert {sample for share in shares for sample in share} == set(range(num_samples))


@given(sizes, st.integers(1, 5))
def test_the_batches_of_all_instances_are_those_of_one_process(numbers, batch):
    num_samples, size = numbers
    order = partition(range(num_samples), 0, 1, shuffle=True, seed=5)

    shares = [list(partition(range(num_samples), i, size, shuffle=True, seed=5)) for i in range(size)]

    of_all = sorted(sample for share in shares for sample in share[:batch])
    of_one = list(order)[: batch * size]
    assert set(of_one) <= set(of_all)
    assert len(of_all) == min(batch * size, len(shares[0]) * size)


def test_an_epoch_has_an_order_of_its_own_that_comes_again():
    share = partition(range(50), 0, 1, shuffle=True)
    first = list(share)

    share.set_epoch(1)
    second = list(share)
    share.set_epoch(0)

    assert second != first
    assert list(share) == first


def test_the_global_generator_is_left_alone():
    before = torch.get_rng_state()

    partition(range(50), 0, 2, shuffle=True).set_epoch(4)

    assert torch.equal(torch.get_rng_state(), before)


def test_a_share_is_that_of_the_process_unless_somebody_says_which(second_of_two):
    assert list(partition("abcdef")) == ["b", "d", "f"]


def test_samples_are_read_at_once_where_the_dataset_can():
    class ReadsAtOnce(list):
        def __getitems__(self, indices):
            return [f"{self[index]} of {len(indices)}" for index in indices]

    share = partition(ReadsAtOnce("abcd"), 1, 2)

    assert share.__getitems__([0, 1]) == ["b of 2", "d of 2"]


def test_padding_before_sharing_out_counts_every_sample_once():
    padded = FixedBatchDataset(TensorDataset(torch.arange(5.0), torch.arange(5)), batch_size=4)

    labels = [int(label) for index in (0, 1) for _x, label in partition(padded, index, 2)]

    assert sorted(labels) == [-100, -100, -100, 0, 1, 2, 3, 4]


@pytest.mark.parametrize(("rank", "size"), [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_that_is_not_among_them_is_refused(rank, size):
    with pytest.raises(PortingError, match="P002"):
        partition("ab", rank, size)


@pytest.mark.parametrize("dataset", [iter("ab"), []])
def test_what_cannot_be_shared_out_is_refused(dataset):
    with pytest.raises(PortingError, match="B004"):
        partition(dataset, 0, 1)


def test_beyond_the_end_of_a_share_there_is_nothing():
    with pytest.raises(IndexError, match="2 samples of instance 0"):
        partition("abc", 0, 2)[2]


# -- loaders -----------------------------------------------------------------------------------------------------------


def test_a_loader_does_not_divide_a_share_again():
    share = partition(TensorDataset(torch.arange(8)), 1, 2)

    loader = to_ipu_dataloader(share, options_of(1, 2), backend=simulator, batch_size=2)

    assert torch.cat([rows for (rows,) in loader]).tolist() == [1, 3, 5, 7]
    assert loader.report.instances == 1


def test_a_loader_does_not_divide_what_a_distributed_sampler_gives():
    dataset = TensorDataset(torch.arange(8))
    source = DataLoader(dataset, batch_size=2, sampler=DistributedSampler(dataset, 2, 1, shuffle=False))

    loader = to_ipu_dataloader(source, options_of(1, 2), backend=simulator)

    assert torch.cat([rows for (rows,) in loader]).tolist() == [1, 3, 5, 7]


def test_the_report_counts_the_samples_of_all_instances():
    with pytest.warns(UserWarning, match="2 instances share the samples"):
        loader = to_ipu_dataloader(TensorDataset(torch.arange(11)), options_of(0, 2), backend=simulator, batch_size=2)

    assert (loader.report.calls_per_epoch, loader.report.samples_lost_per_epoch) == (2, 3)
    assert len(list(loader)) == loader.report.calls_per_epoch


def test_a_share_is_told_to_be_padded_before_it_is_taken():
    with pytest.warns(UserWarning, match=r"`partition\(FixedBatchDataset\(dataset, batch_size=4\)\)`"):
        to_ipu_dataloader(partition(range(5), 0, 2), options_of(0, 2), backend=simulator, batch_size=2)


def test_instances_that_shuffle_need_a_seed_that_makes_them_agree():
    dataset, options = TensorDataset(torch.arange(8)), options_of(0, 2)

    with pytest.raises(PortingError, match="an order of its own"):
        to_ipu_dataloader(dataset, options, backend=simulator, batch_size=2, shuffle=True)
    loader = to_ipu_dataloader(dataset, options.randomSeed(0), backend=simulator, batch_size=2, shuffle=True)

    assert len(loader) == 2


def test_a_sampler_of_all_samples_is_refused_where_instances_have_a_share_each():
    dataset = TensorDataset(torch.arange(8))
    source = DataLoader(dataset, batch_size=2, sampler=RandomSampler(dataset, replacement=True))

    with pytest.raises(PortingError, match="a `RandomSampler` orders all samples"):
        to_ipu_dataloader(source, options_of(0, 2), backend=simulator)


def test_too_few_samples_for_all_instances_are_refused():
    with pytest.raises(PortingError, match="2 instances share the samples") as caught:
        to_ipu_dataloader(TensorDataset(torch.arange(3)), options_of(0, 2), backend=simulator, batch_size=2)

    assert caught.value.finding.help == (
        "lower `micro_batch` from 2 to 1",
        "or pad: `FixedBatchDataset(dataset, batch_size=4)`",
    )


# -- sums --------------------------------------------------------------------------------------------------------------


def test_a_process_by_itself_gets_its_values_back():
    values = torch.tensor([1, 2])

    total = sum_over_instances(values)

    assert total.tolist() == [1, 2]
    assert total is not values


def test_without_a_way_to_the_others_there_is_an_error(second_of_two, monkeypatch):
    monkeypatch.setitem(sys.modules, "horovod.torch", None)

    with pytest.raises(PortingError, match="D008"):
        sum_over_instances([1])


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
@pytest.mark.parametrize(
    "launcher",
    [
        ["-m", "porting", "run", "--num-instances", "2"],
        ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    ],
    ids=["porting run", "torchrun"],
)
def test_real_processes_add_up(launcher, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import porting\n"
        "index = porting.this_instance().index\n"
        "print('sum', porting.sum_over_instances([1, 10 * index]).tolist(), flush=True)\n"
    )

    done = subprocess.run([sys.executable, *launcher, str(program)], capture_output=True, text=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[2.0, 10.0]") == 2


def test_what_a_training_decides_by_is_the_same_for_all_instances(monkeypatch):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda total: total.add_(3.0))

    assert average_over_instances(1.0) == 2.0


def test_a_single_process_decides_by_its_own_value():
    assert average_over_instances(0.1) == 0.1
