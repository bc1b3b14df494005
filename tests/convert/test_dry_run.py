"""A dry run tells where a plain program trains: the calls of its models, its steps, and what it makes."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from porting.convert import dry_run
from porting.convert.sites import Role
from tests.program_server import ProgramServer

BEGIN = """\
import torch
from torch import nn
model, criterion = nn.Linear(3, 2), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.ones(4, 3), torch.ones(4, 2)
"""
MODEL = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.criterion = nn.Linear(3, 2), nn.MSELoss()
        self.layer(torch.ones(1, 3))
    def forward(self, x):
        return self.layer(x)
    def loss(self, x, y):
        return self.criterion(self(x), y)
    def fit(self, x, y):
        optimizer.zero_grad()
        self.loss(x, y).backward()
        optimizer.step()
    def score(self, x, y):
        with torch.no_grad():
            return self.loss(x, y)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.ones(4, 3), torch.ones(4, 2)
"""
LOADER = "loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(40, 3)), batch_size=2)\n"
needs_columns = pytest.mark.skipif(sys.version_info < (3, 11), reason="columns need Python 3.11")


@pytest.fixture(scope="module")
def server():
    with closing(ProgramServer("tests.verify.observed_forks")) as started:
        yield started


@pytest.fixture
def see(server, tmp_path, monkeypatch):
    """Run a program, given as text, in a fork of a process that has loaded torch, and return what was seen."""

    def start(command, _environment, log, *, limit_seconds):
        assert limit_seconds > 0
        with open(os.devnull, encoding="utf-8") as nothing:
            server.start(command[1:], [nothing.fileno(), log.fileno(), log.fileno()])
            return server.wait()

    def run(source, *, steps=2, seconds=60, **modules):
        for name, text in {**modules, "train": source}.items():
            Path(f"{name}.py").write_text(text, "utf-8")
        return dry_run.run_program("train.py", (), num_steps=steps, seconds=seconds)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(dry_run, "start_process", start)
    return run


def find(seen, role):
    """Return the lines and names of the places of a role."""
    return [(site.line, site.name) for site in seen.sites if site.role is role]


@pytest.mark.slow
def test_each_part_of_a_step_has_its_place_and_name(see):
    seen = see(
        f"{BEGIN}schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)\n{LOADER}"
        "for number in range(9):\n"
        "    optimizer.zero_grad()\n"
        "    loss = criterion(model(x), y)\n"
        "    loss.backward()\n"
        "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "    nn.utils.clip_grad_value_(model.parameters(), 1.0)\n"
        "    optimizer.step()\n"
        "    schedule.step()\n"
        "with torch.no_grad(): model(x)\n"
    )

    sgd, linear = "torch.optim.sgd.SGD", "torch.nn.modules.linear.Linear"
    assert [(site.role.value, site.line, site.name) for site in seen.sites] == [
        ("optimizer", 4, sgd),
        ("loader", 7, "torch.utils.data.dataloader.DataLoader"),
        ("zero_grad", 9, sgd),
        ("forward", 10, linear),
        ("backward", 11, "torch.Tensor"),
        ("clip", 12, "torch.nn.utils.clip_grad_norm_"),
        ("clip", 13, "torch.nn.utils.clip_grad_value_"),
        ("step", 14, sgd),
        ("schedule", 15, "torch.optim.lr_scheduler.StepLR"),
    ]
    assert {site.path for site in seen.sites} == {str(Path("train.py").resolve())}
    assert (seen.error, seen.num_steps) == ("", 2)


@needs_columns
def test_a_column_is_where_the_call_begins_counted_in_characters(see):
    seen = see(
        f"{BEGIN}ä = 0\n"
        "for number in range(9):\n"
        "    ä = 'ö'; loss = criterion(model(x), y)\n"
        "    (loss\n"
        "        + 0.0).backward(); optimizer.step()\n"
    )

    columns = {site.role: (site.line, site.column) for site in seen.sites}
    assert columns[Role.FORWARD] == (8, 30)
    assert columns[Role.BACKWARD] == (9, 4)
    assert columns[Role.STEP] == (10, 27)


def test_what_is_called_in_a_module_of_the_users_is_found_there(see):
    step = "def step(model, optimizer, x):\n    model(x).sum().backward()\n    optimizer.step()\n"

    seen = see(f"{BEGIN}from training import step\nfor number in range(9): step(model, optimizer, x)\n", training=step)

    assert {Path(site.path).name for site in seen.sites if site.role is not Role.OPTIMIZER} == {"training.py"}


@pytest.mark.parametrize("call", ["model.loss(x, y)", "model.criterion(model.forward(x), y)"])
def test_a_method_that_calls_the_parts_of_its_model_is_a_call_of_the_model(see, call):
    seen = see(f"{MODEL}for number in range(9): {call}.backward(); optimizer.step()\n")

    (site,) = (site for site in seen.sites if site.role is Role.FORWARD)
    assert (site.line, site.name) == (22, "train.Net")
    assert seen.methods == ({site.owner: ("loss",)} if "loss" in call else {})
    assert [*seen.trained.values()] == [(site.owner,)]


def test_a_function_that_takes_a_model_is_no_method_of_it(see):
    function = "def eval(model, x):\n    return model(x)\n"

    seen = see(f"{BEGIN}{function}for number in range(9): eval(model, x).sum().backward(); optimizer.step()\n")

    assert [line for line, _name in find(seen, Role.FORWARD)] == [7]
    assert seen.methods == {}


def test_a_method_under_a_decorator_is_one_of_its_model(see):
    decorated = MODEL.replace("    def loss", "    @torch.enable_grad()\n    def loss")

    seen = see(f"{decorated}for number in range(9): model.loss(x, y).backward(); optimizer.step()\n")

    assert [*seen.methods.values()] == [("loss",)]


def test_a_method_that_makes_a_step_is_no_call_of_its_model(see):
    seen = see(f"{MODEL}for number in range(9): model.fit(x, y); model.score(x, y)\n")

    assert find(seen, Role.FORWARD) == [(14, "train.Net")]
    assert find(seen, Role.EVALUATION) == [(11, "train.Net")]


def test_a_call_to_which_no_gradient_comes_back_evaluates(see):
    seen = see(
        f"{BEGIN}for number in range(9):\n    model(x).sum().backward()\n    optimizer.step()\n    print(model(x))\n"
    )

    assert [line for line, _name in find(seen, Role.FORWARD)] == [7]
    assert [line for line, _name in find(seen, Role.EVALUATION)] == [9]


def test_an_optimizer_of_the_users_is_made_where_the_program_makes_it(see):
    kind = (
        "class Own(torch.optim.SGD):\n"
        "    def __init__(self, parameters):\n        super().__init__(parameters, lr=0.1)\n"
        "    def step(self, closure=None):\n        return super().step(closure)\n"
    )

    seen = see(f"{BEGIN}{kind}own = Own(model.parameters())\nmodel(x).sum().backward()\nown.step()\n")

    assert find(seen, Role.OPTIMIZER) == [(4, "torch.optim.sgd.SGD"), (11, "train.Own")]
    assert find(seen, Role.STEP) == [(13, "train.Own")]


def test_each_optimizer_has_the_models_that_it_trains(see):
    seen = see(
        f"{BEGIN}other = nn.Linear(2, 2)\nboth = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)\n"
        "for number in range(9):\n    other(model(x)).sum().backward()\n    optimizer.step()\n    both.step()\n"
    )

    owners = {(site.role, site.line, site.column): site.owner for site in seen.sites}
    first, second = (owner for (role, *_rest), owner in owners.items() if role is Role.OPTIMIZER)
    models = [owner for (role, *_rest), owner in owners.items() if role is Role.FORWARD]
    assert len(seen.trained[first]) == 1
    assert seen.trained[second] == tuple(sorted(models))


def test_the_backward_passes_of_each_step_are_counted(see):
    seen = see(
        f"{BEGIN}for number in range(9):\n"
        "    for part in x.chunk(2): model(part).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
    )

    assert [*seen.num_backward.values()] == [(2, 2)]


def test_a_closure_is_a_part_of_its_step(see):
    seen = see(
        f"{BEGIN}def closure():\n    optimizer.zero_grad()\n    loss = model(x).sum()\n    loss.backward()\n"
        "    return loss\nfor number in range(9): optimizer.step(closure)\n"
    )

    assert [line for line, _name in find(seen, Role.FORWARD)] == [8]
    assert seen.num_steps == 2


def test_an_epoch_goes_on_after_its_loop_once_there_are_enough_steps(see):
    seen = see(
        f"{BEGIN}{LOADER}for epoch in range(9):\n    for (part,) in loader:\n"
        "        model(part).sum().backward()\n        optimizer.step()\n"
        "    with torch.no_grad():\n        for (part,) in loader: model(part)\n"
    )

    assert [line for line, _name in find(seen, Role.EVALUATION)] == [12]
    assert seen.num_steps == 2


def test_an_optimizer_that_makes_a_step_for_some_of_anothers_is_seen(see):
    seen = see(
        f"{BEGIN}rare = torch.optim.SGD(model.parameters(), lr=0.1)\nfor number in range(99):\n"
        "    model(x).sum().backward()\n    optimizer.step()\n    if number % 5 == 4: rare.step()\n"
    )

    assert [line for line, _name in find(seen, Role.STEP)] == [9, 10]


def test_what_was_seen_before_an_error_is_told_with_it(see):
    seen = see(f"{BEGIN}model(x).sum().backward()\noptimizer.step()\nraise ValueError('odd')\n")

    assert seen.error.startswith("ValueError: odd (in ")
    assert find(seen, Role.STEP) == [(7, "torch.optim.sgd.SGD")]


def test_a_program_without_end_is_ended(see):
    seen = see(f"{BEGIN}while True: model(x).sum().backward()\n", seconds=1)

    assert seen.error == "it has not ended after 1 seconds"
    assert find(seen, Role.FORWARD)


def test_the_end_of_a_process_that_leaves_nothing_is_told(see):
    seen = see("import os\nos._exit(3)\n")

    assert seen.error
    assert seen.sites == ()


def test_what_a_program_writes_beside_its_script_stays_as_it_was(see):
    Path("weights").write_text("old")

    seen = see(f"import os\nopen(os.path.join(os.path.dirname(__file__), 'weights'), 'w').write('new')\n{BEGIN}")

    assert seen.error == ""
    assert Path("weights").read_text() == "old"


def test_a_program_finds_what_lies_above_its_folder_in_its_git_project(see, tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    (tmp_path / "data").write_text("")
    (tmp_path / "programs").mkdir()
    monkeypatch.chdir(tmp_path / "programs")

    seen = see(f"open('../data').close()\n{BEGIN}")

    assert seen.error == ""
    assert {site.path for site in seen.sites} == {str((tmp_path / "programs" / "train.py").resolve())}


@pytest.mark.slow
def test_a_program_runs_in_a_process_of_its_own_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(f"{BEGIN}open('left', 'w').close()\nmodel(x).sum().backward()\noptimizer.step()\n")

    seen = dry_run.run_program("train.py", (), num_steps=2, seconds=60)

    assert (seen.error, seen.num_steps) == ("", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
