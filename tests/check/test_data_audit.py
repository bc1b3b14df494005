"""One epoch of a loader becomes figures and findings; failures name the batch and the user's line."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

from porting import PortOptions
from porting.check.data_audit import audit_data
from porting.diagnostics import BatchError


def _codes(audit):
    return [finding.code for finding in audit.findings]


def _make_loader(num_samples=24, **kwargs):
    dataset = TensorDataset(torch.rand(num_samples, 4), torch.zeros(num_samples, dtype=torch.int64))
    return DataLoader(dataset, **{"batch_size": 4, **kwargs})


def test_a_loader_that_fills_its_calls_has_no_finding():
    audit = audit_data(_make_loader(), options=PortOptions(accumulation=3, replicas=2))

    assert audit.findings == ()
    assert (audit.num_batches, audit.num_rows, audit.shapes.num_executables) == (6, 24, 1)


def test_samples_that_fill_no_call_are_counted():
    audit = audit_data(_make_loader(23), options=PortOptions(replicas=2))

    assert _codes(audit) == ["B006"]
    assert audit.findings[0].message == "7 of 23 samples (30.4 %) are dropped in every epoch"


def test_a_sampler_that_repeats_samples_is_named():
    loader = _make_loader(10)
    sampler = DistributedSampler(loader.dataset, num_replicas=4, rank=0)

    audit = audit_data(DataLoader(loader.dataset, batch_size=1, sampler=sampler), instances=4)

    assert _codes(audit) == ["B031"]
    assert "DistributedSampler" in audit.findings[0].notes[0]


class _Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.eye(6).unbind())


@pytest.mark.slow
def test_rows_that_several_workers_read_are_found_by_what_they_hold():
    audit = audit_data(DataLoader(_Stream(), batch_size=2, num_workers=2))

    assert (audit.num_rows, audit.num_equal_rows) == (12, 6)
    assert _codes(audit) == ["B031"]


def test_a_short_batch_of_a_stream_would_be_dropped():
    audit = audit_data(DataLoader(_Stream(), batch_size=4))

    assert _codes(audit) == ["B010"]
    assert audit.num_short_rows == 2


def test_lengths_that_vary_are_a_finding_with_buckets():
    audit = audit_data([torch.zeros(2, length) for length in (3, 3, 20, 4)], max_executables=2)

    assert _codes(audit) == ["B030", "B032"]
    assert "pad to these lengths: 4, 20" in audit.findings[0].help[0]
    assert "pays after" in str(audit)


def test_batches_of_other_kinds_are_a_finding_too():
    audit = audit_data([torch.zeros(2, 3), (torch.zeros(2, 3), torch.zeros(2))])

    assert _codes(audit) == ["B030"]


def test_an_epoch_can_end_early():
    audit = audit_data(_make_loader(), max_batches=2)

    assert audit.num_batches == 2
    assert not audit.is_whole


def test_a_loader_that_fails_names_its_batch_and_line():
    def read():
        yield torch.zeros(2)
        raise OSError("the disk is full")

    with pytest.raises(BatchError, match="failed at batch 1: OSError: the disk is full") as raised:
        audit_data(read())

    assert raised.value.finding.code == "B033"
    assert raised.value.finding.place.file == __file__
