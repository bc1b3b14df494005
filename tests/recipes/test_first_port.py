"""What is special to `first_port`: how little the port changes, what a host loop costs, what accumulation changes."""

from __future__ import annotations

import difflib
import sys
from contextlib import closing

import pytest
import torch
from torch import nn

from porting.cli.main import main
from porting.recipe_chain import Steps, find_recipe
from tests.docs.page_blocks import blocks_of, without_numbers
from tests.program_server import ProgramServer

pytest.importorskip("sklearn")
from porting.recipes.first_port import costs
from porting.recipes.first_port.workload import make_model

RECIPE = find_recipe("first_port")
STEPS = Steps(RECIPE)
NUMBERS = [step.number for step in RECIPE.steps]
NUM_STEPS = 45


def plain_layers() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 8, kernel_size=3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))


@pytest.mark.parametrize(("number", "num_added"), [(1, 2), (2, 3)])
def test_the_port_itself_adds_few_lines_to_the_plain_program(number, num_added):
    before, after = RECIPE.step(0).source.splitlines(), RECIPE.step(number).source.splitlines()

    added = [line for line in difflib.ndiff(before, after) if line.startswith("+ ") and '"""' not in line]
    assert len([line for line in added if line[2:].strip()]) == num_added


def test_accumulation_changes_losses_because_batchnorm_sees_micro_batches():
    assert STEPS.losses(6, NUM_STEPS)[0] != pytest.approx(STEPS.losses(5, NUM_STEPS)[0], rel=1e-5)


def test_accumulation_changes_no_loss_without_batchnorm(monkeypatch):
    before, after = STEPS.module(5), STEPS.module(6)
    for module in (before, after):
        monkeypatch.setattr(module, "make_model", plain_layers)

    assert after.train(NUM_STEPS) == pytest.approx(before.train(NUM_STEPS), rel=1e-5, abs=0)


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_fewer_losses_are_the_first_of_more(number):
    assert STEPS.module(number).train(5) == STEPS.losses(number, NUM_STEPS)[:5]


@pytest.mark.slow
@pytest.mark.parametrize("number", NUMBERS)
def test_no_step_shuffles_or_initialises_from_what_ran_before(number):
    torch.manual_seed(4321)

    assert STEPS.module(number).train(2) == STEPS.losses(number, NUM_STEPS)[:2]


@pytest.fixture
def _digits_are_loaded(monkeypatch):
    """Let the process of each side begin with what takes longer to load than the side trains."""
    with closing(ProgramServer("porting.recipes.first_port.workload")) as server:
        monkeypatch.setattr(sys, "executable", server.python)
        # bytes are counted a step, whose number matters to the time alone
        monkeypatch.setattr(costs, "STEPS_A_ROUND", 9)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("_digits_are_loaded")
def test_the_costs_of_a_host_loop_are_measured():
    rows = {name: cells for name, *cells in costs.measure(rounds=1)}

    assert list(rows) == list(costs.SIDES)
    # the weights and the gradients of every step, beside the batch
    num_bytes = sum(tensor.numel() * 4 for tensor in make_model().parameters())
    assert float(rows["host loop"][1]) > float(rows["port"][1]) + 2 * num_bytes / 1024
    assert float(rows["host loop"][2]) > float(rows["port"][2]) + num_bytes / 1024
    assert all(float(cells[-1].replace(",", "")) > 0 for cells in rows.values())


@pytest.mark.slow
def test_the_proof_of_the_story_is_what_the_command_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    block = next(block for block in blocks_of(RECIPE.readme) if block.source.startswith("$ porting verify"))
    command, *shown = block.source.splitlines()

    assert main(command.replace("$ porting ", "").split()) == 0

    printed = [without_numbers(line) for line in capsys.readouterr().out.splitlines()]
    assert [line for line in shown if line != "..." and without_numbers(line) not in printed] == []
