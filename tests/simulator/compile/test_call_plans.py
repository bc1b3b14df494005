"""What options say about the micro-batches of a call."""

from __future__ import annotations

import pytest

from porting.engines.calls.call_plan import ReplicaGroups
from porting.simulator import enums
from porting.simulator._compile.executables import make_call_plan, open_exchange
from porting.simulator.options import Options


def plan_of(change, *, training=True):
    options = Options().outputMode(enums.OutputMode.Final)
    change(options)
    return make_call_plan(options, training=training)


def test_sizes_are_those_of_the_options():
    def change(options):
        options.deviceIterations(2).replicationFactor(3)
        options.Training.gradientAccumulation(4)

    plan = plan_of(change)

    assert (plan.iterations, plan.replicas, plan.accumulation) == (2, 3, 4)


def test_inference_does_not_accumulate():
    assert plan_of(lambda o: o.Training.gradientAccumulation(4), training=False).accumulation == 1


@pytest.mark.parametrize(("mode", "name"), [("Final", "final"), ("All", "all"), ("Sum", "sum"), ("EveryN", "every_n")])
def test_each_output_mode_has_its_name(mode, name):
    plan = plan_of(lambda o: o.outputMode(getattr(enums.OutputMode, mode), 3))

    assert plan.output_mode == name
    assert plan.output_period == (3 if mode == "EveryN" else plan.output_period)


@pytest.mark.parametrize(("kind", "strided"), [("Consecutive", False), ("Orthogonal", True)])
def test_input_groups_are_those_of_the_options(kind, strided):
    plan = plan_of(lambda o: o.replicationFactor(4).inputReplicaGrouping(2, getattr(enums.CommGroupType, kind)))

    assert plan.input_groups == ReplicaGroups(4, 2, strided)


@pytest.mark.parametrize(("reduction", "is_mean"), [(enums.ReductionType.Mean, True), (enums.ReductionType.Sum, False)])
def test_the_reduction_is_that_of_the_options(reduction, is_mean):
    plan = plan_of(lambda o: o.Training.accumulationAndReplicationReductionType(reduction))

    assert plan.mean_reduction == is_mean


@pytest.mark.parametrize(("mode", "kind"), [(0, ""), (1, "zeros"), (2, "normal"), (3, "uniform")])
def test_synthetic_data_has_the_modes_of_popart(mode, kind):
    assert plan_of(lambda o: o._Popart.set("syntheticDataMode", mode)).synthetic == kind


def test_numeric_options_are_off_by_default():
    plan = plan_of(lambda o: o)

    flags = (plan.adapts_loss_scaling, plan.rounds_at_random, plan.checks_floats, plan.synthetic)
    assert not any(flags)


def test_loss_scaling_adapts_in_training_only():
    assert plan_of(lambda o: o.Training.setAutomaticLossScaling(True)).adapts_loss_scaling
    assert not plan_of(lambda o: o.Training.setAutomaticLossScaling(True), training=False).adapts_loss_scaling


def test_a_single_process_exchanges_nothing():
    assert open_exchange(Options()) is None


def test_several_processes_share_the_mean():
    options = Options().outputMode(enums.OutputMode.Final)
    options.Distributed.configureProcessId(0, 4)

    assert make_call_plan(options, training=True, exchange=lambda gradients: None).gradient_scale == 1 / 4
    assert make_call_plan(options, training=False).gradient_scale == 1.0
