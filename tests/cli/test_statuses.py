"""All verbs end with the statuses of one table: 0 for yes, 1 for no, 2 where there is no answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from porting.cli import STATUSES
from porting.cli.main import VERBS, main

PROGRAM = """
import torch

def make(batch_size=4, width=8):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, width), torch.nn.ReLU(), torch.nn.Linear(width, 3))
    batch = torch.rand(batch_size, 4), torch.zeros(batch_size, dtype=torch.int64)
    return model, torch.nn.CrossEntropyLoss(), batch, torch.optim.SGD(model.parameters(), lr=0.1)
"""

GATE = """
import torch

class Gate(torch.nn.Linear):
    def forward(self, x):
        return x if x.mean() > 0 else -x

def make_gate():
    model = Gate(4, 4)
    return model, torch.nn.MSELoss(), (torch.rand(4, 4), torch.rand(4, 4)), torch.optim.SGD(model.parameters(), lr=0.1)
"""

# a dictionary may say how the loss gets its arguments: of these the second is an input as well
REBUILDING = """

def rebuild(output, labels):
    y, x = labels
    return torch.nn.functional.cross_entropy(output[:, :3], y) + torch.nn.functional.mse_loss(output[:, 3:], x)

def make_rebuilding(batch_size=4):
    model, _loss, (x, y), _optimizer = make(batch_size)
    model[2] = torch.nn.Linear(8, 7)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = {"label": (1, 2), "label_transform": lambda labels: (labels[0] % 3, labels[1])}
    return {"model": model, "loss": rebuild, "batch": (x, y, x), "optimizer": optimizer, **settings}
"""

# of verbs that take a program, the words that make them quick
OF_PROGRAMS = {
    "bench": ["--engine", "replay", "--quick"],
    "check": [],
    "compile": ["--engine", "replay"],
    "export": ["-o", "own.step"],
    "graph": [],
    "memory": [],
    "plan": [],
    "trace": ["--steps", "1"],
    "verify": ["--steps", "2"],
}
SLOW = ("bench", "verify")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Work in a folder with a small program, and an own cache."""
    (tmp_path / "statuses_of_test.py").write_text(PROGRAM)
    (tmp_path / "gate_of_test.py").write_text(GATE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PORTING_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def find_status(*words: str) -> int:
    """Run the command; wrong usage ends it."""
    try:
        return main(words)
    except SystemExit as ended:
        return ended.code


def mark_slow(verbs):
    return [pytest.param(verb, marks=pytest.mark.slow if verb in SLOW else []) for verb in verbs]


@pytest.mark.parametrize("verb", mark_slow(OF_PROGRAMS))
def test_a_verb_that_is_used_rightly_ends_with_0(verb):
    required = ["--require", "INCOMPLETE"] if verb == "verify" else []

    assert find_status(verb, "statuses_of_test.py:make", *OF_PROGRAMS[verb], *required) == 0


@pytest.mark.parametrize("verb", mark_slow(OF_PROGRAMS))
def test_a_verb_reads_the_settings_of_the_loss(verb, own_folder):
    with open("statuses_of_test.py", "a") as program:
        program.write(REBUILDING)
    required = ["--require", "INCOMPLETE"] if verb == "verify" else []

    assert find_status(verb, "statuses_of_test.py:make_rebuilding", *OF_PROGRAMS[verb], *required) == 0


@pytest.mark.parametrize(
    "words",
    ["backend list", "bench --list", "cache list", "explain --list", "recipe list", "run --inject list"],
)
def test_what_is_listed_ends_with_0(words):
    assert find_status(*words.split()) == 0


@pytest.mark.slow
def test_one_page_of_all_ends_with_0():
    pytest.importorskip("jinja2", reason="needs the extra `bench`")

    assert find_status("report", "statuses_of_test.py:make", "--html", "x.html", "--without", "bench", "verify") == 0


@pytest.mark.parametrize("name", ["statuses_of_test.py:maek", "status_of_test.py:make", "gtp:small", "no such form"])
@pytest.mark.parametrize("verb", [verb for verb in OF_PROGRAMS if verb != "bench"])
def test_a_program_that_there_is_not_ends_with_2(verb, name):
    assert find_status(verb, name, *OF_PROGRAMS[verb]) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["statuses_of_test.py:maek", "status_of_test.py:make"])
@pytest.mark.parametrize("words", [["bench", "--quick"], ["report", "--html", "x.html"], ["recipe", "new", "x"]])
def test_a_program_that_there_is_not_ends_others_with_2(words, name):
    model = ["--model"] if words[0] == "recipe" else []

    assert find_status(*words, *model, name) == 2


@pytest.mark.parametrize("verb", [verb for verb in OF_PROGRAMS if verb not in ("bench", "check", "verify")])
def test_a_step_that_cannot_be_captured_ends_with_2(verb):
    assert find_status(verb, "gate_of_test.py:make_gate", *OF_PROGRAMS[verb]) == 2


def test_findings_end_with_1():
    assert find_status("check", "gate_of_test.py:make_gate") == 1


@pytest.mark.slow
def test_what_does_not_fit_ends_with_1(own_folder):
    with open("statuses_of_test.py", "a") as program:
        program.write("\ndef make_large():\n    return make(width=16_000_000)\n")

    assert find_status("plan", "statuses_of_test.py:make_large", "--machine", "gc2") == 1


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("words", [["--no-such-option"], ["--format", "xml"]], ids=" ".join)
def test_wrong_words_end_with_2(verb, words):
    assert find_status(verb, *words) == 2


@pytest.mark.parametrize("verb", ["backend", "cache", "recipe"])
def test_an_action_that_there_is_not_ends_with_2_and_the_nearest(verb, capsys):
    assert find_status(verb, "lst") == 2
    assert "there is no `lst`: did you mean `list`?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("recipe show frist_port", "first_port"),
        ("recipe run first_port --chek", "--check"),
        ("plan gpt:gpt2_smal", "gpt:gpt2_small"),
        ("plan gtp:small", "gpt"),
        ("plan statuses_of_tset.py:make", "statuses_of_test.py"),
        ("check statuses_of_tset.py", "statuses_of_test.py"),
        ("run statuses_of_tset.py", "statuses_of_test.py"),
        ("bench cnn --engine replai", "replay"),
        ("bench cnn --matrix engine=auto,replai", "replay"),
        ("compile statuses_of_test.py:make --engine replai", "replay"),
        ("trace statuses_of_test.py:make --engine replai", "replay"),
        ("plan statuses_of_test.py:make --precision flaot16", "float16"),
        ("bench --suite pubilc", "public"),
    ],
)
def test_what_was_meant_is_asked_before_anything_runs(words, meant, monkeypatch, capsys):
    monkeypatch.setattr("porting.bench.command.run_case", lambda *_arguments, **_settings: pytest.fail("it has run"))

    assert find_status(*words.split()) == 2
    assert f"did you mean `{meant}`?" in capsys.readouterr().err


def test_the_help_has_the_table(capsys):
    main([])

    shown = " ".join(capsys.readouterr().out.split())
    assert [meaning for meaning in STATUSES.values() if meaning not in shown] == []


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_each_verb_ends_with_its_statuses(verb, capsys):
    assert find_status(verb, "--help") == 0
    last = capsys.readouterr().out.split("\n\n")[-1]
    assert last.startswith("exit status: ")
    assert VERBS[verb].denial in " ".join(last.split())


def test_the_page_has_both_tables():
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")

    of_all = [f"| {status} | {meaning} |" for status, meaning in STATUSES.items()]
    of_verbs = [f"| `{name}` | {verb.denial} |" for name, verb in VERBS.items() if verb.denial]
    rows = [line for line in page.splitlines() if line.startswith(("| 0", "| 1", "| 2", "| `"))]
    assert rows == [*of_all, *of_verbs]
