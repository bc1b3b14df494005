"""Settings with an effect on results that the simulator does not act on are refused by name."""

from __future__ import annotations

import logging

import pytest
import torch

from porting.simulator import enums
from porting.simulator._unsimulated import refuse_unsimulated
from porting.simulator.errors import NotSimulatedError
from porting.simulator.options import (
    Options,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
    TensorLocationSettings,
)

REFUSED = {
    "useOfflineIpuTarget": lambda o: o.useOfflineIpuTarget(),
    "connectionType(ConnectionType.Never)": lambda o: o.connectionType(enums.ConnectionType.Never),
    "anchorTensor": lambda o: o.anchorTensor("a", "b"),
    "inputReplicaGrouping": lambda o: o.replicationFactor(2).inputReplicaGrouping(2, enums.CommGroupType.Consecutive),
    "Distributed": lambda o: o.Distributed.configureProcessId(0, 2),
    "enableSyntheticData": lambda o: o.enableSyntheticData(True),
    "Precision.enableFloatingPointExceptions": lambda o: o.Precision.enableFloatingPointExceptions(True),
    "Training.setAutomaticLossScaling": lambda o: o.Training.setAutomaticLossScaling(True),
    "setExecutionStrategy": lambda o: o.setExecutionStrategy(PipelinedExecution("a", "b")),
}
ACCEPTED = {
    "nothing": lambda o: o,
    "connectionType": lambda o: o.connectionType(enums.ConnectionType.OnDemand),
    "replicas": lambda o: o.replicationFactor(4).broadcastBuffers(False),
    "enableSyntheticData off": lambda o: o.enableSyntheticData(False),
    "updatableNamedBuffers": lambda o: o.updatableNamedBuffers(["b"]),
    "memory": lambda o: o.setAvailableMemoryProportion({"IPU0": 0.1}),
    "partials": lambda o: o.Precision.setPartialsType(torch.half),
    "profiling": lambda o: o.enableProfiling("x").logDir("y"),
    "locations": lambda o: o.TensorLocations.setWeightLocation(TensorLocationSettings().useOnChipStorage()),
    "logCycleCount": lambda o: o.logCycleCount(True),
    "AutoStage": lambda o: o.setExecutionStrategy(ShardedExecution(enums.AutoStage.AutoIncrement)),
    "one stage": lambda o: o.setExecutionStrategy(SerialPhasedExecution(Stage("a", "b"))),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_setting_with_an_effect_on_results_is_refused_by_name(name):
    options = Options()
    REFUSED[name](options)

    with pytest.raises(NotSimulatedError) as caught:
        refuse_unsimulated(options, training=True)

    assert caught.value.message == f"the simulator does not have `poptorch.Options.{name}`"
    assert caught.value.finding.notes


@pytest.mark.parametrize("name", sorted(ACCEPTED))
def test_setting_without_an_effect_on_results_is_accepted(name):
    options = Options()
    ACCEPTED[name](options)

    refuse_unsimulated(options, training=True)


def test_setting_of_training_does_not_matter_in_inference():
    options = Options()
    options.Training.setAutomaticLossScaling(True)

    refuse_unsimulated(options, training=False)


def test_stochastic_rounding_is_said_to_have_no_effect(caplog):
    caplog.set_level(logging.INFO, logger="poptorch::python")
    options = Options()
    options.Precision.enableStochasticRounding(True)

    refuse_unsimulated(options, training=True)

    assert caplog.messages == [
        "Precision.enableStochasticRounding has no effect in the simulator: it rounds to nearest"
    ]
