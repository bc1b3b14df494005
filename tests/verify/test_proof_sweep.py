"""Several programs and seeds are verified by a command each, and every certificate is kept."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import pytest

from porting.cli.main import main
from porting.verify.certificate import Certificate
from porting.verify.proof_sweep import parse_seeds
from tests.verify.certificates import make_certificate, make_failed

TRAIN = """\
import torch

def make():
    model = torch.nn.Linear(4, 3)
    batch = torch.rand(8, 4), torch.randint(3, (8,))
    return model, torch.nn.CrossEntropyLoss(), batch, torch.optim.SGD(model.parameters(), lr=0.1)

def raising():
    raise KeyError("missing")
"""


@pytest.fixture(autouse=True)
def proofs(tmp_path, monkeypatch):
    """Work in a folder with a program, and with one for certificates."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(TRAIN)
    Path("proofs").mkdir()
    return Path("proofs")


@pytest.fixture
def swept(monkeypatch):
    """Let each command have a certificate, one with seed 1 that of a port with a fault; list the commands."""
    commands = []

    def run(case, **_told):
        commands.append(list(case.words))
        made, status = (make_failed(), 1) if "--seed=1" in case.words else (make_certificate(), 0)
        return case.record("done", exit_status=status, output=json.dumps({"certificate": made.to_dict()}))

    monkeypatch.setattr("porting.cli.swept_commands.run_command", run)
    return commands


def test_each_program_is_verified_from_each_seed(swept, capsys):
    status = main(["verify", "a.py:make", "b.py:make", "--seeds", "0..1", "--steps", "7", "--require", "CHAOTIC"])

    assert status == 1
    assert [(words[1], words[-2]) for words in swept] == [
        ("a.py:make", "--seed=0"),
        ("a.py:make", "--seed=1"),
        ("b.py:make", "--seed=0"),
        ("b.py:make", "--seed=1"),
    ]
    assert {"--steps=7", "--require=CHAOTIC"} <= set(swept[0])
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[:4] for row in rows[:2]] == [
        ["PASS", "a.py:make", "seed", "0"],
        ["FAIL", "a.py:make", "seed", "1"],
    ]
    assert rows[-1] == "of 4: 2 PASS, 2 FAIL"


def test_a_ported_script_is_compared_with_the_plain_one_in_every_case(swept):
    main(["verify", "ported.py", "--against", "plain.py", "--args=--epochs 3", "--seeds", "4,5"])

    assert {"--against=plain.py", "--args=--epochs 3", "--seed=4"} <= set(swept[0])


def test_each_certificate_is_a_file_and_those_that_are_there_are_not_made_again(swept, proofs, capsys):
    words = ["verify", "models/a.py:make", "--seeds", "0..2", "--out", str(proofs), "--format", "json"]
    main(words)
    (proofs / "models-a.py-make-seed-2.json").unlink()
    capsys.readouterr()

    status = main([*words, "--resume"])

    cases = json.loads(capsys.readouterr().out)["cases"]
    assert (status, [case["verdict"] for case in cases]) == (1, ["PASS", "FAIL", "PASS"])
    assert [words[-2] for words in swept] == ["--seed=0", "--seed=1", "--seed=2", "--seed=2"]
    assert [Certificate.read(case["file"]).verdict.value for case in cases] == ["PASS", "FAIL", "PASS"]


@pytest.mark.slow
def test_two_workers_verify_and_what_cannot_be_run_says_why(proofs, capsys):
    words = ["verify", "train.py:make", "train.py:raising", "--steps", "2", "--on", "local:2", "--out", str(proofs)]

    status = main(words)

    printed = capsys.readouterr().out
    assert status == 2
    assert re.search(r"PASS +train.py:make +\d+ s", printed)
    assert "loading `train.py:raising` failed: KeyError: 'missing'" in printed
    assert Certificate.read(proofs / "train.py-make.json").program == "train.py:make"


@pytest.mark.parametrize("text", ["", "a", "3..1", "1,1", "0..", "0..99999"])
def test_what_are_no_seeds_is_wrong_usage(text):
    with pytest.raises(argparse.ArgumentTypeError, match="the first and the last one"):
        parse_seeds(text)
