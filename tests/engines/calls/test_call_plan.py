"""How a call is cut into micro-batches, and what the output modes give back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from porting.engines.calls import call_plan
from porting.engines.calls.call_plan import (
    CallPlan,
    MicroBatch,
    OutputCollector,
    ReplicaGroups,
    make_synthetic_inputs,
    sum_over_processes,
)

counts = st.integers(1, 3)


def collected(plan):
    """Collect results that tell their micro-batch: a 0-d one, and one of two rows."""
    collector = OutputCollector(plan)
    for micro_batch in plan.micro_batches:
        value = torch.tensor(float(micro_batch.position))
        collector.add(micro_batch, [value, value.expand(2, 3).clone()])
    return collector.combine()


def test_rows_are_laid_out_by_iteration_then_accumulation_then_replica():
    plan = CallPlan(iterations=2, accumulation=2, replicas=2)

    assert [list(micro_batches) for micro_batches in plan.steps] == [
        [MicroBatch(0, 0, 0), MicroBatch(0, 1, 1), MicroBatch(1, 0, 2), MicroBatch(1, 1, 3)],
        [MicroBatch(2, 0, 4), MicroBatch(2, 1, 5), MicroBatch(3, 0, 6), MicroBatch(3, 1, 7)],
    ]


@given(counts, counts, counts)
def test_every_micro_batch_has_rows_of_its_own(iterations, accumulation, replicas):
    plan = CallPlan(iterations, accumulation, replicas)

    positions = [micro_batch.position for micro_batch in plan.micro_batches]

    assert positions == list(range(plan.num_micro_batches))


def test_mean_reduction_divides_by_the_micro_batches_of_a_step():
    assert CallPlan(iterations=5, accumulation=2, replicas=4).gradient_scale == 1 / 8


def test_sum_reduction_divides_by_nothing():
    assert CallPlan(accumulation=2, replicas=4, mean_reduction=False).gradient_scale == 1.0


# -- shapes of the output modes: b_dim times the rows of one micro-batch


@pytest.mark.parametrize(
    ("mode", "period", "b_dim"),
    [("all", 1, 12), ("every_n", 2, 6), ("every_n", 3, 4), ("final", 1, 2), ("sum", 1, 2)],
)
def test_results_of_several_micro_batches_are_joined(mode, period, b_dim):
    plan = CallPlan(iterations=3, accumulation=2, replicas=2, output_mode=mode, output_period=period)

    scalars, rows = collected(plan)

    assert scalars.shape == (b_dim,)
    assert rows.shape == (2 * b_dim, 3)


@pytest.mark.parametrize(("mode", "period"), [("all", 1), ("every_n", 1), ("final", 1), ("sum", 1)])
def test_the_result_of_one_micro_batch_keeps_its_shape(mode, period):
    scalar, rows = collected(CallPlan(output_mode=mode, output_period=period))

    assert scalar.shape == ()
    assert rows.shape == (2, 3)


@pytest.mark.parametrize("mode", ["final", "sum"])
def test_final_and_sum_keep_the_shape_of_a_single_replica(mode):
    scalar, rows = collected(CallPlan(iterations=3, accumulation=2, output_mode=mode))

    assert scalar.shape == ()
    assert rows.shape == (2, 3)


# -- values of the output modes


def test_all_gives_every_result_in_order():
    scalars, _rows = collected(CallPlan(iterations=2, accumulation=2, replicas=2, output_mode="all"))

    assert scalars.tolist() == list(range(8))


def test_every_n_counts_within_a_replica():
    plan = CallPlan(iterations=4, replicas=2, output_mode="every_n", output_period=2)

    scalars, _rows = collected(plan)

    assert scalars.tolist() == [2, 3, 6, 7]


def test_final_gives_the_last_of_each_replica():
    scalars, _rows = collected(CallPlan(iterations=2, accumulation=2, replicas=2, output_mode="final"))

    assert scalars.tolist() == [6, 7]


def test_sum_adds_up_within_a_replica():
    scalars, _rows = collected(CallPlan(iterations=2, accumulation=2, replicas=2, output_mode="sum"))

    assert scalars.tolist() == [0 + 2 + 4 + 6, 1 + 3 + 5 + 7]


def test_a_sum_leaves_the_results_that_it_was_given():
    collector, result = OutputCollector(CallPlan(iterations=2, output_mode="sum")), torch.ones(2)

    collector.add(MicroBatch(0, 0, 0), [result])
    collector.add(MicroBatch(1, 0, 1), [result])

    assert collector.combine()[0].tolist() == [2.0, 2.0]
    assert result.tolist() == [1.0, 1.0]


# -- groups of replicas, processes, periods that do not divide


@pytest.mark.parametrize(("strided", "positions"), [(False, [0, 0, 1, 1]), (True, [0, 1, 0, 1])])
def test_replicas_of_a_group_have_the_same_position(strided, positions):
    plan = CallPlan(replicas=4, input_groups=ReplicaGroups(4, 2, strided))

    assert [micro_batch.position for micro_batch in plan.steps[0]] == positions
    assert plan.num_slices == 2


def test_each_group_has_a_slab_of_rows():
    plan = CallPlan(iterations=2, accumulation=2, replicas=2, input_groups=ReplicaGroups(2, 2))

    assert [micro_batch.position for micro_batch in plan.micro_batches] == [0, 0, 1, 1, 2, 2, 3, 3]


@given(counts, counts, counts)
def test_groups_of_one_replica_are_no_groups(iterations, accumulation, replicas):
    plan = CallPlan(iterations, accumulation, replicas, input_groups=ReplicaGroups(replicas, 1))

    assert plan.steps == CallPlan(iterations, accumulation, replicas).steps
    assert plan.num_slices == plan.num_micro_batches


def test_mean_reduction_divides_by_the_processes_too():
    assert CallPlan(accumulation=2, replicas=4, processes=2).gradient_scale == 1 / 16


@pytest.mark.parametrize(("period", "num_kept"), [(1, 6), (2, 3), (3, 2), (4, 1), (6, 1), (7, 0)])
def test_the_number_of_results_is_divided_without_remainder(period, num_kept):
    plan = CallPlan(iterations=6, output_mode="every_n", output_period=period)

    scalars, rows = collected(plan)

    assert plan.num_kept == num_kept
    assert scalars.shape == ((num_kept,) if num_kept > 1 else ())
    assert rows.shape == (2 * max(num_kept, 1), 3)


@pytest.mark.parametrize("mode", ["all", "final", "sum", "every_n"])
def test_constant_results_come_once_and_unchanged(mode):
    plan = CallPlan(iterations=4, replicas=2, output_mode=mode, output_period=2)
    collector = OutputCollector(plan, constant=frozenset([1]))
    for micro_batch in plan.micro_batches:
        collector.add(micro_batch, [torch.ones(1), torch.full((2,), 7.0)])

    varying, constant = collector.combine()

    assert constant.tolist() == [7.0, 7.0]
    assert varying.shape == (plan.num_kept,)


# -- groups of replicas: who belongs to which, and who speaks for it

SIZES = [(size, strided) for size in (1, 2, 3, 6) for strided in (False, True)]


def test_neighbours_are_together_unless_strided():
    assert [ReplicaGroups(6, 3).find_group(replica) for replica in range(6)] == [0, 0, 0, 1, 1, 1]
    assert [ReplicaGroups(6, 3, strided=True).find_group(replica) for replica in range(6)] == [0, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(("size", "strided"), SIZES)
def test_all_groups_have_the_same_size(size, strided):
    groups = ReplicaGroups(6, size, strided)

    members = [groups.find_group(replica) for replica in range(6)]

    assert sorted(members) == sorted(group for group in range(groups.num_groups) for _ in range(size))


@pytest.mark.parametrize(("size", "strided"), SIZES)
def test_the_first_replica_of_a_group_is_its_first_member(size, strided):
    groups = ReplicaGroups(6, size, strided)
    members = [groups.find_group(replica) for replica in range(6)]

    assert [groups.find_first_replica(group) for group in range(groups.num_groups)] == [
        members.index(group) for group in range(groups.num_groups)
    ]


@pytest.fixture
def messages(monkeypatch):
    """Give the list of messages that were sent; two other processes have the same gradients as this one."""
    sent = []

    def all_reduce(message):
        sent.append(message.clone())
        message.mul_(3)

    monkeypatch.setattr(torch.distributed, "all_reduce", all_reduce, raising=False)
    return sent


def test_gradients_are_added_up_in_place(messages):
    gradients = [torch.ones(2, 3), torch.full((4,), 2.0), torch.tensor(5.0)]

    sum_over_processes(gradients)

    assert [gradient.shape for gradient in gradients] == [(2, 3), (4,), ()]
    assert [gradient.unique().tolist() for gradient in gradients] == [[3.0], [6.0], [15.0]]


def test_many_small_gradients_are_one_message(messages):
    sum_over_processes([torch.ones(10) for _ in range(50)])

    assert [message.numel() for message in messages] == [500]


def test_messages_are_of_limited_size(messages, monkeypatch):
    monkeypatch.setattr(call_plan, "_MESSAGE_BYTES", 100)
    gradients = [torch.ones(20) for _ in range(5)]

    sum_over_processes(gradients)

    assert [message.numel() for message in messages] == [40, 40, 20]
    assert all((gradient == 3).all() for gradient in gradients)


def test_gradients_in_another_memory_format_keep_it(messages):
    gradient = torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)

    sum_over_processes([gradient])

    assert torch.equal(gradient, 3 * torch.arange(24.0).reshape(1, 2, 3, 4))
    assert gradient.is_contiguous(memory_format=torch.channels_last)


def test_nothing_to_exchange_sends_nothing(messages):
    sum_over_processes([])

    assert messages == []


# -- inputs that the device makes up -----------------------------------------------------------------------------------

LIKE = [torch.full((1000,), 7.0), torch.full((2, 3), 7.0, dtype=torch.half), torch.full((4,), 7), torch.ones(2) > 0]


@pytest.mark.parametrize("kind", ["zeros", "normal", "uniform"])
def test_shapes_and_types_are_kept(kind):
    made = make_synthetic_inputs(LIKE, kind)

    assert [(tensor.shape, tensor.dtype) for tensor in made] == [(tensor.shape, tensor.dtype) for tensor in LIKE]
    assert not made[2].any()
    assert not made[3].any()


def test_floats_are_distributed_as_asked():
    zeros, normal, uniform = (make_synthetic_inputs(LIKE, kind)[0] for kind in ("zeros", "normal", "uniform"))

    assert not zeros.any()
    assert 0.9 < normal.std() < 1.1
    assert 0.5 < uniform.abs().max() <= 1.0


def test_the_same_numbers_come_each_time_and_the_global_stream_is_left_alone():
    before = torch.get_rng_state()

    first, second = make_synthetic_inputs(LIKE, "normal"), make_synthetic_inputs(LIKE, "normal")

    assert all(torch.equal(one, other) for one, other in zip(first, second))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_call_uses_them_instead_of_the_hosts(device):
    on_device = device(nn.Identity(), torch.ones(2), mode="inference")

    assert on_device.run(torch.ones(2), synthetic="zeros")[0].tolist() == [0.0, 0.0]
