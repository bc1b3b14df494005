"""`porting verify` certifies a program, writes what it is asked for, and tells by its status what came of it."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from porting.cli.main import main
from porting.cli.verify import _run_program
from porting.verify.certificate import Certificate, Verdict
from tests.verify.certificates import make_certificate, make_failed

TRAIN = """\
import porting
import torch
from torch import nn

def make():
    print("the user's own words")
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    batch = torch.rand(8, 4), torch.randint(3, (8,))
    return model, nn.CrossEntropyLoss(), batch, torch.optim.SGD(model.parameters(), lr=0.1)

def more():
    model, loss, (x, y), optimizer = make()
    data = torch.utils.data.TensorDataset(x, y)
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    return {"model": model, "loss": loss, "loader": loader, "optimizer": optimizer, "scheduler": schedule}

def faulty():
    model, loss, batch, optimizer = make()

    def port(copied):
        other = torch.optim.SGD(copied.parameters(), lr=0.2)
        return porting.to_ipu(copied, loss, optimizer=other, options=porting.PortOptions(keep_gradients=True))

    return {"model": model, "loss": loss, "batch": batch, "optimizer": optimizer, "ported": port}

def broken():
    model, loss, (x, y), optimizer = make()
    return model, loss, (x[:, :3], y), optimizer

def raising():
    raise KeyError("missing")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with a program; nothing of it stays loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("verified_of_test.py").write_text(TRAIN)
    importlib.invalidate_caches()
    yield tmp_path
    sys.modules.pop("verified_of_test", None)


@pytest.fixture
def verify(capsys):
    """Run the command and return its status and what it wrote on stdout and stderr."""

    def run(*words):
        try:
            status = main(["verify", *words])
        except SystemExit as end:
            status = end.code
        written = capsys.readouterr()
        return status, written.out, written.err

    return run


def stub_program(monkeypatch, certificate):
    """Let every program have this certificate; return the list of how it was asked for."""
    asked = []

    def make(text, **settings):
        asked.append({"text": text, **settings})
        return certificate

    monkeypatch.setattr("porting.cli.verify._run_program", make)
    return asked


def test_a_program_is_certified_in_text_json_and_html(verify):
    status, out, err = verify("verified_of_test.py:make", "--steps", "3", "--out", "c.json", "--html", "c.html")

    assert (status, out.splitlines()[1][:5]) == (0, "PASS:")
    assert "verified_of_test.py:make: 3 optimizer steps" in out
    assert "the user's own words" in err
    assert "the user's own words" not in out
    assert Certificate.read("c.json").program == "verified_of_test.py:make"
    assert "<b>PASS</b>" in Path("c.html").read_text()


def test_what_is_done_is_told(monkeypatch):
    monkeypatch.syspath_prepend(".")
    told = []

    _run_program("verified_of_test.py:make", steps=2, seed=0, device="sim", tell=told.append)

    assert told[0] == "verifying verified_of_test.py:make"
    assert "2 calls: plain PyTorch" in told
    assert "2 calls: the port" in told


@pytest.mark.slow
def test_a_dictionary_gives_loader_and_schedule(verify):
    status, _out, _err = verify("verified_of_test.py:more", "--steps", "6", "--out", "c.json")

    assert status == 0
    assert Certificate.read("c.json").curves.ported_rates == pytest.approx((0.1, 0.1, 0.05, 0.05, 0.025, 0.025))


@pytest.mark.slow
def test_a_port_of_the_users_that_is_faulty_has_status_1(verify):
    status, out, _err = verify("verified_of_test.py:faulty", "--steps", "3")

    assert (status, out.splitlines()[1][:5]) == (1, "FAIL:")
    assert "FAILED  update" in out


@pytest.mark.slow
def test_a_run_that_is_checked_again_agrees_with_itself(verify):
    verify("verified_of_test.py:make", "--steps", "3", "--seed", "5", "--out", "c.json")

    status, out, _err = verify("--recheck", "c.json", "--out", "again.json")

    assert status == 0
    assert "the two certificates agree: PASS there, PASS here" in out
    assert Certificate.read("again.json").settings == Certificate.read("c.json").settings


@pytest.mark.slow
def test_a_program_that_has_changed_since_is_told(verify):
    verify("verified_of_test.py:make", "--steps", "3", "--out", "c.json")
    sys.modules.pop("verified_of_test")
    Path("verified_of_test.py").write_text(TRAIN.replace("lr=0.1", "lr=0.125"))
    importlib.invalidate_caches()

    status, out, _err = verify("--recheck", "c.json")

    assert status == 1
    assert "the options are not the same" in out
    assert "FAILED  update" in out


def test_a_model_that_does_not_run_has_status_2_and_a_place(verify):
    status, _out, err = verify("verified_of_test.py:broken", "--steps", "2")

    assert status == 2
    assert "error[" in err


def test_a_program_that_raises_has_status_2(verify):
    status, _out, err = verify("verified_of_test.py:raising")

    assert status == 2
    assert "error[E021]: loading `verified_of_test.py:raising` failed: KeyError: 'missing'" in err


def test_a_program_that_is_not_there_has_status_2(verify):
    assert verify("missing.py:make")[0] == 2


@pytest.mark.parametrize(
    ("verdict", "required", "status"),
    [
        (Verdict.PASS, "PASS", 0),
        (Verdict.CHAOTIC, "PASS", 1),
        (Verdict.CHAOTIC, "CHAOTIC", 0),
        (Verdict.INCOMPLETE, "CHAOTIC", 1),
        (Verdict.INCOMPLETE, "INCOMPLETE", 0),
        (Verdict.FAIL, "INCOMPLETE", 1),
    ],
)
def test_the_status_is_that_of_the_verdict_that_is_required(verify, monkeypatch, verdict, required, status):
    stub_program(monkeypatch, make_certificate(verdict=verdict))

    assert verify("train.py:make", "--require", required)[0] == status


def test_json_has_the_whole_certificate(verify, monkeypatch):
    certificate = make_failed()
    stub_program(monkeypatch, certificate)

    _status, out, _err = verify("train.py:make", "--format", "json")

    assert Certificate.from_dict(json.loads(out)["certificate"]) == Certificate.from_dict(certificate.to_dict())


def test_a_recheck_asks_for_what_the_certificate_was_asked_for(verify, monkeypatch):
    certificate = make_certificate(settings={"steps": 7, "seed": 3}, program="train.py:make")
    certificate.write("c.json")
    asked = stub_program(monkeypatch, certificate)

    verify("--recheck", "c.json")
    verify("other.py:make", "--recheck", "c.json", "--steps", "9")

    assert [(one["text"], one["steps"], one["seed"]) for one in asked] == [
        ("train.py:make", 7, 3),
        ("other.py:make", 9, 3),
    ]


def test_a_recheck_of_a_nameless_program_asks_for_its_name(verify):
    make_certificate(program="").write("c.json")

    status, _out, err = verify("--recheck", "c.json")

    assert status == 2
    assert "porting verify PROGRAM:FUNCTION --recheck" in err


@pytest.mark.parametrize("words", [["--recheck", "c.json"], ["--compare", "c.json", "c.json"]])
def test_a_damaged_certificate_has_status_2(verify, words):
    Path("c.json").write_text("{}")

    status, _out, err = verify(*words)

    assert status == 2
    assert "error[V004]" in err


def test_two_certificates_of_other_data_do_not_agree(verify):
    certificate = make_certificate()
    certificate.write("one.json")
    replace(certificate, hashes={**certificate.hashes, "data": "00" * 32}).write("other.json")

    status, out, _err = verify("--compare", "one.json", "other.json")

    assert status == 1
    assert "they had other data" in out


@pytest.mark.parametrize(
    "words", [[], ["train.py:make", "--compare", "a", "b"], ["train.py:make", "--steps", "0"], ["--require", "FAIL"]]
)
def test_wrong_usage_has_status_2(verify, words):
    assert verify(*words)[0] == 2


@pytest.mark.parametrize("option", ["--out", "--html"])
def test_a_folder_that_is_not_there_is_refused_before_the_work(verify, monkeypatch, option):
    asked = stub_program(monkeypatch, make_certificate())

    status, _out, err = verify("train.py:make", option, "missing/file")

    assert (status, asked) == (2, [])
    assert "there is no folder `missing`" in err
