"""The chain of `first_port`: neighbours have equal losses and differ by a few lines, and every step learns."""

from __future__ import annotations

import difflib
import functools
import importlib
import re
from typing import List, Tuple

import pytest
import torch
from torch import nn

from porting.cli.recipe import RecipeStep, find_recipe

pytest.importorskip("sklearn")

RECIPE = find_recipe("first_port")
STEPS = RECIPE.steps
NEIGHBOURS = list(zip(STEPS, STEPS[1:]))
# two epochs, so that the second one's order and random numbers are compared as well
NUM_STEPS = 90
MAX_CHANGED_LINES = 10


def name_of(value: object) -> str:
    return value.path.stem if isinstance(value, RecipeStep) else str(value)


@pytest.fixture(autouse=True)
def one_thread():
    """Keep sums in one order, and small models from waiting for busy cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def load(step: RecipeStep):
    return importlib.import_module(step.module)


@functools.lru_cache(maxsize=None)
def trained(step: RecipeStep) -> Tuple[List[float], float]:
    """Train a step once for all tests; return its losses and its test accuracy."""
    return load(step).train_and_test(NUM_STEPS)


def changed_lines(before: RecipeStep, after: RecipeStep) -> List[str]:
    lines = difflib.ndiff(before.source.splitlines(), after.source.splitlines())
    return [line for line in lines if line.startswith(("- ", "+ ")) and line[2:].strip()]


def plain_layers() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 8, kernel_size=3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 6 * 6, 10))


def section(number: int) -> str:
    """Return the part of the story about a step."""
    story = RECIPE.readme.read_text(encoding="utf-8")
    return re.split(r"^## ", story.split(f"## Step {number}: ")[1], flags=re.MULTILINE)[0]


@pytest.mark.parametrize(("before", "after"), NEIGHBOURS[:-1], ids=name_of)
def test_neighbours_have_equal_losses(before, after):
    assert trained(after)[0] == pytest.approx(trained(before)[0], rel=1e-5, abs=0)


def test_accumulation_changes_losses_a_little_because_batchnorm_sees_micro_batches():
    before, after = NEIGHBOURS[-1]

    # 0.018 in the first epoch when it was written
    assert trained(after)[0][:45] == pytest.approx(trained(before)[0][:45], rel=0.05)
    assert trained(after)[0][0] != pytest.approx(trained(before)[0][0], rel=1e-5)


def test_accumulation_changes_no_loss_without_batchnorm_and_dropout(monkeypatch):
    before, after = (load(step) for step in NEIGHBOURS[-1])
    for module in (before, after):
        monkeypatch.setattr(module, "make_model", plain_layers)

    assert after.train(45) == pytest.approx(before.train(45), rel=1e-5, abs=0)


@pytest.mark.parametrize(("before", "after"), NEIGHBOURS, ids=name_of)
def test_neighbours_differ_by_a_few_lines(before, after):
    lines = changed_lines(before, after)

    assert 0 < len(lines) <= MAX_CHANGED_LINES, "\n".join(lines)


def test_the_port_itself_adds_three_lines():
    added = [line for line in changed_lines(*NEIGHBOURS[0]) if line.startswith("+ ") and '"""' not in line]

    assert len(added) == 3


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_every_step_recognises_the_test_images(step):
    assert trained(step)[1] >= 0.95


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_fewer_losses_are_the_first_of_more(step):
    assert load(step).train(5) == trained(step)[0][:5]


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_no_step_shuffles_or_initialises_from_what_ran_before(step):
    torch.manual_seed(4321)

    assert load(step).train(2) == trained(step)[0][:2]


@pytest.mark.parametrize("step", STEPS[1:], ids=name_of)
def test_the_story_begins_with_code_that_the_step_has(step):
    _heading, code, *_reasons = section(step.number).split("\n\n")

    spans = re.findall(r"`([^`]+)`", code)
    assert spans
    assert [span for span in spans if span not in step.source] == []


@pytest.mark.parametrize("step", STEPS, ids=name_of)
def test_the_list_of_steps_fits_a_terminal(step):
    width = max(len(step.name) for step in STEPS)

    assert len(f"  {step.number}  {'':{width}}  {step.summary}") <= 80
