"""One step of plain PyTorch and of a replayed port leave the same traces."""

from __future__ import annotations

import pytest
import torch

from porting.verify.fault_location.traced_steps import (
    LOSS,
    ROOT,
    StateParts,
    replay_call,
    trace_plain_evaluation,
    trace_plain_step,
)
from porting.verify.plain_training import PlainRun, cut_micro_batches
from tests.verify.fault_location.ports import build_pair, make_batches


def trace_both(parts=1, **options):
    plain, ported = build_pair(**options)
    args = make_batches()[0]
    rehearsal = ported.keep_call(*args).rehearsal
    state = torch.get_rng_state() if rehearsal.state.rng_state is None else rehearsal.state.rng_state.clone()
    run = PlainRun(plain, options.get("replicas", 1), state)
    return trace_plain_step(run, cut_micro_batches(args, {}, parts)), replay_call(ported, rehearsal)


def list_values(trace):
    copies = ("aten.detach", "aten.clone", "aten._to_copy", "aten.copy_", "aten.add_")
    return [(one.origin.module, one.name) for one in trace.values if one.name not in copies and not one.is_backward]


def test_the_same_operators_run_in_the_same_modules():
    plain, (ported,) = trace_both()

    assert list_values(plain.micro_batches[0]) == list_values(ported.micro_batches[0])


def test_the_gradients_of_both_sides_run_through_the_same_modules():
    sides = [step.micro_batches[0].values for step in (trace_both()[0], trace_both()[1][0])]

    modules = [{one.origin.module for one in values if one.is_backward} for values in sides]
    assert modules[0] == modules[1] >= {"first", "norm", "second", "head", ROOT, LOSS}


def test_losses_gradients_and_states_agree():
    plain, (ported,) = trace_both()

    assert plain.losses == pytest.approx(ported.losses, rel=1e-6)
    for name, gradient in plain.gradients.items():
        assert torch.allclose(gradient, ported.gradients[name], atol=1e-6)
    for name, buffer in plain.after.buffers.items():
        # a device does not count
        assert not buffer.is_floating_point() or torch.allclose(buffer, ported.after.buffers[name], atol=1e-6)


@pytest.mark.parametrize("options", [{"accumulation": 2}, {"replicas": 2, "broadcast_buffers": False}])
def test_each_micro_batch_has_gradients_of_its_own(options):
    plain, (ported,) = trace_both(2, **options)

    for step in (plain, ported):
        joined = sum(own["head.weight"] for own in step.own_gradients) / 2
        assert torch.allclose(joined, step.gradients["head.weight"], atol=1e-6)
    assert plain.seeds == [0.5, 0.5]


def test_a_call_of_several_steps_has_a_trace_of_each():
    _plain, steps = trace_both(device_iterations=2)

    assert len(steps) == 2
    assert torch.equal(steps[0].after.parameters["head.weight"], steps[1].before.parameters["head.weight"])


def test_the_user_s_line_is_known_of_both_sides():
    plain, (ported,) = trace_both()

    for step in (plain, ported):
        tanh = next(one for one in step.micro_batches[0].values if one.name == "aten.tanh")
        assert tanh.origin.place.file.endswith("ports.py")
        assert tanh.origin.module == ROOT


def test_the_inputs_of_modules_and_of_the_loss_are_known():
    plain, _ported = trace_both()

    inputs = plain.micro_batches[0].module_inputs
    assert [form.shape for form in inputs[LOSS]] == [(8, 4), (8,)]
    assert inputs["norm"][0].shape == (8, 16)


def test_a_replay_leaves_the_device_as_it_was():
    _plain, ported = build_pair()
    args = make_batches()[0]
    before = {name: value.clone() for name, value in ported.state_dict().items()}

    replay_call(ported, ported.keep_call(*args).rehearsal)

    assert all(torch.equal(value, before[name]) for name, value in ported.state_dict().items())


def test_an_evaluation_has_a_loss_and_no_gradients():
    plain, _ported = build_pair()
    plain.model.eval()

    trace = trace_plain_evaluation(plain, (make_batches()[0], {}))

    assert trace.loss.numel() == 1
    assert not any(record.is_backward for record in trace.values)
    assert "aten.bernoulli_" not in [record.name for record in trace.values]


def test_a_state_is_copied_and_what_is_no_tensor_left_out():
    weight = torch.zeros(2)

    parts = StateParts.of({"weight": weight}.items(), {}, {"weight": {"step": 3, "momentum": torch.ones(2)}})
    weight.fill_(7.0)

    assert parts.parameters["weight"].tolist() == [0.0, 0.0]
    assert list(parts.slots["weight"]) == ["momentum"]
