"""Variables of launchers agree, or are told."""

from __future__ import annotations

import pytest

from porting.doctor.distribution import probe_launcher
from porting.run.instances import InstancePlan


def test_without_variables_a_process_is_alone(machine):
    assert probe_launcher().found == "a single process"


@pytest.mark.parametrize("index", [0, 1, 2])
def test_what_porting_run_sets_is_right(machine, index):
    machine.set(**InstancePlan(num_instances=3, num_replicas=6).variables(index))

    probe = probe_launcher()

    assert probe.finding is None
    assert probe.found == f"Open MPI or poprun: {index} of 3"


def test_what_torchrun_sets_is_right(machine):
    machine.set(RANK=1, WORLD_SIZE=2, LOCAL_RANK=1, LOCAL_WORLD_SIZE=2, MASTER_ADDR="here", MASTER_PORT=29500)

    assert (probe_launcher().finding, probe_launcher().found) == (None, "torchrun: 1 of 2")


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"RANK": 1}, "RANK is set, and WORLD_SIZE is not"),
        ({"OMPI_COMM_WORLD_SIZE": 2}, "OMPI_COMM_WORLD_SIZE is set, and OMPI_COMM_WORLD_RANK is not"),
        ({"RANK": "one", "WORLD_SIZE": 2}, "RANK is 'one', which is no number"),
        ({"RANK": 2, "WORLD_SIZE": 2}, "torchrun counts this process as 2 of 2, from 0"),
        (
            {"RANK": 0, "WORLD_SIZE": 2, "OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 4},
            "two launchers count this process: Open MPI or poprun 0 of 4, torchrun 0 of 2",
        ),
        ({"POPDIST_NUM_TOTAL_REPLICAS": "all"}, "POPDIST_NUM_TOTAL_REPLICAS is 'all', which is no number"),
        ({"POPDIST_NUM_LOCAL_REPLICAS": 2}, "POPDIST_NUM_TOTAL_REPLICAS is not"),
        (
            {"POPDIST_NUM_TOTAL_REPLICAS": 2, "POPDIST_NUM_LOCAL_REPLICAS": 4},
            "4 replicas of 2 altogether are in this instance",
        ),
        (
            {"POPDIST_NUM_TOTAL_REPLICAS": 3, "OMPI_COMM_WORLD_RANK": 0, "OMPI_COMM_WORLD_SIZE": 2},
            "3 replicas do not divide by 2 instances",
        ),
    ],
)
def test_variables_that_contradict_each_other_are_a_finding(machine, variables, message):
    machine.set(**variables)

    finding = probe_launcher().finding

    assert finding.code == "X019"
    assert message in finding.message
