"""The data path is three measurements of the same calls; no time is asserted here."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from porting import PortOptions
from porting.bench.data_path import generate_dataset, make_plain_batches, measure_data_path
from porting.bench.workloads import Workload

from .conftest import make_workload


def test_a_batch_becomes_a_dataset_of_its_rows():
    workload = make_workload()

    dataset = generate_dataset(workload)

    assert len(dataset) % workload.rows == 0
    assert torch.equal(dataset[workload.rows][0], workload.batch[0][0])


@pytest.mark.parametrize(
    "batch",
    [{"x": torch.ones(2, 1)}, (torch.ones(2, 1), torch.ones(3)), (torch.tensor(1.0),), ("text",)],
    ids=["named", "other rows", "no rows", "no tensor"],
)
def test_what_has_no_rows_of_its_own_becomes_none(batch):
    assert generate_dataset(Workload(torch.nn.Linear(1, 1), None, batch)) is None


def test_plain_batches_of_several_steps_are_joined_to_calls():
    workload = make_workload(PortOptions(device_iterations=2))
    dataset = TensorDataset(torch.arange(20.0).reshape(20, 1))

    batches = list(make_plain_batches(workload, dataset)())

    assert [batch[0].flatten().tolist() for batch in batches] == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [8, 9, 10, 11, 12, 13, 14, 15],
    ]


def test_a_loader_is_used_as_it_is():
    loader = DataLoader(TensorDataset(torch.arange(6.0)), batch_size=3)

    assert [batch[0].tolist() for batch in make_plain_batches(make_workload(), loader)()] == [[0, 1, 2], [3, 4, 5]]


def test_every_part_is_measured():
    trained = []

    path = measure_data_path(trained.append, lambda: iter([1, 2]), source="a list", batch=0, seconds=0.001)

    assert path.num_calls >= 5
    assert path.bound > 0
    assert 0 <= path.waiting_share <= 1
    assert {0, 1, 2} <= set(trained)


def test_an_empty_loader_has_no_data_path():
    assert measure_data_path(lambda _batch: None, lambda: iter([]), source="", batch=0, seconds=0.001) is None
