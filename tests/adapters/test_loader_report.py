"""Samples that an epoch does not show are counted, and nobody loses them without a word."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import IterableDataset, TensorDataset

from porting.adapters.batches import to_ipu_dataloader
from porting.adapters.fixed_batch import FixedBatchDataset
from porting.diagnostics import BatchError, PortingWarning, Severity
from porting.simulator.enums import CommGroupType
from tests.adapters.device_loaders import BACKEND, convert, device, numbers, order, torch_loader

MUSHROOMS = Path(__file__).parents[3] / "shared" / "data" / "mushrooms.csv"


class Stream(IterableDataset):
    def __iter__(self):
        return iter((torch.tensor(index),) for index in range(10))


class SizedStream(Stream):
    def __len__(self):
        return 10


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 120), st.integers(1, 5), st.integers(1, 3), st.integers(1, 3))
def test_the_report_counts_what_an_epoch_shows(count, batch_size, iterations, accumulation):
    options = device(iterations=iterations, accumulation=accumulation)
    size = batch_size * iterations * accumulation
    count += size

    loader = convert(numbers(count), options, batch_size=batch_size, drop_last=True)

    report, samples = loader.report, order(loader)
    assert report.samples == count == len(samples) + report.samples_lost_per_epoch
    assert report.calls_per_epoch == len(loader) == len(samples) // report.samples_per_call
    assert report.samples_per_call == size


def test_samples_that_divide_are_not_spoken_of():
    loader = convert(torch_loader(numbers(16), 4), device(iterations=2))

    assert loader.report.findings == ()
    assert loader.report.samples_lost_per_epoch == 0


def test_samples_lost_without_a_decision_are_warned_about_with_numbers_and_remedy():
    with pytest.warns(PortingWarning) as shown:
        loader = convert(numbers(50), device(iterations=2, accumulation=3), batch_size=2)

    (finding,) = loader.report.findings
    assert shown[0].message.finding is finding
    assert (finding.code, finding.severity) == ("B006", Severity.WARNING)
    assert finding.message == "2 of 50 samples (4 %) are dropped in every epoch"
    assert "pad the last batch: `FixedBatchDataset(dataset, batch_size=12)`" in finding.help
    assert (loader.report.samples_lost_per_epoch, loader.report.percent_lost) == (2, 4.0)


def test_the_warning_points_at_the_users_line():
    with pytest.warns(PortingWarning) as shown:
        to_ipu_dataloader(numbers(5), device(), backend=BACKEND, batch_size=2)

    assert shown[0].filename == __file__


def test_the_remedy_of_the_warning_helps():
    padded = FixedBatchDataset([(float(index), index) for index in range(50)], batch_size=12)

    loader = convert(padded, device(iterations=2, accumulation=3), batch_size=2)

    assert (loader.report.samples_lost_per_epoch, loader.report.padding_per_epoch) == (0, 10)
    labels = torch.cat([labels for _, labels in loader])
    assert labels[labels >= 0].tolist() == list(range(50))


def test_padding_to_another_size_is_named_in_the_warning():
    padded = FixedBatchDataset([(0.0, index) for index in range(5)], batch_size=6)

    with pytest.warns(PortingWarning, match="the `FixedBatchDataset` was padded to batches of 6"):
        convert(padded, batch_size=4)


def test_the_default_of_a_torch_loader_is_no_decision():
    with pytest.warns(PortingWarning, match="2 of 10 samples"):
        convert(torch_loader(numbers(10), 4))


def test_a_torch_loader_that_drops_as_much_itself_has_decided():
    loader = convert(torch_loader(numbers(10), 4, drop_last=True))

    assert loader.report.samples_lost_per_epoch == 2
    assert loader.report.findings == ()


def test_a_torch_loader_that_drops_less_itself_has_not_decided():
    with pytest.warns(PortingWarning, match="with `drop_last=True` and its own batch size, the loader dropped 2"):
        loader = convert(torch_loader(numbers(22), 4, drop_last=True), device(iterations=3))

    assert loader.report.samples_lost_per_epoch == 10


def test_drop_last_true_drops_without_a_word_and_reports():
    loader = convert(numbers(10), batch_size=4, drop_last=True)

    assert order(loader) == list(range(8))
    assert loader.report.samples_lost_per_epoch == 2


def test_drop_last_false_cannot_be_kept_when_samples_are_left_over():
    with pytest.raises(BatchError, match="`drop_last=False`, but 2 of 10 samples are left over") as caught:
        convert(numbers(10), batch_size=4, drop_last=False)

    assert caught.value.code == "B004"
    assert "a static graph takes full batches only" in caught.value.finding.notes
    assert "pad the last batch: `FixedBatchDataset(dataset, batch_size=4)`" in caught.value.finding.help


def test_drop_last_false_is_kept_when_samples_divide():
    assert order(convert(numbers(8), batch_size=4, drop_last=False)) == list(range(8))


def test_a_dataset_smaller_than_one_call_is_refused_with_numbers():
    with pytest.raises(BatchError, match="the dataset has 20 samples, but one call takes 24") as caught:
        convert(numbers(20), device(iterations=2, accumulation=3, replicas=2), batch_size=2, drop_last=True)

    assert caught.value.code == "B005"
    assert caught.value.finding.notes == (
        "one call: micro-batch 2 x accumulation 3 x replicas 2 x device iterations 2 = 24 samples",
    )


@pytest.mark.parametrize(
    ("count", "sizes", "remedy"),
    [
        (20, {"iterations": 10, "accumulation": 3}, "lower `device_iterations` from 10 to 3 or less"),
        (6, {"iterations": 2, "accumulation": 3}, "lower `device_iterations` from 2 to 1"),
        (5, {"iterations": 2, "accumulation": 3}, "lower `accumulation` from 3 to 1"),
        (1, {"iterations": 2, "accumulation": 3}, "lower more than one of these factors"),
    ],
)
def test_the_remedy_names_a_factor_that_is_enough(count, sizes, remedy):
    with pytest.raises(BatchError) as caught:
        convert(numbers(count), device(**sizes), batch_size=2)

    assert caught.value.finding.help[0] == remedy


def test_the_remedy_for_a_small_dataset_helps():
    loader = convert(numbers(20), device(iterations=3, accumulation=3), batch_size=2, drop_last=True)

    assert len(loader) == 1


def test_an_empty_dataset_is_refused():
    with pytest.raises(BatchError, match="the dataset has 0 samples") as caught:
        convert([], batch_size=2)

    assert caught.value.finding.help == ("pass a dataset that has samples",)


def test_replicas_that_share_their_input_count_once():
    options = device(replicas=4).inputReplicaGrouping(2, CommGroupType.Consecutive)

    loader = convert(numbers(8), options, batch_size=2)

    assert loader.report.samples_per_call == loader.combinedBatchSize == 4


def test_samples_that_cannot_be_counted_are_warned_about():
    with pytest.warns(PortingWarning, match="up to 3 per worker are dropped in every epoch"):
        loader = convert(Stream(), batch_size=4)

    assert order(loader) == list(range(8))
    assert (loader.report.samples, loader.report.calls_per_epoch, loader.report.percent_lost) == (None, None, None)


def test_drop_last_true_settles_it_for_samples_that_cannot_be_counted():
    assert convert(Stream(), batch_size=4, drop_last=True).report.findings == ()


def test_drop_last_false_cannot_be_promised_for_samples_that_cannot_be_counted():
    with pytest.raises(BatchError, match="it is not known whether the samples fill calls of 4") as caught:
        convert(Stream(), batch_size=4, drop_last=False)

    assert caught.value.code == "B010"


def test_an_iterable_dataset_with_a_length_is_counted():
    loader = convert(torch_loader(SizedStream(), 5), batch_size=2)

    assert loader.report.calls_per_epoch == len(loader) == 5


def test_what_several_workers_of_an_iterable_dataset_lose_is_not_known():
    with pytest.warns(PortingWarning, match="cannot be counted"):
        loader = convert(SizedStream(), batch_size=2, num_workers=2, worker_init_fn=print)

    assert loader.report.samples is None


@pytest.mark.skipif(not MUSHROOMS.exists(), reason=f"needs {MUSHROOMS.name} at ../shared/data")
def test_mushrooms_in_calls_of_1024_lose_956_of_8124():
    with MUSHROOMS.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    codes = torch.tensor([[ord(value[0]) for value in row] for row in rows])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PortingWarning)
        loader = convert(TensorDataset(codes[:, 1:], codes[:, 0]), device(iterations=4, accumulation=8), batch_size=32)

    assert sum(len(labels) for _, labels in loader) == 8124 - loader.report.samples_lost_per_epoch
    assert loader.report.samples_lost_per_epoch == 956
