"""A report says what it is of, and is clean only where nothing of the program was left out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from porting.check.coverage import Coverage, UnreadCall
from porting.check.formats import write_report
from porting.check.html_page import write_report_page
from porting.check.preflight import assemble_report, look_at_sources
from porting.check.report import Report
from porting.check.selection import Selection
from porting.diagnostics import Finding, Place

PORTED = "import torch\nfrom porting import to_ipu\nported = to_ipu(torch.nn.Linear(4, 3), torch.nn.MSELoss())\n"


@pytest.fixture
def report_of(tmp_path, monkeypatch):
    """Write files into a folder and report on `train.py`."""
    monkeypatch.chdir(tmp_path)

    def report(text, selection=Selection(), **files):  # noqa: B008 - frozen
        for name, source in {"train": text, **files}.items():
            path = Path(f"{name.replace('__', '/')}.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(source)
        return assemble_report("train.py", look_at_sources(["train.py"]), selection=selection)

    return report


def test_a_program_that_was_read_as_a_whole_is_clean(report_of):
    report = report_of(PORTED + "def f():\n    return 1\n")

    assert report.is_clean
    assert report.looked_at == ("1 file", "1 function", "2 libraries by name", "nothing left out")
    assert report.summary.startswith("nothing was found that stands between")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("from gone import f\nf()", "1 import (`gone` at train.py:4:1), 1 call (`gone.f` at train.py:5:1)"),
        ("from .gone import f\nf()", "1 import (`.gone` at train.py:4:1), 1 call (`f` at train.py:5:1)"),
        ("exec(open('settings.py').read())", "1 call (`builtins.exec` at train.py:4:1)"),
        ("import importlib\nimportlib.import_module(name)", "1 call (`importlib.import_module` at train.py:5:1)"),
        ("import hydra\nhydra.utils.instantiate(cfg)", "1 call (`hydra.utils.instantiate` at train.py:5:1)"),
    ],
)
def test_what_was_left_out_is_told_by_name_and_place(report_of, line, told):
    report = report_of(PORTED + line + "\n")

    assert not report.is_clean
    assert report.standing == ()
    assert report.summary.startswith("nothing was found in what could be read that stands between train.py and an IPU")
    assert report.summary.endswith(f"; not read: {told}")


def test_a_call_of_what_an_import_by_a_table_brings_is_followed(report_of):
    text = PORTED + "import importlib\nNETS = {'a': 'nets.a:Net'}\nimportlib.import_module(NETS[name].split(':')[0])\n"

    report = report_of(text, nets__a="class Net:\n    def f(self):\n        return 1\n")

    assert report.coverage.is_whole
    assert (report.coverage.num_files, report.coverage.num_entered) == (2, 1)


def test_an_import_that_is_allowed_is_no_gap(report_of):
    report = report_of(PORTED + "from gone import f  # porting: allow import-not-found\nf()\n")

    assert report.is_clean
    assert report.num_allowed == 1


def test_what_is_not_wanted_is_a_gap_all_the_same(report_of):
    report = report_of(PORTED + "import gone\n", Selection(ignored=("X",)))

    assert (report.findings, report.is_clean) == ((), False)


def test_the_main_part_of_an_imported_file_is_not_judged_and_that_is_said(report_of):
    report = report_of(PORTED + "import lib\n", lib="x = 1\nif __name__ == '__main__':\n    import gone\n")

    assert report.is_clean
    assert "lib.py:2" in report.facts[0]


def test_nothing_that_trains_is_not_clean(report_of):
    report = report_of("import torch\nx = 1\n")

    assert not report.is_clean
    assert report.summary.startswith("nothing that trains a model was found in train.py")


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.optim.SGD([], 0.1)",
        "from transformers import Trainer\nTrainer(model).train()",
        "import lightning as L\nclass Net(L.LightningModule):\n    def training_step(self, batch):\n        pass",
        "loss.backward()",
        "import poptorch\npoptorch.inferenceModel(model)",
    ],
)
def test_what_trains_or_runs_a_model_is_a_training(report_of, text):
    assert report_of(text).coverage.has_training


def test_every_form_of_a_report_has_it(report_of):
    report = report_of(PORTED + "import gone\ngone.f()\n")

    document = json.loads(write_report(report, "json"))
    sarif = json.loads(write_report(report, "sarif"))

    coverage = document["coverage"]
    assert coverage["imports_not_found"] == [{"name": "gone", "place": "train.py:4:1"}]
    assert coverage["calls_not_followed"] == [{"name": "gone.f", "place": "train.py:5:1"}]
    assert (coverage["files"], coverage["functions_entered"], coverage["libraries"]) == (1, 0, ["porting", "torch"])
    assert sarif["runs"][0]["properties"]["coverage"] == coverage
    assert "not read: 1 import" in write_report(report, "github")
    assert "not read: 1 import" in str(report)
    assert "not read: 1 import" in write_report_page(report)


def test_functions_that_were_not_entered_and_files_that_were_not_read_are_gaps():
    coverage = Coverage(num_functions=3, num_entered=1, files=(("a.py", "it cannot be read"),))

    assert coverage.gaps == "1 file (`a.py`: it cannot be read), 2 functions of a program that is too large"
    assert not Report(coverage=coverage).is_clean


def test_of_many_calls_the_first_are_named():
    place = Place("train.py", 1)
    coverage = Coverage(calls=tuple(UnreadCall(f"f{number}", place, place) for number in range(9)))

    assert coverage.gaps.endswith("`f2` at train.py:1 and 6 more)")


def test_what_is_known_is_accepted():
    place = Place("train.py", 1)
    finding = Finding("X024", message="`gone` was not found", place=place)
    coverage = Coverage(imports=(finding,), calls=(UnreadCall("gone.f", Place("train.py", 9), place),))

    assert coverage.accept([finding]).is_whole
    assert not coverage.accept([Finding("L001", place=place)]).is_whole


def test_what_a_configuration_names_is_read(report_of, tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "net.yaml").write_text("model:\n  _target_: nets.a.Net\n")
    (tmp_path / "setup.cfg").write_text("")

    report = report_of(PORTED + "import hydra\nhydra.utils.instantiate(cfg.model)\n", nets__a="class Net:\n    pass\n")

    assert report.coverage.is_whole
    assert report.coverage.num_files == 2
