"""Execution strategies: which block is in which stage and phase, and what the compiler is told."""

from __future__ import annotations

import copy
import logging

import pytest

from porting.simulator.enums import AutoStage, Liveness
from porting.simulator.options import (
    ParallelPhasedExecution,
    Phase,
    PipelinedExecution,
    SerialPhasedExecution,
    ShardedExecution,
    Stage,
)

PIPELINED = [PipelinedExecution, ShardedExecution]
PHASED = [ParallelPhasedExecution, SerialPhasedExecution]


def test_stage_knows_its_blocks():
    assert Stage("a", "b").blocks == ("a", "b")


def test_stage_refuses_blocks_that_are_not_strings():
    with pytest.raises(AssertionError, match="Block IDs are supposed to be strings but got"):
        Stage("a", 1)


def test_stage_runs_on_its_ipu():
    stage = Stage("a")

    assert stage._ipu is None
    assert stage.ipu(3) is stage
    assert stage._ipu == 3


def test_stage_has_no_number_before_a_strategy_has_it():
    stage = Stage("a")

    assert (stage._stage_id, stage._phase_id) == (-1, -1)


def test_phase_of_block_ids_is_one_stage():
    phase = Phase("a", "b")

    assert [stage.blocks for stage in phase.stages] == [("a", "b")]


def test_phase_of_stages_keeps_them():
    first, second = Stage("a"), Stage("b")
    phase = Phase(first, second)

    assert phase.stages == (first, second)
    assert phase.stage(1) is second


def test_phase_refuses_a_mixture():
    with pytest.raises(AssertionError, match=r"All arguments must either be block IDs \(strings\) or Stages: "):
        Phase(Stage("a"), "b")


def test_phase_gives_each_stage_its_ipu():
    phase = Phase(Stage("a"), Stage("b"))

    assert phase.ipus(4, 6) is None
    assert [stage._ipu for stage in phase.stages] == [4, 6]


def test_phase_refuses_another_number_of_ipus():
    with pytest.raises(AssertionError, match="Phase contains 2 stages but you provided 1 ipus"):
        Phase(Stage("a"), Stage("b")).ipus(0)


@pytest.mark.parametrize("strategy", PIPELINED)
def test_each_argument_is_a_stage(strategy):
    pipeline = strategy("a", Stage("b", "c"), ["d", "e"])

    stages = [pipeline.stage(block)._stage_id for block in "abcde"]
    assert stages == [0, 1, 1, 2, 2]


@pytest.mark.parametrize("strategy", PIPELINED)
def test_stages_are_found_by_themselves_if_none_are_listed(strategy):
    assert strategy()._auto_stage is AutoStage.SameAsIpu
    assert strategy(AutoStage.AutoIncrement)._auto_stage is AutoStage.AutoIncrement
    assert strategy("a")._auto_stage is None


@pytest.mark.parametrize("strategy", [*PIPELINED, *PHASED])
def test_block_is_in_one_stage_only(strategy):
    with pytest.raises(AssertionError, match="b associated with more than one stage"):
        strategy(Stage("a", "b"), "b")


@pytest.mark.parametrize("strategy", [*PIPELINED, *PHASED])
def test_unknown_block_is_an_error(strategy):
    with pytest.raises(AssertionError, match="Unknown block z"):
        strategy("a").stage("z")


@pytest.mark.parametrize("strategy", PHASED)
def test_phases_must_be_listed(strategy):
    with pytest.raises(AssertionError, match="There is currently no AutoStage for PhasedExecution"):
        strategy()


@pytest.mark.parametrize("strategy", PHASED)
@pytest.mark.parametrize(
    ("phases", "blocks"),
    [
        (("B1", "B2", "B3"), [[("B1",)], [("B2",)], [("B3",)]]),
        ((Phase("a"), Phase("b")), [[("a",)], [("b",)]]),
        ((Stage("a"), Stage("b")), [[("a",)], [("b",)]]),
        (([Stage("a"), Stage("a.b")], [Stage("c"), Stage("d")]), [[("a",), ("a.b",)], [("c",), ("d",)]]),
        ((["layer1", "layer2"], ["layer3"]), [[("layer1", "layer2")], [("layer3",)]]),
    ],
    ids=["ids", "phases", "stages", "lists of stages", "lists of ids"],
)
def test_each_argument_is_a_phase(strategy, phases, blocks):
    execution = strategy(*copy.deepcopy(phases))

    assert [[stage.blocks for stage in execution.phase(i).stages] for i in range(len(blocks))] == blocks


def test_stages_of_phases_are_numbered_within_their_phase():
    execution = ParallelPhasedExecution([Stage("a"), Stage("b")], [Stage("c"), Stage("d")])

    numbers = [(execution.stage(block)._phase_id, execution.stage(block)._stage_id) for block in "abcd"]
    assert numbers == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("number", [-1, "0", 0.0])
def test_phases_are_counted(number):
    with pytest.raises(AssertionError, match="Phases are identified by positive integers"):
        SerialPhasedExecution("a").phase(number)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (PipelinedExecution(), {"execution_mode": 0}),
        (ShardedExecution(), {"execution_mode": 1}),
        (
            ParallelPhasedExecution("a").sendTensorsOffChipAfterFwd(),
            {
                "execution_mode": 2,
                "separate_backward_phase": False,
                "tensors_liveness": 1,
                "serial_phases_execution": False,
            },
        ),
        (
            ParallelPhasedExecution("a").sendTensorsOffChipAfterFwd().sendTensorsOffChipAfterFwd(False),
            {
                "execution_mode": 2,
                "separate_backward_phase": False,
                "tensors_liveness": 0,
                "serial_phases_execution": False,
            },
        ),
        (
            SerialPhasedExecution("a").setTensorsLiveness(Liveness.OffChipAfterEachPhase).useSeparateBackwardPhase(),
            {
                "execution_mode": 2,
                "separate_backward_phase": True,
                "tensors_liveness": 3,
                "serial_phases_execution": True,
            },
        ),
    ],
)
def test_compiler_is_told_the_strategy(strategy, expected):
    assert strategy.backendOptions() == expected


@pytest.mark.parametrize(
    "call",
    [
        lambda: ParallelPhasedExecution("a").sendTensorsOffChipAfterFwd(1),
        lambda: SerialPhasedExecution("a").setTensorsLiveness(1),
        lambda: SerialPhasedExecution("a").useSeparateBackwardPhase(None),
        lambda: Stage("a").ipu("0"),
    ],
)
def test_strategy_settings_have_types(call):
    with pytest.raises(AssertionError, match="Expected"):
        call()


def test_grouping_is_logged_at_debug_level(caplog):
    caplog.set_level(logging.DEBUG, logger="poptorch::python")

    PipelinedExecution("a", Stage("b").ipu(2))
    SerialPhasedExecution("c")

    assert caplog.messages == [
        "block a added to stage 0",
        "block b added to stage 1 on IPU 2",
        "block c added to phase 0 stage 0",
    ]
