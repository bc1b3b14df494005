"""A new recipe passes its checks at once, with a model of the user's or a placeholder."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
import torch

from porting.cli.main import main


@pytest.fixture
def one_thread():
    """Keep small models from waiting for busy cores, in programs that are started as well."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run_program(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, **options)


TARGET = """
import torch
from torch import nn


def make():
    torch.manual_seed(3)
    net = nn.Sequential(nn.Linear(6, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 3))
    batch = torch.rand(9, 6), torch.randint(0, 3, (9,))
    return net, nn.CrossEntropyLoss(), batch, torch.optim.Adam(net.parameters(), lr=0.01)


VALUE = {"model": nn.Linear(3, 1), "loss": nn.MSELoss(), "batch": (torch.rand(4, 3), torch.rand(4, 1))}


LABELLED = {**VALUE, "label": -1}


class Parts:
    def __init__(self):
        self.model, self.batch = OwnLoss(), (torch.rand(4, 3), torch.rand(4, 1))


class OwnLoss(nn.Linear):
    def __init__(self):
        super().__init__(3, 1)

    def forward(self, x, y):
        output = super().forward(x)
        return output, nn.functional.mse_loss(output, y)


def sized(batch_size):
    return nn.Linear(3, 1), nn.MSELoss(), (torch.ones(batch_size, 3), torch.ones(batch_size, 1))


def sized_by_default(batch=4):
    return sized(batch)


CALLS = []


def counted():
    CALLS.append(1)
    return sized(4)


def with_text():
    return nn.Linear(3, 1), nn.MSELoss(), (torch.rand(4, 3), "words")
"""


@pytest.fixture
def own_program(tmp_path, monkeypatch):
    """Write the user's program, and forget it and the paths that it brings."""
    (tmp_path / "own_program.py").write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("own_program", "workload"):
        sys.modules.pop(name, None)


NEW_FILES = [
    "README.md",
    "checks.py",
    "step_0_plain.py",
    "step_1_loss_in_forward.py",
    "step_2_device_loader.py",
    "step_3_compile_and_infer.py",
    "step_4_device_iterations.py",
    "step_5_accumulation.py",
    "workload.py",
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("model", [[], *(["--model", f"own_program.py:{n}"] for n in ("make", "VALUE", "Parts"))])
def test_a_new_recipe_passes_its_checks_at_once(own_program, capsys, model):
    assert main(["recipe", "new", "mine", *model]) == 0
    assert sorted(path.name for path in (own_program / "mine").iterdir()) == NEW_FILES
    command = capsys.readouterr().out.splitlines()[-1].split()

    assert command[:3] == ["porting", "recipe", "run"]
    assert main(command[1:]) == 0

    assert capsys.readouterr().out.endswith("8 checks of mine: all hold\n")


@pytest.mark.slow
@pytest.mark.usefixtures("programs_have_torch")
def test_a_new_recipe_from_a_module_finds_it_wherever_it_is_run(own_program):
    main(["recipe", "new", "mine", "--model", "own_program:make"])

    result = run_program(str(own_program / "mine" / "step_5_accumulation.py"), cwd="/")

    assert re.fullmatch(r"loss \d\.\d+ -> \d\.\d+\n", result.stdout), result.stderr


@pytest.mark.parametrize("model", [[], ["--model", "own_program.py:counted"]], ids=["placeholder", "model"])
def test_new_overwrites_nothing_and_loads_no_model(own_program, capsys, model):
    (own_program / "mine").mkdir()

    assert main(["recipe", "new", "mine", *model]) == 2

    assert "own_program" not in sys.modules

    assert capsys.readouterr().err.startswith("error[R002]")
    assert list((own_program / "mine").iterdir()) == []


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("nowhere.py:make", "E020"),
        ("own_program.py:other", "E020"),
        ("own_program.py:with_text", "E022"),
        ("own_program.py:LABELLED", "E022"),
    ],
)
def test_a_target_that_does_not_serve_leaves_nothing_behind(own_program, capsys, target, code):
    assert main(["recipe", "new", "mine", "--model", target]) == 2

    assert capsys.readouterr().err.startswith(f"error[{code}]")
    assert not (own_program / "mine").exists()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("sized", "made = sized(batch_size=BATCH_SIZE)"),
        ("sized_by_default", "made = sized_by_default(batch=BATCH_SIZE)"),
    ],
)
def test_a_function_gets_the_batch_size_of_a_new_recipe(own_program, one_thread, capsys, name, made):
    assert main(["recipe", "new", "mine", "--model", f"own_program.py:{name}", "--batch", "7"]) == 0

    program = (own_program / "mine" / "workload.py").read_text()
    assert "BATCH_SIZE = 6\n" in program
    assert made in program
    assert main(["recipe", "run", "./mine", "--check"]) == 0


def test_without_a_batch_size_the_default_of_the_function_holds(own_program):
    assert main(["recipe", "new", "mine", "--model", "own_program.py:sized_by_default"]) == 0
    assert "made = sized_by_default()" in (own_program / "mine" / "workload.py").read_text()


def test_any_other_batch_is_cut_to_the_batch_size_of_a_new_recipe(own_program):
    assert main(["recipe", "new", "mine", "--model", "own_program.py:make", "--batch", "4"]) == 0

    program = (own_program / "mine" / "workload.py").read_text()
    assert "BATCH_SIZE = 4\n" in program
    assert "made = make()" in program


def test_the_advice_to_give_a_batch_size_can_be_followed(own_program, capsys):
    assert main(["recipe", "new", "mine", "--model", "own_program.py:sized"]) == 2
    assert "= help: say how many samples a batch has: `--batch N`" in capsys.readouterr().err


def test_a_batch_size_is_for_a_model_of_the_users(own_program, capsys):
    assert main(["recipe", "new", "mine", "--batch", "4"]) == 2
    assert "`--model PROGRAM:FUNCTION`" in capsys.readouterr().err
    assert not (own_program / "mine").exists()


def test_a_users_function_is_called_once(own_program):
    main(["recipe", "new", "mine", "--model", "own_program.py:counted"])

    assert len(sys.modules["own_program"].CALLS) == 1


@pytest.mark.parametrize("name", ["my-program.py", "random.py", "workload.py"])
def test_a_file_that_no_program_can_import_is_refused(own_program, capsys, name):
    (own_program / name).write_text(TARGET)

    assert main(["recipe", "new", "mine", "--model", f"{name}:make"]) == 2
    assert "error[E022]: a program cannot import" in capsys.readouterr().err
    assert not (own_program / "mine").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("programs_have_torch")
def test_a_new_recipe_finds_a_folder_of_any_name(own_program):
    (own_program / "\U0001f344").mkdir()
    (own_program / "\U0001f344" / "grown.py").write_text(TARGET)

    assert main(["recipe", "new", "mine", "--model", "\U0001f344/grown.py:make"]) == 0
    assert run_program(str(own_program / "mine" / "step_0_plain.py")).returncode == 0


def test_the_checks_of_a_new_recipe_find_what_is_not_portable(own_program, capsys):
    main(["recipe", "new", "mine"])
    step = own_program / "mine" / "step_1_loss_in_forward.py"
    step.write_text(
        step.read_text()
        .replace("porting.to_ipu(model, ", "porting.to_ipu(model.eval().float(), ")
        .replace("optimizer=optimizer", "optimizer=torch.optim.SGD(model.parameters(), lr=0.3)")
    )

    assert main(["recipe", "run", "./mine", "--check", "--step", "1"]) == 1
    assert "FAILED step 1: losses equal step 0's" in capsys.readouterr().out


DRAWING = """
import random

import numpy
import torch
from torch import nn


class Noisy(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.layer, self.noise = nn.Linear(3, 1), float(draw())

    def forward(self, x):
        return self.layer(x) + self.noise


def make(draw=random.random):
    return Noisy(draw), nn.MSELoss(), (torch.ones(4, 3), torch.ones(4, 1))


def draw_by_numpy():
    return make(numpy.random.rand)


def draw_by_own():
    return make(numpy.random.default_rng().random)
"""


@pytest.mark.parametrize("name", ["make", "draw_by_numpy"])
def test_all_steps_draw_the_same_numbers(own_program, capsys, name):
    (own_program / "own_program.py").write_text(DRAWING)
    main(["recipe", "new", "mine", "--model", f"own_program.py:{name}"])

    assert main(["recipe", "run", "./mine", "--check"]) == 0, capsys.readouterr().out


def test_a_model_that_draws_from_a_generator_of_its_own_is_told(own_program, capsys):
    (own_program / "own_program.py").write_text(DRAWING)
    main(["recipe", "new", "mine", "--model", "own_program.py:draw_by_own"])

    assert main(["recipe", "run", "./mine", "--check", "--step", "0"]) == 1

    shown = capsys.readouterr().out
    assert "FAILED step 0: a second training has the same losses" in shown
    assert "`numpy.random.default_rng()`" in shown
