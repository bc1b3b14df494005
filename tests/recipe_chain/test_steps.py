"""Steps train once, leave threads and random streams as they were, and give folders' modules back."""

from __future__ import annotations

import random
import sys
import types

import numpy as np
import pytest
import torch

from porting.recipe_chain import CheckFailed, Steps, find_recipe

STEP = """
import random
import numpy
import torch
import shared

CALLS = []


def train(num_steps):
    CALLS.append(num_steps)
    torch.manual_seed(7), random.seed(7), numpy.random.seed(7)
    return [shared.FIRST * index for index in range(num_steps)]


def num_threads():
    return torch.get_num_threads()
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "step_0_plain.py").write_text(STEP)
    (tmp_path / "shared.py").write_text("FIRST = 2.0\n")
    return tmp_path


def test_a_longer_training_serves_for_a_shorter_one(folder):
    with Steps(find_recipe(str(folder)), num_steps=3) as steps:
        assert steps.losses(0) == [0.0, 2.0, 4.0]
        assert steps.losses(0, 2) == [0.0, 2.0]
        assert steps.losses(0, 4) == [0.0, 2.0, 4.0, 6.0]
        assert steps.module(0).CALLS == [3, 4]


def test_a_training_is_measured_twice_and_serves_for_the_losses(folder):
    with Steps(find_recipe(str(folder)), num_steps=3) as steps:
        assert [steps.measure(0, lambda step: step.train(4)[-1]) for _time in range(2)] == [6.0, 6.0]
        assert steps.losses(0) == [0.0, 2.0, 4.0]
        assert steps.module(0).CALLS == [4]


def test_a_training_that_returns_no_losses_can_be_measured(folder):
    (folder / "step_0_plain.py").write_text("def train(num_steps):\n    return {'rows': num_steps}\n")

    with Steps(find_recipe(str(folder))) as steps:
        assert steps.measure(0, lambda step: step.train(4)["rows"]) == 4


def test_a_training_by_keyword_is_another_one_each_time(folder):
    with Steps(find_recipe(str(folder)), num_steps=3) as steps:
        assert [steps.measure(0, lambda step: step.train(num_steps=2)[-1]) for _time in range(2)] == [2.0, 2.0]
        assert steps.module(0).CALLS == [2, 2]


def test_fewer_losses_than_asked_for_are_not_compared(folder):
    (folder / "step_0_plain.py").write_text("def train(num_steps):\n    return [1.0, 2.0]\n")

    with Steps(find_recipe(str(folder))) as steps, pytest.raises(CheckFailed, match="2 losses of step 0, and 3 were"):
        steps.losses(0, 3)


def test_random_streams_and_threads_are_left_as_they_were(folder):
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    expected = torch.rand(1), random.random(), np.random.rand()
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    before = torch.get_num_threads()

    with Steps(find_recipe(str(folder))) as steps:
        steps.losses(0)
        assert steps.call(0, lambda step: step.num_threads()) == 1

    assert (torch.rand(1), random.random(), np.random.rand()) == expected
    assert torch.get_num_threads() == before


def test_modules_of_a_folder_are_gone_afterwards(folder):
    before = list(sys.path)

    with Steps(find_recipe(str(folder))) as steps:
        steps.losses(0)
        assert "shared" in sys.modules

    assert not {"shared", "step_0_plain"} & set(sys.modules)
    assert sys.path == before


def test_the_workload_of_another_folder_is_not_taken(folder, monkeypatch):
    (folder / "step_0_plain.py").write_text(STEP.replace("shared", "workload"))
    (folder / "workload.py").write_text("FIRST = 2.0\n")
    monkeypatch.setitem(sys.modules, "workload", types.ModuleType("workload"))

    with Steps(find_recipe(str(folder))) as steps:
        assert steps.losses(0, 2) == [0.0, 2.0]


def test_a_step_of_the_package_is_the_packages_module():
    steps = Steps(find_recipe("first_port"))

    assert steps.recipe.module_name("step_0_plain") == "porting.recipes.first_port.step_0_plain"
