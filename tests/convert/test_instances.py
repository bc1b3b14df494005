"""Several instances of a converted program train on shares of the samples to one model, and the files exist once."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

from porting.convert.eject import eject_text
from tests.convert.conversions import LOOP, convert_text
from tests.convert.sources.programs import LIGHTNING
from tests.convert.training_programs import LOADED, convert_instances

POPTORCH = """\
import poptorch
import torch

model = poptorch.trainingModel(torch.nn.Linear(4, 2), poptorch.Options())
"""
TOLD = """
import os
rank = os.environ["OMPI_COMM_WORLD_RANK"]
json.dump(seen, open(f"told-{rank}.json", mode="w+"))
torch.save(model.state_dict(), open(f"told-{rank}.pt", mode="wb"))
"""
"""What each instance tells of itself, for the test alone."""


def list_reasons(folder, text, **settings):
    return [one.reason for one in convert_instances(folder, text, **settings)[1].left]


@pytest.mark.slow
def test_two_instances_train_one_model_on_different_halves_and_write_once(tmp_path):
    converted, made = convert_instances(tmp_path, LOADED)
    (tmp_path / "train.py").write_text(converted + TOLD)
    launcher = [sys.executable, "-m", "porting", "run", "--device", "sim", "--num-instances", "2"]

    subprocess.run([*launcher, "train.py", "--device", "sim"], cwd=tmp_path, check=True)

    assert made.is_whole
    halves = [json.loads((tmp_path / f"told-{rank}.json").read_text()) for rank in "01"]
    assert [sorted(half) for half in halves] == [
        sorted([*range(0, 16, 2)] * 2),
        sorted([*range(1, 16, 2)] * 2),
    ]
    first, second, saved = (torch.load(tmp_path / name) for name in ("told-0.pt", "told-1.pt", "model.pt"))
    assert all(torch.equal(first[name], second[name]) and torch.equal(first[name], saved[name]) for name in first)
    assert json.loads((tmp_path / "seen.json").read_text()) == halves[0]


def test_a_conversion_for_instances_is_taken_out_byte_for_byte(tmp_path):
    converted, made = convert_instances(tmp_path, LOADED)

    assert made.is_whole
    assert eject_text(converted.encode()).decode() == LOADED


def test_a_second_conversion_changes_nothing(tmp_path):
    converted, _made = convert_instances(tmp_path, LOADED)

    assert convert_instances(tmp_path, converted)[1].changed == {}


@pytest.mark.parametrize("instances", [True, False])
def test_the_launcher_is_named_where_it_was_asked_for(tmp_path, instances):
    _text, made = convert_text(tmp_path, LOADED, style="idiomatic", instances=instances)
    assert any("poprun" in line for line in made.launches.values()) is instances


def test_without_the_option_samples_and_files_are_as_they_were(tmp_path):
    text, _made = convert_text(tmp_path, LOADED, style="idiomatic")

    assert "this_instance" not in text
    assert "partition" not in text


def test_a_loop_on_the_host_is_refused(tmp_path):
    assert list_reasons(tmp_path, LOADED, style="minimal") == ["a loop on the host joins no gradients over instances"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (LIGHTNING, "the loop is a library's, and so are its samples and files"),
        (POPTORCH, "the program's own options say what several instances do"),
    ],
)
def test_programs_that_have_a_style_of_their_own_are_refused(tmp_path, text, reason):
    assert reason in list_reasons(tmp_path, text)


def test_a_step_that_stays_the_loops_says_what_several_instances_need(tmp_path):
    _text, made = convert_instances(
        tmp_path, LOADED.replace("        optimizer.step", "        if y.sum(): optimizer.step")
    )

    assert "not made in each turn" in made.left[0].reason
    assert made.notes == [
        "several instances need a port that makes the steps: `--style minimal` goes without `--instances`"
    ]


def test_a_program_of_processes_is_refused(tmp_path):
    text = LOADED.replace("points =", "torch.distributed.init_process_group('gloo')\npoints =")
    (reason,) = list_reasons(tmp_path, text)
    assert reason.startswith("the program makes its processes by itself")


SPLIT = """\
def make(data):
    return DataLoader(data, batch_size=4)
loader, tests = make(data), make(data)
for x, y in tests:
    print(y)
"""


def test_settings_of_a_loader_may_be_unpacked(tmp_path):
    text = LOADED.replace("loader = ", 'words = {"num_workers": 0}\nloader = ').replace("shuffle=True", "**words")
    converted, made = convert_instances(tmp_path, text)

    assert made.is_whole
    assert 'DataLoader(partition(data) if "PORT_DEVICE" in os.environ else data, batch_size=4, **words)' in converted


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        ("loader = DataLoader(data, 4, sampler=torch.utils.data.RandomSampler(data))\n", "order of all samples"),
        ("loader = DataLoader(data, 4)\nprint(loader.dataset.tensors)\n", "a share of a dataset has none"),
        ("loader = [(points, torch.arange(16) % 3)]\n", "no `DataLoader` that was found"),
        ('words = {"sampler": [3, 1]}\nloader = DataLoader(data, 4, **words)\n', "order of all samples"),
        (SPLIT, "loaders that train nothing"),
    ],
)
def test_samples_that_cannot_be_shared_out_are_left_and_no_launcher_is_named(tmp_path, new, reason):
    _text, made = convert_instances(
        tmp_path, LOADED.replace("loader = DataLoader(data, batch_size=4, shuffle=True)\n", new)
    )

    assert [reason in one.reason for one in made.left] == [True]
    assert not any("poprun" in line for line in made.launches.values())


def test_a_loader_of_an_evaluation_gives_all_samples(tmp_path):
    tests = "with torch.no_grad():\n    for x, y in DataLoader(data):\n        model(x)\n"
    text, made = convert_instances(tmp_path, LOADED + tests)

    assert made.is_whole
    assert "in DataLoader(data):" in text


def test_a_seed_of_the_program_is_the_seed_of_all_instances(tmp_path):
    seed = "manual_seed(0)"

    assert seed in convert_instances(tmp_path, LOADED)[0]
    assert convert_instances(tmp_path, LOADED.replace("points =", "torch.manual_seed(3)\npoints ="))[0].count(seed) == 0


def test_a_schedule_goes_by_the_mean_of_all_instances(tmp_path):
    text = LOADED.replace("seen =", "plan = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)\nseen =")
    text = text.replace("    torch.save", "    plan.step(loss)\n    torch.save")
    converted, made = convert_instances(tmp_path, text)

    assert made.is_whole
    assert 'plan.step(average_over_instances(float(loss)) if "PORT_DEVICE" in os.environ else loss)' in converted
    assert eject_text(converted.encode()).decode() == text


def test_a_loop_without_a_loader_is_left(tmp_path):
    (reason,) = list_reasons(tmp_path, LOOP)
    assert reason.startswith("the batches come from no `DataLoader`")
