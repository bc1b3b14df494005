"""`porting plan`, also as `porting memory`: a table, and an exit status that a script can go by."""

from __future__ import annotations

import json

import pytest

from porting.cli.main import main

PROGRAM = """
import torch

def make(batch_size=4, width=64):
    model = torch.nn.Sequential(torch.nn.Linear(16, width), torch.nn.ReLU(), torch.nn.Linear(width, 10))
    batch = torch.zeros(batch_size, 16), torch.zeros(batch_size, dtype=torch.int64)
    return model, torch.nn.CrossEntropyLoss(), batch, torch.optim.Adam(model.parameters())

def make_with_loader():
    model, loss, batch, optimizer = make()
    rows = torch.utils.data.TensorDataset(torch.zeros(64, 16), torch.zeros(64, dtype=torch.int64))
    loader = torch.utils.data.DataLoader(rows, batch_size=4)
    return dict(model=model, loss=loss, batch=batch, optimizer=optimizer, loader=loader)

def make_large():
    return make(width=16_000_000)

def make_deep(batch_size=4):
    layers = [torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU()) for _ in range(9)]
    batch = torch.zeros(batch_size, 16), torch.zeros(batch_size, 16)
    return torch.nn.Sequential(*layers), torch.nn.MSELoss(), batch
"""


@pytest.fixture
def target(tmp_path):
    path = tmp_path / "train_small.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return str(path)


def test_a_step_that_fits_has_status_0(target, capsys):
    assert main(["memory", f"{target}:make", "--batch", "8"]) == 0

    shown = capsys.readouterr().out
    assert "micro-batch 8" in shown
    assert "fits: " in shown


@pytest.mark.slow
def test_a_step_that_does_not_fit_has_status_1_and_remedies(target, capsys):
    assert main(["memory", f"{target}:make_large", "--ipu", "gc2"]) == 1

    assert "what helps" in capsys.readouterr().out


def test_stages_and_recomputation_are_taken_from_the_line(target, capsys):
    line = [
        "memory",
        f"{target}:make",
        "--stages",
        "2=1",
        "--accumulation",
        "3",
        "--recompute",
        "0",
        "--format",
        "json",
    ]

    assert main(line) == 0

    report = json.loads(capsys.readouterr().out)
    assert [memory["stages"] for memory in report["ipus"]] == [[0], [1]]


def test_inference_needs_no_label(target, capsys):
    assert main(["memory", f"{target}:make", "--mode", "inference"]) == 0

    assert "optimizer state" not in capsys.readouterr().out


@pytest.mark.parametrize("stages", ["2=x", "2", "2=2"])
def test_stages_that_are_none_are_a_finding(target, capsys, stages):
    assert main(["memory", f"{target}:make", "--stages", stages]) == 2

    assert "error[P002]" in capsys.readouterr().err


def test_a_machine_is_named_and_shared_out(target, capsys):
    assert main(["plan", f"{target}:make", "--machine", "bow-pod64", "--ipus", "2"]) == 0

    shown = capsys.readouterr().out
    assert "memory of bow-pod64" in shown
    assert "on 32 replicas" in shown
    assert "the pipeline is full" in shown


def test_an_unknown_machine_is_refused_with_the_nearest(target, capsys):
    assert main(["plan", f"{target}:make", "--machine", "bow-pod15"]) == 2
    assert "did you mean `bow-pod16`?" in capsys.readouterr().err


def test_what_other_options_would_change_is_one_table(target, capsys):
    assert main(["plan", f"{target}:make", "--what-if", "accumulation=4,precision=float16"]) == 0

    shown = capsys.readouterr().out
    assert shown.splitlines()[0].split() == ["MiB", "on", "the", "fullest", "IPU", "before", "after", "change"]
    assert "samples a second" in shown
    assert shown.count("before: fits; after: fits") == 1


def test_an_option_that_there_is_not_is_refused(target, capsys):
    assert main(["plan", f"{target}:make", "--what-if", "precision=float8"]) == 2
    assert "P002" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--what-if", "precison=float16"], "did you mean `precision`?"),
        (["--what-if", "nonsense=3"], "PortOptions has no nonsense"),
        (["--samples", "-5"], "must be a number above 0"),
        (["--loader-rate", "0"], "must be a number above 0"),
        (["--loader-rate", "fast"], "must be a number, not 'fast'"),
    ],
)
def test_wrong_words_are_wrong_usage(target, capsys, words, fault):
    with pytest.raises(SystemExit) as ended:
        main(["plan", f"{target}:make", *words])

    assert ended.value.code == 2
    assert fault in capsys.readouterr().err


def test_hours_are_told_of_so_many_samples(target, capsys):
    assert main(["plan", f"{target}:make", "--samples", "1e9"]) == 0
    assert "1,000,000,000 samples: " in capsys.readouterr().out


def test_a_page_is_written(target, tmp_path, capsys):
    pytest.importorskip("jinja2", reason="needs the extra `bench`")
    page = tmp_path / "plan.html"

    assert main(["plan", f"{target}:make", "--html", str(page)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert f"{page}: the plan as a page" in capsys.readouterr().out


# -- a report ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def report(tmp_path):
    """Write a report of a program that takes more code than is planned, and all else as planned or so."""
    path = tmp_path / "report.json"
    ipu = {"variable_bytes": 30_000, "vertex_code_bytes": 50_000_000, "vertex_state_bytes": 0}
    ipu.update(exchange_code_bytes=10_000_000, control_code_bytes=20_000_000)
    path.write_text(json.dumps({"ipus": [ipu]}), encoding="utf-8")
    return str(path)


def read_plan(line, capsys):
    assert main([*line, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_loader_of_the_program_is_measured(target, capsys):
    assert main(["plan", f"{target}:make_with_loader"]) == 0

    assert "the loader gives " in capsys.readouterr().out


def test_a_rate_that_is_given_is_not_measured(target, capsys):
    plan = read_plan(["plan", f"{target}:make_with_loader", "--loader-rate", "10"], capsys)

    assert (plan["samples_per_second"], plan["speed_limit"]) == (10.0, "host")
    assert "loader" not in plan


def test_a_measured_rate_bounds_the_plan(target, capsys):
    plan = read_plan(["plan", f"{target}:make_with_loader"], capsys)

    assert plan["loader"]["num_batches"] == 15
    assert plan["samples_per_second"] <= plan["loader"]["samples_per_second"]


def test_recomputation_by_root_is_taken_from_the_line(target, capsys):
    plan = read_plan(["plan", f"{target}:make_deep", "--recompute", "sqrt"], capsys)

    assert plan["ipus"][0]["recomputed_bytes"] > 0


def test_a_budget_needs_no_space(target, capsys):
    budgets = ("200 MB", "200MB")
    plans = [read_plan(["plan", f"{target}:make_deep", "--recompute", budget], capsys) for budget in budgets]

    assert plans[0] == plans[1]


def test_a_plan_is_corrected_by_a_report(target, report, capsys):
    plan = read_plan(["plan", f"{target}:make"], capsys)

    corrected = read_plan(["plan", f"{target}:make", "--profile", report], capsys)

    assert corrected["ipus"][0]["code_bytes"] == 50_000_000
    factor = corrected["profile"]["factors"]["code"]
    assert factor == pytest.approx(50_000_000 / plan["ipus"][0]["code_bytes"])


def test_what_other_options_would_change_is_corrected_too(target, report, capsys):
    changed = read_plan(["plan", f"{target}:make", "--profile", report, "--what-if", "accumulation=2"], capsys)

    assert changed["after"]["ipus"][0]["code_bytes"] == 50_000_000


def test_planned_and_measured_are_shown(target, report, capsys):
    assert main(["plan", f"{target}:make", "--profile", report]) == 0

    assert "IPU 0 code" in capsys.readouterr().out


def test_a_report_that_is_none_is_a_finding(target, capsys):
    assert main(["plan", f"{target}:make", "--profile", target]) == 2

    assert "error[X001]" in capsys.readouterr().err


# -- a small model -----------------------------------------------------------------------------------------------------


def test_a_small_model_is_made_and_can_be_proved(target, capsys):
    assert main(["plan", f"{target}:make_deep", "--reduce", "1"]) == 0

    shown = capsys.readouterr().out
    assert "0, 4, 8 of 9 layers" in shown
    assert "porting.verify(small, loss, batch)" in shown


def test_what_a_small_model_has_is_told_as_plain_values(target, capsys):
    assert read_plan(["plan", f"{target}:make_deep", "--reduce", "1"], capsys)["kept"] == {"": ["0", "4", "8"]}
