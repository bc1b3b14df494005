"""The first instance alone writes: what writes is guarded, and what is opened writes nowhere in the others."""

from __future__ import annotations

import pytest

from porting.convert.eject import eject_text
from tests.convert.training_programs import LOADED, convert_instances

OTHERS = '"PORT_DEVICE" in os.environ and this_instance().index != 0'
FIRST = '"PORT_DEVICE" not in os.environ or this_instance().index == 0'
NUMBER = 'f"-{this_instance().index}"'
IMPORTS = """\
import csv, logging, os, shutil
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import wandb
from torch.utils.tensorboard import SummaryWriter
"""


def convert_lines(folder, lines):
    """Convert a program with further lines before its loop, and return these lines; ejected, it is as it was."""
    text = IMPORTS + LOADED.replace("seen = []\n", f"print('begun')\n{lines}\nseen = []\n")
    converted, made = convert_instances(folder, text)
    assert eject_text(converted.encode()).decode() == text
    return converted.partition("print('begun')\n")[2].partition("seen = []\n")[0], made


@pytest.mark.parametrize(
    "line",
    [
        "torch.save(model, 'a.pt')",
        "np.savez('a.npz', points=points)",
        "plt.savefig('a.png')",
        "Path('a.txt').write_text('a')",
        "shutil.copyfile('a.pt', 'b.pt')",
        "os.remove('a.pt')",
    ],
)
def test_a_statement_that_writes_is_guarded(tmp_path, line):
    lines, made = convert_lines(tmp_path, line.replace("torch.save(model,", "torch.save(1,"))

    assert not made.left
    assert lines.startswith(f"if {FIRST}:\n    {line.replace('torch.save(model,', 'torch.save(1,')}\n")


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("log = open('a.txt', 'w')", "open(os.devnull, 'w') if {0} else open('a.txt', 'w')"),
        ("log = open('a.txt', mode='x')", "open(os.devnull, 'w') if {0} else open('a.txt', mode='x')"),
        (
            "log = open('a', 'a' if points else 'w')",
            "open(os.devnull, 'a' if points else 'w') if {0} else open('a', 'a' if points else 'w')",
        ),
        ("log = Path('a').open('ab')", "open(os.devnull, 'ab') if {0} else Path('a').open('ab')"),
        ("log = csv.writer(open('a', 'a'))", "csv.writer(open(os.devnull, 'a') if {0} else open('a', 'a'))"),
        ("open('a', 'w').write('a')", "(open(os.devnull, 'w') if {0} else open('a', 'w')).write('a')"),
        ("log = logging.FileHandler('a')", "logging.NullHandler() if {0} else logging.FileHandler('a')"),
        ("logging.basicConfig(filename='a')", "filename=os.devnull if {0} else 'a'"),
        ("log = SummaryWriter('a')", "SummaryWriter(str('a' or \"runs/instance\") + {1} if {0} else 'a')"),
        ("log = SummaryWriter()", 'SummaryWriter(**({{"comment": {1}}} if {0} else {{}}))'),
        ("wandb.init(project='a')", 'wandb.init(**({{"mode": "disabled"}} if {0} else {{}}), project=\'a\')'),
        ("wandb.init(mode='online')", "mode=\"disabled\" if {0} else 'online'"),
        ("if points: os.remove('a')", "None if {0} else os.remove('a')"),
    ],
)
def test_what_is_used_later_writes_nowhere_in_the_others_or_under_their_number(tmp_path, line, instead):
    lines, made = convert_lines(tmp_path, line)

    assert not made.left
    assert instead.format(OTHERS, NUMBER) in lines


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("os.mkdir('a')", "os.makedirs('a', exist_ok=True) if {0} else os.mkdir('a')"),
        ("os.makedirs('a')", "os.makedirs('a', **({{\"exist_ok\": True}} if {0} else {{}}))"),
        ("Path('a').mkdir()", "Path('a').mkdir(**({{\"exist_ok\": True}} if {0} else {{}}))"),
    ],
)
def test_a_folder_may_be_there_where_several_make_it(tmp_path, line, instead):
    several = '"PORT_DEVICE" in os.environ and this_instance().size > 1'
    assert instead.format(several) in convert_lines(tmp_path, line)[0]


@pytest.mark.parametrize(
    "line", ["log = open('a.txt')", "log = open('a', 'rb')", "os.makedirs('a', exist_ok=True)", "print('a')"]
)
def test_what_writes_nothing_that_others_write_stays(tmp_path, line):
    assert convert_lines(tmp_path, line)[0] == f"{line}\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("path = shutil.copy('a', 'b')", "`shutil.copy` writes in each instance, as a part of an expression"),
        ("log = open('a', begun)", "whether `builtins.open` opens a file to write it is not known"),
        ("import mlflow; mlflow.start_run()", "`mlflow.start_run` begins a record of its own for each instance"),
    ],
)
def test_what_cannot_be_guarded_is_left(tmp_path, line, reason):
    assert [one.reason for one in convert_lines(tmp_path, line)[1].left] == [reason]


def test_what_the_first_instance_has_saved_is_waited_for(tmp_path):
    text = LOADED + 'model.load_state_dict(torch.load("model.pt"))\n'
    converted, made = convert_instances(tmp_path, text)

    assert made.is_whole
    assert "    sum_over_instances([0])  # the first instance has written it then\nmodel.load_state_dict(" in converted
    assert eject_text(converted.encode()).decode() == text


def test_what_is_loaded_before_anything_was_saved_is_not_waited_for(tmp_path):
    text = LOADED.replace("criterion =", "model.load_state_dict(torch.load('old.pt'))\ncriterion =")
    assert "sum_over_instances" not in convert_instances(tmp_path, text)[0]
