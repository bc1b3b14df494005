"""`porting verify` certifies a program, writes what it is asked for, and tells by its status what came of it."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import porting
from porting.cli.main import main
from porting.verify.bisection import Bisection, JudgedCommit
from porting.verify.certificate import Certificate, Verdict
from porting.verify.command import _run_program
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

    monkeypatch.setattr("porting.verify.command._run_program", make)
    return asked


@pytest.mark.slow
def test_a_program_is_certified_in_text_json_and_html(verify):
    status, out, err = verify("verified_of_test.py:make", "--steps", "3", "--out", "c.json", "--html", "c.html")

    assert (status, out.splitlines()[1][:5]) == (0, "PASS:")
    assert "verified_of_test.py:make: 3 optimizer steps" in out
    assert "the user's own words" in err
    assert "the user's own words" not in out
    assert Certificate.read("c.json").program == "verified_of_test.py:make"
    assert "<b>PASS</b>" in Path("c.html").read_text()


@pytest.mark.slow
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


# -- whole programs ----------------------------------------------------------------------------------------------------


@pytest.fixture
def pairs(monkeypatch):
    """Let every pair of scripts have one certificate; list the pairs, and how they were asked for."""
    asked = []

    def make(pair, **settings):
        asked.append((pair, settings))
        return make_certificate(settings={"steps": settings["num_steps"], "seed": 0, "against": pair.plain})

    monkeypatch.setattr("porting.verify.program_proof.verify_programs", make)
    Path("ported.py").write_text("")
    Path("plain.py").write_text("")
    return asked


def test_two_scripts_are_verified_for_ten_steps(verify, pairs):
    status, out, _err = verify("ported.py", "--against", "plain.py")

    ((pair, settings),) = pairs
    assert status == 0
    assert "PASS:" in out
    assert (pair.ported, pair.plain, pair.arguments, pair.plain_arguments) == ("ported.py", "plain.py", (), ())
    assert (settings["num_steps"], settings["seed"], settings["device"]) == (10, 0, "auto")


def test_both_scripts_get_arguments_as_a_shell_parts_them(verify, pairs):
    verify("ported.py", "--against", "plain.py", "--args=--epochs 3 --name 'a b'")

    assert pairs[0][0].arguments == pairs[0][0].plain_arguments == ("--epochs", "3", "--name", "a b")


def test_the_plain_script_may_get_other_arguments(verify, pairs):
    verify("ported.py", "--against", "plain.py", "--args=--ipus 2", "--against-args=--cpu")

    assert (pairs[0][0].arguments, pairs[0][0].plain_arguments) == (("--ipus", "2"), ("--cpu",))


def test_a_certificate_of_programs_is_rechecked_as_it_was_made(verify, pairs):
    settings = {"steps": 7, "seed": 3, "against": "plain.py", "arguments": ["--a"], "plain_arguments": ["--b"]}
    make_certificate(program="ported.py", settings=settings).write("c.json")

    verify("--recheck", "c.json")

    ((pair, asked),) = pairs
    assert (pair.arguments, pair.plain_arguments) == (("--a",), ("--b",))
    assert (asked["num_steps"], asked["seed"]) == (7, 3)


@pytest.mark.parametrize("words", [("missing.py", "--against", "plain.py"), ("ported.py", "--against", "missing.py")])
def test_a_script_that_is_not_there_is_refused(verify, pairs, words):
    status, _out, err = verify(*words)

    assert status == 2
    assert "error[E020]: there is no script `missing.py`" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.py:make", "--args=--fast"], "--args is for the scripts of --against"),
        (["train.py:make", "--bisect", "a..b", "--out", "c.json"], "--bisect writes no certificate"),
        (["--show", "c.json", "--bisect", "a..b"], "--compare and --show run no program"),
        (["--against", "plain.py"], "name a program"),
        (["--seeds", "0..3"], "name a program"),
        (["a.py:make", "b.py:make", "--html", "c.html"], "--html, --sign, --bisect and certificates are for one"),
        (["a.py:make", "--seeds", "0,1", "--recheck", "c.json"], "--html, --sign, --bisect and certificates are"),
        (["a.py:make", "--seeds", "0,1", "--seed", "3"], "--seed and --seeds say it twice"),
        (["a.py:make", "--seeds", "3..1"], "write the first and the last one"),
        (["a.py:make", "--resume"], "--resume goes on with the folder of --out"),
        (["a/b.py:make", "a-b.py:make"], "two programs have the same name here"),
    ],
)
def test_what_does_not_belong_together_is_wrong_usage(verify, words, said):
    status, _out, err = verify(*words)

    assert status == 2
    assert said in err


# -- histories ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def commits(monkeypatch):
    """Let a bisection run the present folder once; list the commands that are run for it."""
    commands = []

    def run(command, **_options):
        commands.append(command[4:])
        return SimpleNamespace(returncode=commits.status, stdout=commits.output, stderr=commits.said)

    def bisect(_span, judge, _tell):
        return Bisection((), (JudgedCommit("ab12", "2026-01-01", "change", *judge(Path.cwd())),))

    commits = SimpleNamespace(status=0, output="", said="", commands=commands)
    monkeypatch.setattr("porting.verify.command.subprocess.run", run)
    monkeypatch.setattr("porting.verify.bisection.bisect_history", bisect)
    return commits


def judged(verify):
    _status, out, _err = verify("train.py:make", "--bisect", "a..b", "--format", "json")
    (found,) = json.loads(out)["bisection"]["suspects"]
    return found["verdict"], found["reason"]


def test_each_commit_is_verified_as_the_command_says(verify, commits):
    status, _out, _err = verify("train.py:make", "--bisect", "a..b", "--steps", "3", "--baseline", "c.json")

    (command,) = commits.commands
    assert status == 0
    assert command[0] == "train.py:make"
    assert {"--steps=3", "--device=auto", "--require=PASS", f"--recheck={Path('c.json').absolute()}"} < {*command}


def test_a_plain_program_that_a_commit_lacks_is_the_present_one(verify, commits):
    verify("ported.py", "--bisect", "a..b", "--against", "plain.py")
    Path("plain.py").write_text("")
    verify("ported.py", "--bisect", "a..b", "--against", "plain.py")

    before, after = commits.commands
    assert f"--against={Path('plain.py').absolute()}" in before
    assert "--against=plain.py" in after


@pytest.mark.parametrize(
    ("certificate", "status", "verdict"),
    [
        (make_certificate(), 0, "good"),
        (make_failed(), 1, "bad"),
        (make_certificate(verdict=Verdict.CHAOTIC), 1, "skip"),
        (make_certificate(verdict=Verdict.INCOMPLETE), 1, "skip"),
    ],
)
def test_a_commit_is_judged_by_its_certificate(verify, commits, certificate, status, verdict):
    commits.status, commits.output = status, json.dumps({"certificate": certificate.to_dict()})

    assert judged(verify)[0] == verdict


def test_a_commit_whose_certificate_is_not_the_baselines_is_bad(verify, commits):
    comparison = {"holds": False, "obstacle": "they had other data"}
    found = {"certificate": make_certificate().to_dict(), "comparison": comparison}
    commits.status, commits.output = 1, json.dumps(found)

    assert judged(verify) == ("bad", "they had other data")


def test_a_commit_that_does_not_run_is_skipped_with_what_it_says(verify, commits):
    commits.status, commits.said = 2, 'loading\n{"code": "E021", "message": "it failed"}'

    assert judged(verify) == ("skip", "it failed")


def test_a_commit_that_dies_is_skipped(verify, commits):
    commits.status = -9

    assert judged(verify) == ("skip", "it said nothing")


@pytest.mark.slow
def test_the_commit_that_changed_a_training_is_found(verify, monkeypatch):
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Ada")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "ada@example.com")
    monkeypatch.setenv("PYTHONPATH", str(Path(porting.__file__).parents[1]))
    subprocess.run(["git", "init", "--quiet"], check=True)
    for subject, name in (("first", "make"), ("second", "make"), ("faulty", "faulty")):
        Path("train.py").write_text(f"{TRAIN}\n# {subject}\nchosen = {name}\n")
        subprocess.run(["git", "add", "train.py"], check=True)
        subprocess.run(["git", "commit", "--quiet", "-m", subject], check=True)

    status, out, _err = verify("train.py:chosen", "--steps", "2", "--bisect", "HEAD~2..HEAD")

    assert status == 0
    assert out.splitlines()[0].endswith(" faulty")
    assert "learning rate `group 0` in step 1" in out
