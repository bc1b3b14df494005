"""What an observer sees of a step: gradients of each micro-batch, and what the update leads to."""

from __future__ import annotations

import torch

from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.device_state import DeviceState
from porting.engines.calls.step_anchors import StepObserver, StepValue


def state_of(weight):
    return DeviceState(
        parameters={"w": weight},
        buffers=[{}, {}],
        parts={"w": ("w",)},
        slots={"w": {"Accl1": torch.tensor([5.0])}},
    )


def run(observer, plan, gradients):
    """Let `observer` see one step on a weight of 1 whose micro-batches have these gradients; the update adds them."""
    weight = torch.ones(1, requires_grad=True)
    state = state_of(weight)
    observer.begin(plan)
    for micro_batch, gradient in zip(plan.steps[0], gradients):
        observer.during_backward(lambda g=gradient: (weight * g).sum().backward(), state, micro_batch)
    with torch.no_grad():
        weight += weight.grad
    accumulated = weight.grad
    observer.after_update(state)
    return observer.collect_results(), accumulated


def test_each_micro_batch_has_its_gradient_without_the_mean():
    plan = CallPlan(accumulation=2, output_mode="all")

    (gradient,), accumulated = run(StepObserver([StepValue("gradient", "w")]), plan, [2.0, 3.0])

    assert gradient.tolist() == [4.0, 6.0]
    assert accumulated.tolist() == [5.0]


def test_a_sum_does_not_scale_gradients():
    plan = CallPlan(accumulation=2, output_mode="all", mean_reduction=False)

    (gradient,), _accumulated = run(StepObserver([StepValue("gradient", "w")]), plan, [2.0, 3.0])

    assert gradient.tolist() == [2.0, 3.0]


def test_weights_and_state_are_those_after_the_update():
    observer = StepObserver([StepValue("weight", "w"), StepValue("slot", "w", "Accl1"), StepValue("loss_scaling")])

    (weight, slot, scaling), _accumulated = run(observer, CallPlan(), [2.0])

    assert (weight.tolist(), slot.tolist(), scaling.item()) == ([3.0], [5.0], 1.0)


def test_replicas_have_results_of_their_own():
    plan = CallPlan(replicas=2, output_mode="final")

    (gradient,), _accumulated = run(StepObserver([StepValue("gradient", "w")]), plan, [2.0, 3.0])

    assert gradient.tolist() == [4.0, 6.0]


def test_a_parameter_without_a_gradient_has_zeros():
    weight = torch.ones(1, requires_grad=True)
    state, plan = state_of(weight), CallPlan()
    observer = StepObserver([StepValue("gradient", "w")])
    observer.begin(plan)

    observer.during_backward(lambda: None, state, plan.steps[0][0])
    observer.after_update(state)

    assert observer.collect_results()[0].tolist() == [0.0]
    assert weight.grad is None


def test_a_new_call_forgets_the_last_one():
    observer = StepObserver([StepValue("weight", "w")])
    run(observer, CallPlan(iterations=2, output_mode="all"), [2.0])

    (weight,), _accumulated = run(observer, CallPlan(), [1.0])

    assert weight.tolist() == [2.0]
