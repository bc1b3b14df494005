"""Padding to full batches: every sample once, nothing else in the loss."""

from __future__ import annotations

import csv
import math
import pickle
from collections import Counter, OrderedDict, namedtuple
from pathlib import Path
from types import MappingProxyType

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

from porting.adapters.fixed_batch import FixedBatchDataset, count_real, masked_accuracy, masked_mean
from porting.diagnostics import BatchError

MUSHROOMS = Path(__file__).parents[3] / "shared" / "data" / "mushrooms.csv"


def labelled(count):
    """A list of `count` samples whose input is their index."""
    return [(torch.tensor(float(index)), index) for index in range(count)]


# lengths and indices


@given(st.integers(1, 200), st.integers(1, 50))
def test_the_length_is_the_next_multiple_of_the_batch_size(count, batch_size):
    padded = FixedBatchDataset(labelled(count), batch_size)

    assert len(padded) == math.ceil(count / batch_size) * batch_size
    assert (padded.num_real, padded.num_padding) == (count, len(padded) - count)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.integers(1, 20), st.booleans())
def test_every_sample_is_seen_exactly_once_an_epoch(count, batch_size, shuffle):
    loader = DataLoader(FixedBatchDataset(labelled(count), batch_size), batch_size, shuffle=shuffle)

    batches = list(loader)

    labels = torch.cat([labels for _, labels in batches])
    assert {len(labels) for _, labels in batches} == {batch_size}
    assert sorted(labels[labels != -100].tolist()) == list(range(count))


@given(st.integers(1, 30), st.integers(1, 10), st.data())
def test_negative_indices_count_from_the_end(count, batch_size, data):
    padded = FixedBatchDataset(labelled(count), batch_size)
    index = data.draw(st.integers(0, len(padded) - 1))

    assert padded[index - len(padded)] == padded[index]
    assert padded.is_padding(index - len(padded)) == padded.is_padding(index) == (index >= count)


@pytest.mark.parametrize("index", [8, 100, -9])
def test_an_index_beyond_the_end_is_an_index_error(index):
    padded = FixedBatchDataset(labelled(5), 4)

    with pytest.raises(IndexError, match=f"index {index} is out of range for 8 samples"):
        padded[index]


def test_iterating_ends_with_the_padding():
    assert [label for _, label in FixedBatchDataset(labelled(3), 4)] == [0, 1, 2, -100]


def test_a_dataset_that_divides_is_passed_on_as_it_is():
    samples = [("any", "thing"), ("at", "all")]

    assert [*FixedBatchDataset(samples, 2)] == samples


# samples


def test_padding_is_sample_0_with_the_ignored_label():
    padding = FixedBatchDataset(labelled(5), 4, ignore_label=-1)[7]

    assert padding == (torch.tensor(0.0), -1)


def test_a_label_map_is_filled_whole_and_keeps_dtype_and_shape():
    data = TensorDataset(torch.rand(3, 2, 4, 5), torch.ones(3, 4, 5, dtype=torch.int32))

    _, label = FixedBatchDataset(data, 2)[3]

    assert torch.equal(label, torch.full((4, 5), -100, dtype=torch.int32))


@pytest.mark.parametrize(
    "label", [3, numpy.int64(3), numpy.int8(3), torch.tensor(3), torch.tensor(3, dtype=torch.int16)]
)
def test_a_scalar_label_keeps_its_type(label):
    _, padding = FixedBatchDataset([(0.5, label)], 2)[1]

    assert padding == -100
    assert type(padding) is type(label)
    assert getattr(padding, "dtype", None) == getattr(label, "dtype", None)


def test_a_numpy_label_map_keeps_dtype_and_shape():
    _, padding = FixedBatchDataset([(0.5, numpy.ones((2, 3), numpy.uint8))], 2, ignore_label=255)[1]

    assert padding.dtype == numpy.uint8
    assert padding.tolist() == [[255] * 3] * 2


def test_a_label_is_found_by_position():
    assert FixedBatchDataset([(7, 1.5, 2.5)], 2, label=0)[1] == (-100, 1.5, 2.5)


def test_a_label_is_found_by_key():
    assert FixedBatchDataset([{"x": 1.5, "y": 7}], 2, label="y")[1] == {"x": 1.5, "y": -100}


Sample = namedtuple("Sample", "x y")


@pytest.mark.parametrize("sample", [(1.5, 7), [1.5, 7], Sample(1.5, 7)], ids=["tuple", "list", "named tuple"])
def test_a_sequence_keeps_its_type(sample):
    padding = FixedBatchDataset([sample], 2)[1]

    assert list(padding) == [1.5, -100]
    assert type(padding) is type(sample)


def test_a_mapping_keeps_its_type():
    assert FixedBatchDataset([OrderedDict(y=7)], 2, label="y")[1] == OrderedDict(y=-100)
    assert FixedBatchDataset([MappingProxyType({"y": 7})], 2, label="y")[1] == {"y": -100}


@pytest.mark.parametrize(("sample", "label"), [([1.5, 7], -1), ({"x": 1.5, "y": 7}, "y")], ids=["list", "dict"])
def test_the_datasets_own_sample_is_not_written_to(sample, label):
    before = list(sample.values()) if isinstance(sample, dict) else list(sample)

    FixedBatchDataset([sample], 2, label=label)[1]

    assert (list(sample.values()) if isinstance(sample, dict) else list(sample)) == before


# loading


class Several(Dataset):
    """Reads several samples in one call and counts the calls."""

    def __init__(self, count):
        self.count = count
        self.asked_for = []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return self.__getitems__([index])[0]

    def __getitems__(self, indices):
        self.asked_for.append(list(indices))
        return [(float(index), index) for index in indices]


def test_several_samples_are_read_at_once_where_the_dataset_can():
    data = Several(3)
    padded = FixedBatchDataset(data, 4)
    data.asked_for.clear()

    samples = padded.__getitems__([2, 3, -4, 1])

    assert samples == [(2.0, 2), (0.0, -100), (0.0, 0), (1.0, 1)]
    assert data.asked_for == [[2, 0, 0, 1]]


def test_several_samples_are_read_one_by_one_where_it_cannot():
    assert FixedBatchDataset(labelled(2), 3).__getitems__([2, 1]) == [(0.0, -100), (1.0, 1)]


def test_it_survives_pickling():
    padded = pickle.loads(pickle.dumps(FixedBatchDataset(labelled(3), 4)))

    assert [label for _, label in padded] == [0, 1, 2, -100]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning", "ignore:This DataLoader will create:UserWarning")
def test_worker_processes_load_the_same():
    padded = FixedBatchDataset(labelled(7), 4)

    batches = [labels.tolist() for _, labels in DataLoader(padded, 4, num_workers=2)]

    assert batches == [[0, 1, 2, 3], [4, 5, 6, -100]]


# what cannot be padded


@pytest.mark.parametrize(
    "label",
    [1.5, torch.tensor(1.5), numpy.float32(1.5), True, torch.tensor(True), "cat", None],
    ids=lambda label: type(label).__name__,
)
def test_a_label_that_no_loss_ignores_is_refused_before_training(label):
    with pytest.raises(BatchError, match="which has no value that a loss ignores") as caught:
        FixedBatchDataset([(0.5, label)], 2)

    assert caught.value.code == "B007"


def test_an_ignored_label_that_does_not_fit_is_refused():
    labels = torch.zeros(3, 2, 2, dtype=torch.uint8)

    with pytest.raises(BatchError, match="`ignore_label=-100` does not fit into the label, a Tensor of torch.uint8"):
        FixedBatchDataset(TensorDataset(labels), 2)


@pytest.mark.parametrize(
    ("sample", "label", "fact"),
    [
        ((1.5, 7), 2, "a `tuple` with 2 parts"),
        ((1.5, 7), "y", "a `tuple` with 2 parts"),
        ({"x": 1.5, "y": 7}, -1, "a `dict` with the keys `x`, `y`"),
    ],
)
def test_a_missing_label_is_refused_with_what_the_sample_has(sample, label, fact):
    with pytest.raises(BatchError, match=f"no label at {label!r}") as caught:
        FixedBatchDataset([sample], 2, label=label)

    assert fact in str(caught.value)


def test_a_sample_without_parts_is_refused():
    with pytest.raises(BatchError, match="a sample is of type `Tensor`, so no label is found in it"):
        FixedBatchDataset([torch.rand(3)], 2)


@pytest.mark.parametrize("batch_size", [0, -4, 2.5, "8", True, None])
def test_a_batch_size_that_counts_nothing_is_refused(batch_size):
    with pytest.raises(BatchError, match="not a positive number of samples"):
        FixedBatchDataset(labelled(3), batch_size)


def test_a_dataset_without_samples_is_refused():
    with pytest.raises(BatchError, match="the dataset has no samples"):
        FixedBatchDataset([], 4)


def test_a_dataset_without_indices_is_refused():
    with pytest.raises(BatchError, match="`generator` has no length and no samples by index"):
        FixedBatchDataset((sample for sample in labelled(3)), 4)


# the proof: padding changes neither the loss nor a gradient


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 9), batch_size=st.integers(1, 12), seed=st.integers(0, 99))
def test_loss_and_gradient_of_a_padded_batch_are_those_of_its_real_samples(reduction, count, batch_size, seed):
    generator = torch.Generator().manual_seed(seed)
    x_BF = torch.randn(count, 6, generator=generator, dtype=torch.float64)
    y_B = torch.randint(4, (count,), generator=generator)
    weight_CF = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    padded = FixedBatchDataset(TensorDataset(x_BF, y_B), batch_size)
    x_padded, y_padded = next(iter(DataLoader(padded, len(padded))))

    loss, gradient = loss_and_gradient(weight_CF, x_padded, y_padded, reduction)

    expected_loss, expected_gradient = loss_and_gradient(weight_CF, x_BF, y_B, reduction)
    assert torch.allclose(loss, expected_loss, rtol=1e-12)
    assert torch.allclose(gradient, expected_gradient, rtol=1e-12, atol=1e-12)


def loss_and_gradient(weight, x, y, reduction):
    weight = weight.clone().requires_grad_()
    loss = F.cross_entropy(F.linear(x, weight), y, reduction=reduction)
    loss.backward()
    return loss.detach(), weight.grad


def test_a_padded_segmentation_map_has_the_gradient_of_the_real_ones():
    maps, labels = torch.randn(3, 4, 5, 5), torch.randint(4, (3, 5, 5))
    output = next(iter(DataLoader(FixedBatchDataset(TensorDataset(maps, labels), 4), 4)))
    padded_maps, padded_labels = output[0].requires_grad_(), output[1]

    F.cross_entropy(padded_maps, padded_labels).backward()

    real = maps.clone().requires_grad_()
    F.cross_entropy(real, labels).backward()
    assert torch.allclose(padded_maps.grad[:3], real.grad)
    assert padded_maps.grad[3].abs().max() == 0


def test_a_micro_batch_of_padding_alone_has_the_loss_nan_and_no_gradient():
    output = torch.randn(2, 3, requires_grad=True)

    loss = F.cross_entropy(output, torch.full((2,), -100))
    loss.backward()

    assert loss.isnan()
    assert output.grad.abs().max() == 0


# metrics


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 16), st.integers(0, 99))
def test_masked_metrics_of_padded_batches_are_the_metrics_of_the_real_samples(count, batch_size, seed):
    generator = torch.Generator().manual_seed(seed)
    output, labels = torch.randn(count, 3, generator=generator), torch.randint(3, (count,), generator=generator)
    data = FixedBatchDataset(TensorDataset(output, labels), batch_size)

    padded_output, padded_labels = next(iter(DataLoader(data, len(data))))

    assert count_real(padded_labels) == count
    assert masked_accuracy(padded_output, padded_labels) == (output.argmax(1) == labels).float().mean()
    losses = F.cross_entropy(padded_output, padded_labels, reduction="none")
    assert torch.allclose(masked_mean(losses, padded_labels), F.cross_entropy(output, labels))


def test_accuracy_of_maps_counts_every_real_pixel():
    labels = torch.tensor([[[0, 1], [1, -1]]])
    output = torch.stack([torch.tensor([[1.0, 0.0], [1.0, 1.0]]), torch.full((2, 2), 0.5)]).unsqueeze(0)

    assert masked_accuracy(output, labels, ignore_label=-1) == torch.tensor(2 / 3)


def test_what_stands_at_the_padding_does_not_enter_a_mean():
    values = torch.tensor([1.0, math.nan, 3.0, math.inf])

    assert masked_mean(values, torch.tensor([0, -100, 0, -100])) == 2.0


def test_without_real_labels_metrics_are_nan():
    labels = torch.full((2,), -100)

    assert count_real(labels) == 0
    assert masked_accuracy(torch.rand(2, 3), labels).isnan()
    assert masked_mean(torch.rand(2), labels).isnan()


@pytest.mark.parametrize(
    ("output_shape", "label_shape"), [((4,), (4,)), ((4, 5), (4, 1)), ((4, 5), (3,)), ((4, 5, 3), (4, 5))]
)
def test_labels_of_another_shape_than_the_output_are_refused(output_shape, label_shape):
    with pytest.raises(ValueError, match="for labels of shape"):
        masked_accuracy(torch.zeros(output_shape), torch.zeros(label_shape, dtype=torch.int64))


def test_values_of_another_shape_than_the_labels_are_refused():
    with pytest.raises(ValueError, match=r"values of shape \(4, 1\) for labels of shape \(4,\)"):
        masked_mean(torch.rand(4, 1), torch.zeros(4, dtype=torch.int64))


# real data


@pytest.mark.skipif(not MUSHROOMS.exists(), reason=f"needs {MUSHROOMS.name} at ../shared/data")
def test_every_mushroom_is_seen_once_in_full_batches():
    with MUSHROOMS.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    columns = [sorted(set(column)) for column in zip(*rows)]
    codes = torch.tensor([[column.index(value) for column, value in zip(columns, row)] for row in rows])
    loader = DataLoader(FixedBatchDataset(TensorDataset(codes[:, 1:], codes[:, 0]), 100), 100, shuffle=True)

    batches = list(loader)

    assert [len(labels) for _, labels in batches] == [100] * 82
    loaded = torch.cat([torch.cat([labels[:, None], features], 1)[labels != -100] for features, labels in batches])
    assert len(loaded) == len(rows) == 8124
    assert Counter(map(tuple, loaded.tolist())) == Counter(map(tuple, codes.tolist()))
