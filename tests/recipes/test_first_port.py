"""What is special to `first_port`: three added lines are the port, and what accumulation changes, and why."""

from __future__ import annotations

import difflib

import pytest
import torch
from torch import nn

from porting.recipe_chain import Steps, find_recipe

pytest.importorskip("sklearn")

RECIPE = find_recipe("first_port")
STEPS = Steps(RECIPE)
NUMBERS = [step.number for step in RECIPE.steps]
NUM_STEPS = 45


def plain_layers() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 8, kernel_size=3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))


def test_the_port_itself_adds_three_lines():
    before, after = RECIPE.step(0).source.splitlines(), RECIPE.step(1).source.splitlines()

    added = [line for line in difflib.ndiff(before, after) if line.startswith("+ ") and '"""' not in line]
    assert len([line for line in added if line[2:].strip()]) == 3


def test_accumulation_changes_losses_because_batchnorm_sees_micro_batches():
    assert STEPS.losses(5, NUM_STEPS)[0] != pytest.approx(STEPS.losses(4, NUM_STEPS)[0], rel=1e-5)


def test_accumulation_changes_no_loss_without_batchnorm_and_dropout(monkeypatch):
    before, after = STEPS.module(4), STEPS.module(5)
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
