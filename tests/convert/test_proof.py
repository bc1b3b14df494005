"""A conversion claims what its runs have shown: each column passes, fails, or says why it was not run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from porting.convert.columns import ConvertedProgram, Outcome
from porting.convert.proof import prove_conversion

pytestmark = pytest.mark.usefixtures("fork_programs")

ORIGINAL = """\
import argparse, os
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
args = parser.parse_args()
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(24, 6), torch.randint(3, (24,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
for epoch in range(1):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), os.path.join("checkpoints", "model.pt"))
"""
CHANGES = {
    "args = parser": 'parser.add_argument("--device", default="cpu", choices=["cpu", "sim", "ipu"])\nargs = parser',
    "for epoch": (
        'if args.device != "cpu":\n'
        "    from porting import PortOptions, to_ipu\n"
        "    options = PortOptions(max_executables=2)\n"
        "    ported = to_ipu(model, criterion, optimizer=optimizer, options=options)\n"
        "for epoch"
    ),
    "        optimizer.zero_grad()\n": (
        '        if args.device != "cpu":\n'
        "            outputs, loss = ported(x, y)\n"
        "            continue\n"
        "        optimizer.zero_grad()\n"
    ),
}
HOST = {
    "for epoch": (
        'if args.device != "cpu":\n    from porting import to_ipu\n    model = to_ipu(model, loop="host")\nfor epoch'
    ),
    "args = parser": CHANGES["args = parser"],
}


def change(text, changes):
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new, 1)
    return text


CONVERTED = change(ORIGINAL, CHANGES)


@pytest.fixture
def prove(tmp_path):
    """Prove a conversion of one script, both given as text; both projects stay as they are."""

    def prove(converted=CONVERTED, original=ORIGINAL, *, num_steps=3, limit_seconds=60, **program):
        for name, text in (("old", original), ("new", converted)):
            folder = tmp_path / name
            (folder / "checkpoints").mkdir(parents=True)
            (folder / "checkpoints" / "model.pt").write_bytes(b"weights of the user")
            (folder / "train.py").write_text(text)
        given = ConvertedProgram(tmp_path / "old", tmp_path / "new", "train.py", **program)
        proof = prove_conversion(
            given, num_steps=num_steps, seed=0, tell=lambda _stage: None, limit_seconds=limit_seconds
        )
        for name in ("old", "new"):
            files = {path.name: path.read_bytes() for path in (tmp_path / name).rglob("*") if path.is_file()}
            assert set(files) == {"train.py", "model.pt"}
            assert files["model.pt"] == b"weights of the user"
        return proof

    return prove


def outcomes_of(proof):
    return [column.outcome.value for column in proof.columns]


@pytest.mark.slow
def test_a_sound_conversion_passes_all_columns(prove):
    proof = prove()

    assert outcomes_of(proof) == ["passed"] * 3, str(proof)
    assert proof.is_proven
    assert "output, loss, gradient of" in proof.columns[1].reason
    assert proof.columns[0].numbers == {"findings of porting check": 0, "options kept": 3, "options added": 1}


def test_a_proof_is_plain_data_with_commands(prove, tmp_path):
    plain = json.loads(json.dumps(prove(arguments=("--lr", "0.2")).as_plain()))

    assert plain["is_proven"] is True
    names = [column["name"] for column in plain["columns"]]
    assert names == ["specification", "numeric", "behavioral"]
    assert f"porting verify {tmp_path}/new/train.py --against {tmp_path}/old/train.py" in plain["columns"][2]["command"]
    assert "--lr 0.2 --device sim" in plain["columns"][2]["command"]


def test_a_command_line_that_is_new_has_to_list_the_device(prove):
    parsed = {
        "import argparse, os": "import os",
        ORIGINAL[ORIGINAL.index("parser =") : ORIGINAL.index("torch.manual")]: "",
        "args.lr": "0.1",
    }

    proof = prove(original=change(ORIGINAL, parsed))

    assert proof.is_proven, str(proof)
    assert proof.columns[0].numbers["options added"] == 4


def test_a_loop_on_the_host_is_proven_where_its_model_runs_on_the_device(prove):
    proof = prove(change(ORIGINAL, HOST))

    assert outcomes_of(proof) == ["passed"] * 3, str(proof)


def test_a_program_that_makes_fewer_steps_is_proven_over_those(prove):
    proof = prove(num_steps=50)

    assert proof.is_proven, str(proof)
    assert "3 steps that it makes" in proof.columns[2].reason


FAULTS = {
    "another learning rate": ({"ported = to_ipu": "optimizer.param_groups[0]['lr'] *= 2; ported = to_ipu"}, "ppf"),
    "another loss": ({"to_ipu(model, criterion,": "to_ipu(model, nn.CrossEntropyLoss(reduction='sum'),"}, "pff"),
    "no device": ({'!= "cpu":\n            outputs': '== "never":\n            outputs'}, "fff"),
    "a port that fails": ({"    options = ": "    raise ValueError('no')\n    options = "}, "pff"),
    "another first step": ({"nn.Linear(6, 8), nn": "nn.Linear(6, 8, bias=False), nn"}, "fff"),
    "a last bit": ({"loss.backward()": "(loss * (1 + 2**-23)).backward()"}, "fff"),
    "a later step": ({"        loss.backward()": "        loss.backward() if loss.item() != 0 else None"}, "ppp"),
    "an option less": ({'"--lr"': '"--rate", "--lr", dest="lr"', '"--lr", dest': '"--learning", dest'}, "fpp"),
    "other arguments": ({"args = parser.parse": "parser.add_argument('file')\nargs = parser.parse"}, "fff"),
    "a step less": (
        {"batch_size=8, shuffle=True)": "batch_size=8, shuffle=True, drop_last=True); next(iter(loader))"},
        "fff",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_fails_its_columns(name, prove):
    changes, expected = FAULTS[name]

    proof = prove(change(CONVERTED, changes))

    assert "".join(outcome[0] for outcome in outcomes_of(proof)) == expected, str(proof)


def test_a_fault_that_begins_later_fails_the_training_alone(prove):
    later = {"        loss.backward()\n": "        (loss * (2 if seen else 1)).backward(); seen.append(1)\n"}

    proof = prove(change(CONVERTED, {**later, "for epoch": "seen = []\nfor epoch"}))

    assert outcomes_of(proof) == ["passed", "passed", "failed"], str(proof)
    assert "step 2" in proof.columns[2].reason


def test_an_error_of_the_check_is_told_with_its_place(prove):
    act = "class Act(nn.Module):\n    def forward(self, x):\n        return x if x.sum().item() else -x\n"
    changes = {"model = nn": f"{act}model = nn", "nn.ReLU()": "Act()"}

    specification = prove(change(CONVERTED, changes), change(ORIGINAL, changes)).columns[0]

    line = change(CONVERTED, changes).split("x.sum()")[0].count("\n") + 1
    assert "`porting check` finds C001" in specification.reason
    assert specification.reason.endswith(f" (train.py:{line})")


# -- originals that are no measure -------------------------------------------------------------------------------------

LACKS = {
    "cuda": ({"model = nn": "torch.ones(1).cuda(); model = nn"}, "does not train here"),
    "data": ({"torch.randn(24, 6)": "torch.load('data.pt')"}, "data.pt"),
    "input": ({"torch.manual_seed(0)": "input()"}, "EOFError"),
    "no training": ({"        optimizer.step()\n": ""}, "makes no step"),
    "chance": ({"torch.manual_seed(0)": "torch.manual_seed(int.from_bytes(os.urandom(4), 'big'))"}, "each time"),
}


@pytest.mark.parametrize("name", LACKS)
def test_what_cannot_be_compared_was_not_run(name, prove):
    changes, words = LACKS[name]

    proof = prove(change(CONVERTED, changes), change(ORIGINAL, changes))

    # what only a GPU can do is found without a run
    first = Outcome.FAILED if name == "cuda" else Outcome.NOT_RUN
    assert [column.outcome for column in proof.columns] == [first, Outcome.NOT_RUN, Outcome.NOT_RUN], str(proof)
    assert words in proof.columns[2].reason
    assert not proof.is_proven


def test_what_ends_the_original_with_wrong_words_is_told_in_its_own(prove):
    lacking = {"args = parser": 'parser.add_argument("--data", required=True)\nargs = parser'}

    proof = prove(change(CONVERTED, lacking), change(ORIGINAL, lacking))

    assert outcomes_of(proof) == ["not run"] * 3
    assert "SystemExit: 2: train.py: error: the following arguments are required: --data" in proof.columns[0].reason


@pytest.mark.parametrize(("num_steps", "last"), [(2, "passed"), (5, "not run")])
def test_a_program_that_ends_with_an_error_of_its_own_is_compared_up_to_it(prove, num_steps, last):
    ends = {"torch.save(": "raise ValueError('no disk')\ntorch.save("}

    proof = prove(change(CONVERTED, ends), change(ORIGINAL, ends), num_steps=num_steps)

    assert outcomes_of(proof) == ["passed", "passed", last], str(proof)
    assert ("no disk" in proof.columns[2].reason) is (last == "not run")


@pytest.mark.slow
def test_a_program_that_hangs_is_ended(prove):
    proof = prove(original=ORIGINAL.replace("torch.manual_seed(0)", "import time; time.sleep(1000)"), limit_seconds=1)

    assert outcomes_of(proof) == ["not run"] * 3
    assert "ended after 1 s" in proof.columns[0].reason


SLOW = {
    "a slow port": {"    ported = to_ipu": "    import time; time.sleep(1000)\n    ported = to_ipu"},
    "a slow program": {"torch.manual_seed(0)": "import time; time.sleep(0 if args.device == 'sim' else 1000)"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_what_takes_too_long_is_not_run_and_no_fault(name, prove):
    proof = prove(change(CONVERTED, SLOW[name]), limit_seconds=15)

    assert outcomes_of(proof) == ["not run"] * 3, str(proof)
    assert "ended after 15 s" in proof.columns[2].reason


def test_an_original_that_fails_after_some_steps_proves_the_first_alone(prove):
    fails = {
        "        optimizer.step()\n": "        optimizer.step()\n        x = 1 / (2 - len(y) // 8 - args.lr * 10)\n"
    }

    proof = prove(change(CONVERTED, fails), change(ORIGINAL, fails))

    assert outcomes_of(proof)[0] == "passed", str(proof)
    assert "ZeroDivisionError" in proof.columns[2].reason


# -- programs of all kinds ---------------------------------------------------------------------------------------------


def test_a_flood_of_words_and_threads_left_behind_do_no_harm(prove):
    noise = {
        "torch.manual_seed(0)": "print('x' * 10_000_000)\n"
        "import threading; threading.Thread(target=threading.Event().wait).start()\n"
        "torch.manual_seed(0)"
    }

    assert prove(change(CONVERTED, noise), change(ORIGINAL, noise)).is_proven


START = """\
import sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
import train
"""


def test_a_script_in_a_folder_of_a_project_imports_what_was_changed(tmp_path):
    for name in ("old", "new"):
        for folder in ("bin", "src", "checkpoints"):
            (tmp_path / name / folder).mkdir(parents=True)
        (tmp_path / name / "bin" / "start.py").write_text(START)
    (tmp_path / "old" / "src" / "train.py").write_text(ORIGINAL)
    (tmp_path / "new" / "src" / "train.py").write_text(CONVERTED)

    program = ConvertedProgram(tmp_path / "old", tmp_path / "new", "bin/start.py", working=Path("."))
    proof = prove_conversion(program, num_steps=2, seed=0, tell=lambda _stage: None)

    assert proof.is_proven, str(proof)


def test_an_optimizer_of_a_tensor_alone_needs_no_device(prove):
    own = {
        "optimizer = ": (
            "scale = torch.zeros(1, requires_grad=True)\nown = torch.optim.SGD([scale], lr=0.1)\noptimizer = "
        ),
        "        loss.backward()\n        optimizer.step()\n": (
            "        loss.backward()\n        optimizer.step()\n"
            "        own.zero_grad()\n        (scale * loss.item()).sum().backward()\n        own.step()\n"
        ),
    }

    proof = prove(change(ORIGINAL, {**HOST, **own}), change(ORIGINAL, own))

    assert outcomes_of(proof) == ["passed"] * 3, str(proof)
