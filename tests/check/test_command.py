"""`porting check` tells what it finds in every form, tells by its status what came of it, and runs nothing unasked."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from textwrap import indent

import pytest

from porting.cli.main import main

PLAIN = """\
import torch

model = torch.nn.Linear(4, 3)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.rand(64, 4), torch.randint(3, (64,)))
loader = torch.utils.data.DataLoader(data, batch_size=8)

for x, y in loader:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
raise RuntimeError("this was run")
"""

PORTED = """\
import torch
from porting import to_ipu

model = torch.nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
ported = to_ipu(model, torch.nn.CrossEntropyLoss(), optimizer=optimizer)
data = torch.utils.data.TensorDataset(torch.rand(64, 4), torch.randint(3, (64,)))
loader = ported.dataloader(torch.utils.data.DataLoader(data, batch_size=8, drop_last=True))
ported.compile(torch.rand(8, 4), torch.randint(3, (8,)))
for x, y in loader:
    ported(x, y)
"""

MODEL = """\
import torch

class Net(torch.nn.Linear):
    def forward(self, x):
        h = super().forward(x)
        return h if h.mean() > 0 else -h{comment}

def make(batch_size=8):
    batch = torch.ones(batch_size, 4), torch.zeros(batch_size, dtype=torch.long)
    return Net(4, 3), torch.nn.CrossEntropyLoss(), batch
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in a folder with a plain program, a ported one and a model; nothing of it stays loaded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name, text in (("plain", PLAIN), ("ported", PORTED), ("model_of_test", MODEL.format(comment=""))):
        Path(f"{name}.py").write_text(text)
    importlib.invalidate_caches()  # of "." in another folder
    yield tmp_path
    sys.modules.pop("model_of_test", None)


@pytest.fixture
def check(capsys):
    """Run the command and return its status and what it wrote on stdout and stderr."""

    def run(*words):
        try:
            status = main(["check", *words])
        except SystemExit as end:
            status = end.code
        return (status, *capsys.readouterr())

    return run


def codes_in(text: str):
    return {finding["code"] for finding in json.loads(text)["findings"]}


# ---------------------------------------------------------------- what is found, and the status


def test_a_plain_program_is_read_and_not_run(check):
    status, output, _errors = check("plain.py")

    assert status == 1
    assert "loss = criterion(model(x), y)" in output
    assert "what a port of plain.py needs, in this order:" in output
    assert (
        "between plain.py and an IPU (1 file, 0 functions, 1 library by name, nothing left out): "
        in output.splitlines()[-1]
    )


def test_a_program_with_a_port_is_clean(check):
    assert check("ported.py") == (
        0,
        "nothing was found that stands between ported.py and an IPU "
        "(1 file, 0 functions, 2 libraries by name, nothing left out)\n",
        "",
    )


def test_a_folder_is_one_program(check):
    status, output, _errors = check(".", "--format", "json")

    assert status == 1
    assert json.loads(output)["looked_at"][0] == "3 files"


def test_the_step_of_a_function_is_captured(check):
    status, output, _errors = check("model_of_test.py:make")

    assert status == 1
    assert "error[C001]" in output
    assert "--> model_of_test.py:6:21" in output
    assert "a step of" in output.splitlines()[-1]


@pytest.mark.parametrize("program", ["model_of_test:make", "mlp:mushrooms"])
def test_modules_and_reference_models_are_programs(check, program):
    status, _output, errors = check(program)

    assert (status, errors) == (0 if program == "mlp:mushrooms" else 1, "")


def test_a_broken_file_hides_nothing_of_the_others(check):
    Path("broken.py").write_text("def f(:\n")

    status, output, _errors = check("broken.py", "plain.py", "--format", "json")

    assert status == 1
    assert {"X002", "L001"} <= codes_in(output)


def test_a_pipe_by_the_name_of_a_program_is_not_waited_for(check):
    os.mkfifo("pipe.py")

    status, output, _errors = check("pipe.py", "plain.py", "--html", "page.html")

    assert status == 1
    assert "X004" in output
    assert "L001" in output


@pytest.mark.parametrize(("program", "code"), [("missing.py", "E020"), ("no.such.module:make", "E020")])
def test_what_cannot_be_looked_at_ends_with_two(check, program, code):
    status, output, errors = check(program)

    assert (status, output) == (2, "")
    assert f"error[{code}]" in errors


def test_a_function_that_cannot_be_run_does_not_hide_what_the_source_says(check):
    Path("model_of_test.py").write_text(f"def train():\n{indent(PLAIN, '    ')}\nraise RuntimeError('this was run')\n")

    status, output, errors = check("model_of_test.py:make")

    assert status == 2
    assert "warning[L001]" in output
    assert "error[E021]: loading `model_of_test.py:make` failed: RuntimeError: this was run" in errors


def test_a_program_that_trains_on_import_is_not_imported(check):
    status, output, errors = check("plain.py:make")

    assert status == 2
    assert "warning[L001]" in output
    assert "error[E021]: `plain.py:make` is not loaded: an import of `plain.py` would start its training" in errors
    assert "this was run" not in errors


def test_functions_that_fail_are_in_the_document(check):
    Path("model_of_test.py").write_text(MODEL.format(comment="") + "def fails():\n    return {}['missing']\n")

    _status, output, _errors = check("model_of_test.py:make", "model_of_test.py:fails", "--format", "json")
    document = json.loads(output)

    assert codes_in(output) == {"C001"}
    assert [(failure["code"], failure["place"]["line"]) for failure in document["failures"]] == [("E021", 12)]


def test_a_program_that_is_missing_is_in_the_document(check):
    status, output, _errors = check("missing.py:make", "--format", "json")

    assert status == 2
    assert [failure["code"] for failure in json.loads(output)["failures"]] == ["E020"]


def test_batches_are_taken_as_they_are(check):
    Path("model_of_test.py").write_text(
        "import collections\nimport torch\n\n"
        "class Net(torch.nn.Linear):\n"
        "    def forward(self, x, labels):\n"
        "        return torch.nn.functional.cross_entropy(super().forward(x), labels)\n\n"
        "def make():\n"
        # the class of transformers' BatchEncoding
        "    batch = collections.UserDict(x=torch.ones(8, 4), labels=torch.zeros(8, dtype=torch.long))\n"
        "    return {'model': Net(4, 3), 'loader': [batch] * 3}\n"
    )

    status, output, _errors = check("model_of_test.py:make")

    assert status == 0, output


@pytest.mark.slow
def test_a_fault_without_a_line_stands_where_its_part_is_made(tmp_path):
    Path("model_of_test.py").write_text(
        "import torch\n\ndef make():\n    loss = torch.nn.CrossEntropyLoss(reduction='none')\n"
        "    return torch.nn.Linear(4, 3), loss, (torch.ones(8, 4), torch.zeros(8, dtype=torch.long))\n"
    )
    # as the script that pip installs
    Path("launcher.py").write_text("import sys\nfrom porting.cli.main import main\nsys.exit(main(sys.argv[1:]))\n")
    command = [sys.executable, "launcher.py", "check", "model_of_test.py:make", "--format", "json"]

    done = subprocess.run(command, capture_output=True, text=True)

    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["code"], finding["place"]["file"], finding["place"]["line"]) == ("L002", "model_of_test.py", 4)


def test_what_a_program_prints_is_no_part_of_the_report(check):
    Path("model_of_test.py").write_text(MODEL.format(comment="") + "print('hello')\n")

    _status, output, errors = check("model_of_test.py:make", "--format", "json")

    assert codes_in(output) == {"C001"}
    assert "hello" in errors


def test_batches_of_a_loader_that_a_function_gives_are_looked_at(check):
    Path("model_of_test.py").write_text(
        "import torch\n"
        "def make():\n"
        "    batches = [(torch.rand(n, 4), torch.zeros(n, dtype=torch.long)) for n in (8, 8, 3)]\n"
        "    return {'model': torch.nn.Linear(4, 3), 'loss': torch.nn.CrossEntropyLoss(), 'batch': batches[0],"
        " 'loader': batches}\n"
    )

    status, output, _errors = check("model_of_test.py:make", "--format", "json")

    assert status == 1
    assert {code[0] for code in codes_in(output)} == {"B"}


LOADER = """\
import torch

def make():
    lengths = [5, 5, 5, 10] * 25
    data = [(torch.ones(length), torch.tensor(0)) for length in lengths]
    loader = torch.utils.data.DataLoader(data, batch_size=1, drop_last=True)
    model = torch.nn.Sequential(torch.nn.AdaptiveAvgPool1d(4), torch.nn.Linear(4, 3))
    return {"model": model, "loss": torch.nn.CrossEntropyLoss(), "batch": next(iter(loader)), "loader": loader}
"""


def test_the_first_batches_of_a_loader_are_audited_or_a_whole_epoch(check):
    Path("model_of_test.py").write_text(LOADER)

    first = json.loads(check("model_of_test.py:make", "--format", "json")[1])
    whole = json.loads(check("model_of_test.py:make", "--format", "json", "--epoch")[1])

    assert "B030" in {finding["code"] for finding in first["findings"]}
    assert any("the first 64 batches" in fact or "64" in fact for fact in first["facts"])
    assert any("batches                    100" in fact for fact in whole["facts"])


def test_buckets_are_chosen_under_a_budget_and_pay_after_so_many_steps(check):
    Path("model_of_test.py").write_text(LOADER)
    times = ["--compile-seconds", "30", "--step-seconds", "2"]

    one = check("model_of_test.py:make", "--max-executables", "1", *times)[1]
    two = check("model_of_test.py:make", "--max-executables", "2", *times)[1]

    assert "40 steps  5 10" in two
    assert "40 steps" not in one


def test_processes_share_the_data(check):
    Path("model_of_test.py").write_text(LOADER.replace("* 25", "* 25 + [5]"))

    assert "B006" not in check("model_of_test.py:make", "--ignore", "B030")[1]
    assert "B006" in check("model_of_test.py:make", "--ignore", "B030", "--instances", "2")[1]


def test_no_processes_at_all_are_wrong_usage(check):
    assert "are at least 1" in check("model_of_test.py:make", "--instances", "0")[2]


def test_values_are_measured_for_half_precision(check):
    Path("model_of_test.py").write_text(
        "import torch\n"
        "from porting import PortOptions\n"
        "def make():\n"
        "    batch = 1e5 * torch.ones(8, 4), torch.zeros(8, dtype=torch.long)\n"
        "    return torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss(), batch, None, PortOptions(precision='float16')\n"
    )

    _status, output, _errors = check("model_of_test.py:make")

    assert "the largest output is " in output


# ---------------------------------------------------------------- what is told


def test_json_is_one_document(check):
    document = json.loads(check("plain.py", "--format", "json")[1])

    assert document["is_ported"] is False
    assert document["needs"]


def test_sarif_is_written_and_errors_are_still_text(check):
    assert json.loads(check("plain.py", "--format", "sarif")[1])["version"] == "2.1.0"
    assert check("missing.py", "--format", "sarif")[2].startswith("error[E020]")


def test_annotations_are_those_of_a_workflow(check):
    assert "file=plain.py,line=11," in check("plain.py", "--format", "github")[1]


def test_only_the_summary_is_printed(check):
    status, output, _errors = check("plain.py", "--quiet")

    assert status == 1
    assert len(output.splitlines()) == 1


def test_a_page_is_written_besides(check):
    status, output, _errors = check("plain.py", "--html", "page.html")

    assert status == 1
    assert "error" in output or "warning" in output
    assert Path("page.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_a_page_that_cannot_be_written_ends_with_two(check):
    status, _output, errors = check("plain.py", "--html", "no/such/folder/page.html")

    assert status == 2
    assert "error[E029]" in errors


def test_codes_are_selected_and_ignored(check):
    every = codes_in(check("plain.py", "--format", "json")[1])

    assert codes_in(check("plain.py", "--format", "json", "--select", "loss-outside-forward")[1]) == {"L001"}
    assert codes_in(check("plain.py", "--format", "json", "--ignore", "L,O007")[1]) == {
        code for code in every if not code.startswith("L") and code != "O007"
    }
    assert check("plain.py", "--select", "F")[0] == 0


def test_an_unknown_code_is_wrong_usage(check):
    status, _output, errors = check("plain.py", "--select", "host-raed")

    assert status == 2
    assert "did you mean host-read" in errors


# ---------------------------------------------------------------- comments and baselines


def test_a_comment_allows_what_the_graph_shows(check):
    Path("model_of_test.py").write_text(MODEL.format(comment="  # porting: allow host-read"))

    status, output, _errors = check("model_of_test.py:make")

    assert status == 0
    assert "1 allowed in the source" in output


def test_a_comment_for_the_graph_is_not_judged_without_it(check):
    Path("model_of_test.py").write_text(MODEL.format(comment="  # porting: allow operator-failed-to-trace"))

    assert "X006" not in check("model_of_test.py")[1]
    assert "X006" in check("model_of_test.py:make")[1]


def test_what_is_in_the_baseline_is_known(check):
    status, output, _errors = check("plain.py", "--baseline", "known.json", "--write-baseline")
    assert status == 0
    assert "in the baseline" in output

    Path("plain.py").write_text("# a new line\n" + PLAIN)
    assert check("plain.py", "--baseline", "known.json")[0] == 0

    Path("plain.py").write_text(PLAIN.replace("optimizer.step()", "optimizer.step()\n    print(loss.item())"))
    status, output, _errors = check("plain.py", "--baseline", "known.json", "--format", "json")
    assert status == 1
    assert {finding["place"]["line"] for finding in json.loads(output)["findings"]} == {14}


def test_what_is_gone_from_the_program_is_told(check):
    check("plain.py", "--baseline", "known.json", "--write-baseline")
    Path("plain.py").write_text("x = 1\n")

    assert "of the baseline are gone: write it again" in check("plain.py", "--baseline", "known.json")[1]


def test_a_baseline_that_is_missing_ends_with_two(check):
    status, _output, errors = check("plain.py", "--baseline", "known.json")

    assert status == 2
    assert "error[X007]" in errors


def test_a_baseline_is_written_into_a_file_that_is_named(check):
    assert "--write-baseline needs --baseline FILE" in check("plain.py", "--write-baseline")[2]


# ---------------------------------------------------------------- notebooks, and the start


def test_a_notebook_is_shown_by_its_cells(check):
    cells = [{"cell_type": "code", "source": PLAIN.splitlines(keepends=True)}]
    Path("look.ipynb").write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}))

    _status, output, _errors = check("look.ipynb")

    assert "--> look.ipynb:cell 1:11:" in output
    assert "11 |     loss = criterion(model(x), y)" in output


def test_sources_are_read_without_torch():
    program = (
        "import sys\nfrom porting.cli.main import main\nmain(['check', 'plain.py', '--html', 'page.html'])\n"
        "print(*({'torch', 'numpy', 'libcst', 'tqdm'} & set(sys.modules)), file=sys.stderr)"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert (result.stderr, "between plain.py and an IPU" in result.stdout) == ("\n", True)


def test_source_only_runs_nothing(check):
    text = Path("plain.py").read_text() + "\ndef make():\n    raise RuntimeError\n"
    Path("plain.py").write_text(text)

    with_function = check("plain.py:make", "--source-only", "--format", "json")[1]

    assert codes_in(with_function) == codes_in(check("plain.py", "--format", "json")[1])


def test_a_model_alone_has_nothing_to_judge_in_its_source(check):
    status, _output, errors = check("model_of_test.py:make", "--source-only", "--ignore", "C")

    assert status == 2
    assert "judged as PROGRAM:FUNCTION, without `--source-only`" in errors


def test_a_function_without_torch_is_refused_with_what_helps(check, monkeypatch):
    monkeypatch.setattr("porting.check.command.find_spec", lambda name: None if name == "torch" else name)

    status, _output, errors = check("model_of_test.py:make")

    assert status == 2
    assert "error[X001]: `make` of `model_of_test.py` cannot be run: `torch` is not installed" in errors
    assert "= help: `--source-only` reads the program, and runs nothing" in errors


# ---------------------------------------------------------------- fixes

HOST_STEP = "    loss.backward()\n    optimizer.step()\n"
FAULTY = PORTED.replace("    ported(x, y)\n", "    output, loss = ported(x, y)\n" + HOST_STEP)
CLIPPING = "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"


@pytest.fixture
def faulty():
    """A port with two faults that have a mechanical fix."""
    pytest.importorskip("libcst", reason="needs the extra `fix`")
    path = Path("faulty.py")
    path.write_text(FAULTY)
    return path


def test_fixes_are_written_and_the_program_is_looked_at_again(check, faulty):
    status, output, _errors = check("faulty.py", "--fix")

    assert status == 0
    assert output.splitlines()[0] == "fixed: 2 findings in 1 file"
    assert output.splitlines()[-1].startswith("nothing was found")
    assert faulty.read_text() == FAULTY.replace(HOST_STEP, "")


def test_what_has_no_fix_is_left_and_told_at_its_new_line(check, faulty):
    faulty.write_text(FAULTY + CLIPPING)

    status, output, _errors = check("faulty.py", "--fix", "--format", "json")

    assert status == 1
    (finding,) = json.loads(output)["findings"]
    assert finding["place"]["line"] == FAULTY.count("\n") - 1
    assert "fixed: 2 findings in 1 file" in json.loads(output)["facts"]


def test_a_diff_shows_what_would_change_and_nothing_is_written(check, faulty):
    status, output, errors = check("faulty.py", "--fix", "--diff")

    assert status == 1
    assert output.startswith("--- faulty.py\n+++ faulty.py\n")
    assert [line for line in output.splitlines()[2:] if line[0] in "-+"] == [
        "-    loss.backward()",
        "-    optimizer.step()",
    ]
    assert errors == "would fix 2 findings of 2; nothing is written\n"
    assert faulty.read_text() == FAULTY


def test_only_what_is_told_is_fixed(check, faulty):
    allowed = FAULTY.replace("optimizer.step()", "optimizer.step()  # porting: allow host-step-ignored")
    faulty.write_text(allowed)

    assert check("faulty.py", "--fix")[0] == 0
    assert faulty.read_text() == allowed.replace("    loss.backward()\n", "")

    faulty.write_text(FAULTY)
    assert check("faulty.py", "--fix", "--select", "L010")[0] == 0
    assert faulty.read_text() == FAULTY.replace("    loss.backward()\n", "")


def test_a_step_stays_where_its_backward_pass_is_not_selected(check, faulty):
    assert check("faulty.py", "--fix", "--select", "O007")[0] == 1
    assert faulty.read_text() == FAULTY


def test_what_the_baseline_knows_is_not_fixed(check, faulty):
    check("faulty.py", "--baseline", "known.json", "--write-baseline")

    assert check("faulty.py", "--baseline", "known.json", "--fix")[0] == 0
    assert faulty.read_text() == FAULTY


def test_a_baseline_is_written_of_what_the_fixes_leave(check, faulty):
    faulty.write_text(FAULTY + CLIPPING)

    assert check("faulty.py", "--baseline", "known.json", "--write-baseline", "--fix")[0] == 0
    assert "loss.backward()" not in faulty.read_text()
    assert "loss.backward()" not in Path("known.json").read_text()
    assert "clip_grad_norm_" in Path("known.json").read_text()


def test_a_plain_program_keeps_its_loop(check, faulty):
    assert check("plain.py", "--fix")[0] == 1
    assert Path("plain.py").read_text() == PLAIN


def test_a_function_is_run_again_after_its_fix(check, faulty):
    text = MODEL.format(comment="").replace(
        "        return h if h.mean() > 0 else -h", "        return h + (x.sum(1, keepdim=True) + torch.zeros(3))"
    )
    Path("model_of_test.py").write_text(text)

    status, output, _errors = check("model_of_test.py:make", "--fix")

    assert (status, output.splitlines()[0]) == (0, "fixed: 1 finding in 1 file")
    assert Path("model_of_test.py").read_text() == text.replace("zeros(3)", "zeros(3, device=x.device)", 1)


def test_a_program_that_fails_is_fixed_as_far_as_it_is_read(check, faulty):
    status, _output, errors = check("faulty.py", "missing:make", "--fix")

    assert status == 2
    assert "error[E020]" in errors


def test_a_diff_belongs_to_fixes(check):
    status, _output, errors = check("plain.py", "--diff")

    assert status == 2
    assert "--diff needs --fix" in errors


def test_fixes_need_their_extra(check, monkeypatch):
    monkeypatch.setitem(sys.modules, "libcst", None)
    Path("faulty.py").write_text(FAULTY)

    status, output, errors = check("faulty.py", "--fix")

    assert (status, output) == (2, "")
    assert "error[X001]" in errors
    assert "pip install" in errors
    assert Path("faulty.py").read_text() == FAULTY


# ---------------------------------------------------------------- what was not read


@pytest.mark.parametrize(("words", "expected"), [((), 1), (("--allow-unread",), 0)])
def test_what_was_not_read_is_not_clean_unless_it_is_allowed(check, words, expected):
    Path("ported.py").write_text(PORTED + "import gone\n")

    status, output, _errors = check("ported.py", "--quiet", *words)

    assert status == expected
    assert output.startswith("nothing was found in what could be read")


def test_what_was_found_is_not_allowed_with_it(check):
    assert check("plain.py", "--allow-unread")[0] == 1


def test_a_folder_without_a_program_ends_with_two(check):
    Path("empty").mkdir()

    status, output, errors = check("empty")

    assert (status, output) == (2, "")
    assert "error[E020]: there is no program in `empty`: nothing was read" in errors


def test_a_file_without_a_training_ends_with_two(check):
    Path("tool.py").write_text("x = 1\n")

    status, output, errors = check("tool.py")

    assert status == 2
    assert "nothing that trains a model was found in tool.py" in output
    assert "error[X025]" in errors


def test_a_function_that_is_not_there_ends_with_two(check):
    status, _output, errors = check("model_of_test.py:gone")

    assert status == 2
    assert "error[E020]" in errors
