"""`popdist` reads from the environment which instance this is, and its options cannot be told otherwise."""

from __future__ import annotations

import copy

import pytest
import torch

import porting.simulator as poptorch
from porting.run import InstancePlan


@pytest.fixture
def second_of_two(monkeypatch):
    """Be the second of two instances with three replicas each, a replica taking two devices."""
    plan = InstancePlan(num_instances=2, num_replicas=6, ipus_per_replica=2)
    for name, value in plan.variables(1).items():
        monkeypatch.setenv(name, value)


def test_a_program_by_itself_is_one_instance_with_one_replica():
    import popdist

    popdist.init()

    assert not popdist.isPopdistEnvSet()
    assert (popdist.getNumInstances(), popdist.getInstanceIndex(), popdist.getLocalInstanceIndex()) == (1, 0, 0)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()) == (1, 1, 0)
    assert (popdist.getNumIpusPerReplica(), popdist.getDeviceId()) == (1, 0)


def test_an_instance_knows_its_place(second_of_two):
    import popdist

    assert popdist.isPopdistEnvSet()
    assert (popdist.getNumInstances(), popdist.getInstanceIndex(), popdist.getLocalInstanceIndex()) == (2, 1, 1)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()) == (6, 3, 3)
    assert popdist.getNumIpusPerReplica() == 2


def test_under_torchrun_each_process_is_an_instance_with_one_replica(monkeypatch):
    import popdist

    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")

    assert popdist.isPopdistEnvSet()
    assert (popdist.getNumInstances(), popdist.getInstanceIndex()) == (4, 2)
    assert (popdist.getNumTotalReplicas(), popdist.getNumLocalReplicas(), popdist.getReplicaIndexOffset()) == (4, 1, 2)


def test_the_device_of_an_instance_has_the_ipus_of_its_replicas(second_of_two):
    import popdist

    # three replicas of two IPUs take eight; the 16 single ones, 8 pairs and 4 fours come first
    assert popdist.getDeviceId() == popdist.getDeviceId(2) == 64 + 32 + 16 + 1


def test_an_instance_that_finds_too_few_ipus_says_so(second_of_two, monkeypatch):
    import popdist

    monkeypatch.setenv("PORTING_SIM_IPUS", "8")

    with pytest.raises(RuntimeError, match="Instance 1 of this machine needs 8 IPUs .* has 8"):
        popdist.getDeviceId()


def test_where_the_launcher_did_not_say_the_program_decides_how_many_devices_a_replica_takes():
    import popdist.poptorch

    popdist.checkNumIpusPerReplica(4)

    assert popdist.poptorch.Options(ipus_per_replica=4).ipu_id == 64 + 32


def test_another_number_of_devices_than_the_launchers_is_an_error(second_of_two):
    import popdist.poptorch

    for check in (popdist.checkNumIpusPerReplica, popdist.getDeviceId, popdist.poptorch.Options):
        with pytest.raises(RuntimeError, match=r"number of IPUs per replica \(4\) does not match .* \(2\)"):
            check(4)


@pytest.mark.parametrize(("instances", "result"), [({1}, "called"), ([0], None)])
def test_a_function_is_called_on_the_instances_that_are_named(second_of_two, instances, result):
    import popdist

    assert popdist.execute_on_instances(instances, lambda text: text, "called") == result


def test_options_are_filled_from_the_launcher(second_of_two):
    import popdist.poptorch

    options = popdist.poptorch.Options(ipus_per_replica=2)

    assert isinstance(options, poptorch.Options)
    assert options.replication_factor == 3
    assert (options.Distributed.processId, options.Distributed.numProcesses) == (1, 2)
    assert options._Popart.options["globalReplicationFactor"] == 6
    assert options._Popart.options["globalReplicaOffset"] == 3
    poptorch.poptorch_core._validateOptions(options.outputMode(poptorch.OutputMode.All).toDict())


@pytest.mark.parametrize(("method", "arguments"), [("useIpuId", [1]), ("replicationFactor", [2])])
def test_what_the_launcher_decides_cannot_be_set(second_of_two, method, arguments):
    import popdist.poptorch

    with pytest.raises(RuntimeError, match=f"Cannot call `{method}` with popdist.poptorch.Options"):
        getattr(popdist.poptorch.Options(), method)(*arguments)


@pytest.mark.parametrize(
    ("method", "arguments"), [("disable", []), ("setEnvVarNames", ["A", "B"]), ("configureProcessId", [0, 1])]
)
def test_the_place_among_the_processes_cannot_be_set(second_of_two, method, arguments):
    import popdist.poptorch

    with pytest.raises(RuntimeError, match=f"Cannot call `{method}` with popdist.poptorch.Options"):
        getattr(popdist.poptorch.Options().Distributed, method)(*arguments)


def test_frozen_options_stay_as_they_are(second_of_two):
    import popdist.poptorch

    options = popdist.poptorch.Options()
    options._freeze()

    with pytest.raises(AttributeError, match="Can't modify frozen Options"):
        options.deviceIterations(2)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda options: options.clone()], ids=["deepcopy", "clone"])
def test_a_copy_has_the_same_place_and_restrictions(second_of_two, duplicate):
    import popdist.poptorch

    copied = duplicate(popdist.poptorch.Options())

    assert (copied.Distributed.processId, copied.replication_factor) == (1, 3)
    with pytest.raises(RuntimeError, match="Cannot call `useIpuId`"):
        copied.useIpuId(0)


def test_inference_runs_the_replicas_of_this_instance_and_waits_for_no_other(second_of_two):
    import popdist.poptorch

    x = torch.arange(12, dtype=torch.float32).reshape(6, 2)

    output = poptorch.inferenceModel(torch.nn.ReLU(), popdist.poptorch.Options())(x)

    assert torch.equal(output, x)


def test_a_loader_combines_the_batches_of_this_instances_replicas_from_its_share_of_the_data(second_of_two):
    import popdist.poptorch

    rows = torch.utils.data.TensorDataset(torch.arange(24))

    loader = poptorch.DataLoader(popdist.poptorch.Options(), rows, batch_size=2)

    assert [batch.tolist() for (batch,) in loader] == [[*range(12, 18)], [*range(18, 24)]]
