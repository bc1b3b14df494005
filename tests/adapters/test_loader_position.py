"""An epoch goes on after the batches that were seen, in the order that it had."""

from __future__ import annotations

import random

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import porting.simulator
from porting import fit
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
