"""How blocks become stages while a model is traced, and what the log says of it."""

from __future__ import annotations

import logging

import pytest
import torch
from torch import nn

import porting.simulator as simulator
from porting.simulator import AutoStage, ParallelPhasedExecution, PipelinedExecution, SerialPhasedExecution, Stage


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
