"""Execution strategies: which block is in which stage and phase, what the compiler and what the log are told."""

from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import nn

import porting.simulator as simulator
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


# how blocks become stages while a model is traced


class Blocks(nn.Module):
    """One operator in each of `blocks`, which are pairs of id and IPU."""

    def __init__(self, *blocks):
        super().__init__()
        self.blocks = blocks

    def forward(self, x):
        for block_id, ipu in self.blocks:
            with simulator.Block(block_id, ipu_id=ipu):
                x = x + 1
        return x


def stages(model, strategy):
    options = simulator.Options().deviceIterations(8).setExecutionStrategy(strategy)
    executor = simulator.inferenceModel(model, options)
    executor.compile(torch.ones(8, 4))
    nodes = [operator.node for operator in executor.device_session.compiled.graph.operators]
    return [tuple(node.meta[key] for key in ("stage", "phase", "ipu")) for node in nodes]


def test_stages_are_those_of_the_ipus_by_default():
    assert stages(Blocks(("A", 0), ("B", 2), ("A", 1)), PipelinedExecution()) == [(0, 0, 0), (2, 0, 2), (1, 0, 1)]


def test_a_block_without_an_ipu_has_no_stage_by_default():
    message = "poptorch.AutoStage.SameAsIpu was selected but no IPU was specified for block A"

    with pytest.raises(AssertionError, match=message):
        stages(Blocks(("A", None)), PipelinedExecution(AutoStage.SameAsIpu))


def test_stages_are_numbered_from_one_as_blocks_appear():
    strategy = simulator.ShardedExecution(AutoStage.AutoIncrement)

    assert stages(Blocks(("A", 0), ("B", 1), ("A", 0)), strategy) == [(1, 0, 0), (2, 0, 1), (1, 0, 0)]


def test_numbering_starts_again_with_each_trace():
    strategy = simulator.ShardedExecution(AutoStage.AutoIncrement)

    assert stages(Blocks(("A", 0)), strategy) == stages(Blocks(("B", 0)), strategy) == [(1, 0, 0)]


def test_blocks_are_in_the_stages_that_list_them():
    strategy = PipelinedExecution("A", ["B", "C"])

    assert stages(Blocks(("A", 0), ("B", 1), ("C", None)), strategy) == [(0, 0, 0), (1, 0, 1), (1, 0, 1)]


def test_a_block_that_no_stage_lists_is_an_error():
    with pytest.raises(AssertionError, match=r"Unknown Block 'C' list of expected Blocks: \['A', 'B'\]"):
        stages(Blocks(("A", 0), ("C", 1)), PipelinedExecution("A", "B"))


def test_the_ipu_of_the_stage_comes_before_that_of_the_block():
    strategy = simulator.ShardedExecution(Stage("A").ipu(3), Stage("B"))

    assert stages(Blocks(("A", 0), ("B", 2)), strategy) == [(0, 0, 3), (1, 0, 2)]


def test_without_an_ipu_the_stage_number_is_taken(caplog):
    with caplog.at_level(logging.DEBUG, "poptorch::python"):
        found = stages(Blocks(("A", None), ("B", None)), simulator.ShardedExecution("A", "B"))

    assert found == [(0, 0, 0), (1, 0, 1)]
    assert "No IPU specified for block B: default to stage_id 1" in caplog.messages


def test_the_log_says_where_each_block_starts(caplog):
    with caplog.at_level(logging.DEBUG, "poptorch::python"):
        stages(Blocks(("A", 0), ("B", 1)), SerialPhasedExecution("A", "B"))

    started = [message for message in caplog.messages if message.startswith("Starting block")]
    assert started == ["Starting block id=A stage=0 phase=0 ipu=0", "Starting block id=B stage=0 phase=1 ipu=1"]


def test_the_log_is_written_even_if_forward_fails(caplog):
    class Failing(Blocks):
        def forward(self, x):
            super().forward(x)
            raise KeyError("mine")

    with caplog.at_level(logging.DEBUG, "poptorch::python"), pytest.raises(KeyError):
        stages(Failing(("A", 0)), PipelinedExecution())

    assert "Starting block id=A stage=0 phase=-1 ipu=0" in caplog.messages


def test_phases_are_positions_of_the_arguments():
    strategy = SerialPhasedExecution(["A", "B"], [Stage("C"), Stage("D")])

    found = stages(Blocks(("A", None), ("B", None), ("C", None), ("D", None)), strategy)

    assert found == [(0, 0, 0), (0, 0, 0), (0, 1, 0), (1, 1, 1)]


def test_phases_can_name_the_ipus_of_their_stages():
    strategy = ParallelPhasedExecution([Stage("A"), Stage("B")], [Stage("C"), Stage("D")])
    strategy.phase(0).ipus(0, 2)
    strategy.phase(1).ipus(1, 3)

    found = stages(Blocks(("A", None), ("B", None), ("C", None), ("D", None)), strategy)

    assert found == [(0, 0, 0), (1, 0, 2), (0, 1, 1), (1, 1, 3)]


def test_blocks_without_an_id_fit_a_list_of_numbers():
    class Numbered(nn.Module):
        def forward(self, x):
            with simulator.Block():
                x = x + 1
            with simulator.Block():
                return x + 1

    assert stages(Numbered(), simulator.ShardedExecution("0", "1")) == [(0, 0, 0), (1, 0, 1)]
