"""`horovod.torch` exchanges tensors; a single process exchanges them with itself."""

from __future__ import annotations

import multiprocessing

import pytest
import torch

import porting.simulator as poptorch
from porting.run import InstancePlan
from porting.simulator.companions.horovod import torch as stand_in


@pytest.fixture(autouse=True)
def not_initialized(monkeypatch):
    monkeypatch.setattr(stand_in._state, "is_initialized", False)


@pytest.fixture
def hvd():
    import horovod.torch as hvd

    hvd.init()
    return hvd


def test_a_single_process_is_all_there_is(hvd):
    assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)


def test_it_must_be_initialized_first(hvd):
    hvd.shutdown()

    assert not hvd.is_initialized()
    with pytest.raises(ValueError, match=r"Horovod has not been initialized; use hvd.init\(\)"):
        hvd.rank()


@pytest.mark.parametrize("function", ["allreduce", "allgather", "broadcast_object"])
def test_alone_a_tensor_stays_what_it_is(hvd, function):
    assert torch.equal(getattr(hvd, function)(torch.tensor([1.0, 2.0])), torch.tensor([1.0, 2.0]))


def test_factors_are_applied_before_and_after(hvd):
    assert hvd.allreduce(torch.ones(1), prescale_factor=2.0, postscale_factor=3.0).item() == 6.0


def test_average_and_op_contradict_each_other(hvd):
    with pytest.raises(ValueError, match="The op parameter supersedes average"):
        hvd.allreduce(torch.ones(1), average=True, op=hvd.Sum)


def test_an_optimizer_of_its_own_is_refused(hvd):
    with pytest.raises(poptorch.Error, match="horovod.torch.DistributedOptimizer"):
        hvd.DistributedOptimizer(None)


def exchange(index, rendezvous):
    """Do every exchange as one of two processes; return what came of it."""
    import os

    os.environ.update(InstancePlan(2, 2).variables(index), PORTING_RENDEZVOUS=rendezvous)
    stand_in.init()
    mine = torch.tensor([1.0, 2.0]) * (index + 1)
    weights = {"weight": torch.full((2,), float(index + 5)), "count": 3}
    stand_in.broadcast_parameters(weights, root_rank=1)
    result = {
        "place": (stand_in.rank(), stand_in.size(), stand_in.local_rank(), stand_in.local_size()),
        "average": stand_in.allreduce(mine).tolist(),
        "sum": stand_in.allreduce(mine, average=False).tolist(),
        "max": stand_in.allreduce(mine, op=stand_in.Max).tolist(),
        "product": stand_in.allreduce(mine, op=stand_in.Product).tolist(),
        "count": stand_in.allreduce(torch.tensor([3, 4]) + index).tolist(),
        "unchanged": mine.tolist(),
        "gathered": stand_in.allgather(torch.full((index + 1,), float(index))).tolist(),
        "broadcast": stand_in.broadcast(mine, root_rank=1).tolist(),
        "object": stand_in.broadcast_object({"from": index}, root_rank=1),
        "weights": weights["weight"].tolist(),
    }
    stand_in.allreduce_(mine, op=stand_in.Sum)
    stand_in.barrier()
    return {**result, "in place": mine.tolist()}


@pytest.mark.slow
def test_two_processes_exchange_tensors(tmp_path):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        results = [pool.apply_async(exchange, (index, str(tmp_path / "meeting"))) for index in range(2)]
        first, second = (result.get(timeout=120) for result in results)

    assert first.pop("place") == (0, 2, 0, 2)
    assert second.pop("place") == (1, 2, 1, 2)
    assert (first.pop("unchanged"), second.pop("unchanged")) == ([1.0, 2.0], [2.0, 4.0])
    assert first == second
    assert first == {
        "average": [1.5, 3.0],
        "sum": [3.0, 6.0],
        "max": [2.0, 4.0],
        "product": [2.0, 8.0],
        "count": [3, 4],
        "gathered": [0.0, 1.0, 1.0],
        "broadcast": [2.0, 4.0],
        "object": {"from": 1},
        "weights": [6.0, 6.0],
        "in place": [3.0, 6.0],
    }
