"""`porting bench` measures targets, writes what was asked for, and refuses what it cannot measure before it begins."""

from __future__ import annotations

import importlib.metadata
import io
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import redirect_stderr, redirect_stdout
from types import SimpleNamespace

import pytest

from porting.bench import command as bench
from porting.bench import results
from porting.bench.choices import EAGER_WAYS
from porting.bench.processes import Case
from porting.bench.results import describe_machine, read_results
from porting.bench.suite import GROWTH, OVERHEAD, START_UP, SUITE, WORKLOADS
from porting.cli.main import main

PROGRAM = """
import torch


def make(batch_size=4):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    labels = torch.arange(batch_size) % 2
    return model, torch.nn.CrossEntropyLoss(), (torch.randn(batch_size, 3), labels)


def data():
    return torch.utils.data.TensorDataset(torch.ones(32, 3), torch.zeros(32, dtype=torch.int64))


def broken():
    raise ValueError("no data here")
"""
# the first result is the last thing that it writes
DIES = """
import os, signal, sys
from porting.bench.results import ResultFile
from porting.cli.main import main

put = ResultFile.put

def put_and_die(results, index, record):
    put(results, index, record)
    os.kill(os.getpid(), signal.SIGKILL)

ResultFile.put = put_and_die
main(sys.argv[1:])
"""
QUICK = ["--engine", "replay", "--quick", "--rounds", "2", "--steps", "1"]


@pytest.fixture
def program(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train_bench.py").write_text(textwrap.dedent(PROGRAM))
    return "train_bench.py"


@pytest.fixture
def measured(monkeypatch):
    """Note the cases instead of measuring them; they fail."""
    cases = []

    def run_none(case: Case, **_settings):
        cases.append(case)
        return case.record("failed", reason="not measured here")

    monkeypatch.setattr(bench, "run_case", run_none)
    return cases


@pytest.fixture(scope="module")
def earlier(tmp_path_factory, compiler_server):
    """Measure a target once; give the status, what is printed and said, and the file of results."""
    folder, out, err = tmp_path_factory.mktemp("earlier"), io.StringIO(), io.StringIO()
    (folder / "train_bench.py").write_text(PROGRAM)
    words = ["bench", "train_bench.py:make", "--growth", *QUICK, "--json", str(folder / "earlier.json")]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(sys, "executable", compiler_server.python)
        status = main(words)
    return SimpleNamespace(status=status, out=out.getvalue(), err=err.getvalue(), file=folder / "earlier.json")


@pytest.fixture
def replayed(monkeypatch, earlier):
    """Let cases have the result that was measured once; give the function that stands for measuring."""
    (measured_once,) = read_results(earlier.file)["cells"]

    def run_none(case: Case, **_settings):
        return case.record("done", result=measured_once["result"])

    monkeypatch.setattr(bench, "run_case", run_none)
    return run_none


@pytest.mark.slow
def test_a_target_is_measured_and_told_as_a_page(earlier):
    assert earlier.status == 0
    assert "train_bench.py:make: 4 samples a step" in earlier.out
    assert "same losses   pass" in earlier.out
    assert "[1/1] train_bench.py:make replay: x" in earlier.err


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_everything_that_is_asked_for_is_written(program, tmp_path, capsys):
    pytest.importorskip("matplotlib")
    files = [f"--{kind}={tmp_path / kind}" for kind in ("json", "html", "png")]

    status = main(
        ["bench", f"{program}:make", "--matrix", "batch=2,6", "device_iterations=2", *QUICK, *files]
        + ["--loader", f"{program}:data"]
    )

    assert status == 0
    content = read_results(tmp_path / "json")
    assert [case["result"]["samples_per_step"] for case in content["cells"]] == [2, 6]
    assert content["complete"] is True
    assert (tmp_path / "html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "png").read_bytes().startswith(b"\x89PNG")
    output = capsys.readouterr()
    assert "all: replay, 2 steps a call" in output.out
    assert output.err.endswith(f"wrote {tmp_path / 'json'}\nwrote {tmp_path / 'html'}\nwrote {tmp_path / 'png'}\n")


@pytest.mark.slow
def test_an_earlier_run_is_compared_with(program, earlier, replayed, capsys):
    main(["bench", f"{program}:make", *QUICK, "--compare", str(earlier.file)])

    assert "speed-up now / then" in capsys.readouterr().out


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_a_case_that_fails_is_told_and_is_exit_status_2(program, capsys):
    assert main(["bench", f"{program}:broken", *QUICK]) == 2

    assert "ValueError: no data here" in capsys.readouterr().out


@pytest.mark.slow
def test_a_failed_case_does_not_stop_the_others(program, replayed, tmp_path, monkeypatch):
    def run_second(case: Case, **settings):
        if case.choices.batch == 2:
            return case.record("failed", reason="on purpose")
        return replayed(case, **settings)

    monkeypatch.setattr(bench, "run_case", run_second)

    status = main(
        ["bench", f"{program}:make", "--matrix", "batch=2,4", *QUICK, "--json", str(tmp_path / "results.json")]
    )

    assert status == 2
    assert [case["status"] for case in read_results(tmp_path / "results.json")["cells"]] == ["failed", "done"]


def test_an_interrupt_leaves_a_valid_file(program, tmp_path, monkeypatch, capsys):
    def interrupt(case: Case, **_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "run_case", interrupt)

    status = main(["bench", f"{program}:make", "--matrix", "batch=2,4", "--json", str(tmp_path / "results.json")])

    content = read_results(tmp_path / "results.json")
    assert status == 130
    assert [case["status"] for case in content["cells"]] == ["interrupted", "not_run"]
    assert content["complete"] is False
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_ended_from_outside_it_ends_its_case(tmp_path):
    marker = tmp_path / "pid"
    (tmp_path / "slow_target.py").write_text(
        "import os, pathlib, time\n\n\ndef make():\n"
        f"    pathlib.Path({str(marker)!r}).write_text(str(os.getpid()))\n    time.sleep(600)\n"
    )
    command = [sys.executable, "-m", "porting", "bench", "slow_target.py:make", "--quick"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (marker.exists() and marker.read_text()):
        time.sleep(0.1)

    process.send_signal(signal.SIGTERM)

    assert process.wait(240) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


def test_the_suite_is_every_workload_in_every_precision_that_is_asked_of_it(measured):
    main(["bench", "suite", "--engine", "replay"])

    expected = [(name, precision) for name, entry in SUITE.items() for precision in entry.demanded]
    assert [(case.name, case.choices.precision) for case in measured] == expected
    assert all(case.demanded == SUITE[case.name].demanded[case.choices.precision] for case in measured)


def test_overhead_is_every_workload_of_it_without_compiled_engines(measured):
    main(["bench", "overhead"])

    assert [case.name for case in measured] == list(OVERHEAD)
    assert {(case.choices.engine, case.settings.eager_optimizer) for case in measured} == {("replay", "default")}


def test_start_up_is_measured_cold_and_warm_with_what_is_compiled_already(measured):
    main(["bench", "start_up", "--start-up", "2"])

    settings = [case.settings for case in measured]
    assert [case.name for case in measured] == list(START_UP)
    assert {case.choices.engine for case in measured} == {"ready"}
    assert {(setting.start_up_runs, setting.cold_starts) for setting in settings} == {(2, 1)}


def test_a_curve_is_asked_for_on_the_command_line(measured):
    main(["bench", "mushrooms", "--quick", "--curve", "--curve-runs", "2", "--curve-seconds", "0.5"])
    main(["bench", "mushrooms"])

    settings = [case.settings for case in measured]
    assert [setting.curve for setting in settings] == [True, False]
    assert (settings[0].curve_runs, settings[0].curve_seconds) == (2, 0.5)


def test_growth_is_measured_of_each_number_by_itself(measured):
    main(["bench", "growth", "--repeats", "1"])

    assert {case.name for case in measured} == set(GROWTH)
    assert [case.choices.layers for case in measured if case.name == "growth_layers"] == [8, 16, 32, 64]
    assert all(case.settings.growth for case in measured)


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_a_curve_stands_below_the_page(program, tmp_path, monkeypatch, capsys):
    # with the bytecode that is there: to make that of all torch anew takes longer than the rest
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", "")
    words = ["--curve", "--curve-runs", "1", "--curve-seconds", "0.01", "--json", str(tmp_path / "results.json")]

    assert main(["bench", f"{program}:make", *QUICK, *words]) == 0

    assert "\ntime to N steps, from the moment" in capsys.readouterr().out
    curve = read_results(tmp_path / "results.json")["cells"][0]["result"]["curve"]
    assert len(curve["cold"]["seconds"]) == len(curve["steps"]) > 0


@pytest.mark.slow
def test_the_growth_of_a_matrix_stands_below_the_table(program, replayed, capsys):
    words = ["--matrix", "batch=2,4,8", "--growth", *QUICK]

    assert main(["bench", f"{program}:make", *words]) == 0

    assert "growth with batch: train_bench.py:make replay" in capsys.readouterr().out


def test_orders_are_a_matrix_of_computation_orders(measured):
    main(["bench", "orders_linear24"])
    main(["bench", "orders_gpt", "--matrix", "order=none,chen"])

    orders = [(case.name, case.choices.order) for case in measured]
    assert orders[:2] == [("orders_linear24", "none"), ("orders_linear24", "chen")]
    assert orders[5:] == [("orders_gpt", "none"), ("orders_gpt", "chen")]


def test_the_table_of_overhead_has_a_row_for_each_workload_and_states_the_conditions(measured, capsys):
    main(["bench", "overhead"])

    output = capsys.readouterr().out
    assert [name for name in OVERHEAD if not re.search(rf"^{name} ", output, re.MULTILINE)] == []
    assert f"torch {importlib.metadata.version('torch')}" in output.splitlines()[0]
    assert "all: float32, replay" in output


@pytest.mark.parametrize(("threads", "load", "is_advised"), [(None, 9.0, True), ("1", 9.0, False), (None, 0.1, False)])
def test_several_threads_on_a_busy_machine_are_advised_against(
    measured, monkeypatch, capsys, threads, load, is_advised
):
    busy = {"load_average": load, "omp_num_threads": threads, "num_cores": 2}
    monkeypatch.setattr(results, "describe_machine", lambda: {**describe_machine(), **busy})

    main(["bench", "overhead_tiny"])

    assert ("try --threads 1" in capsys.readouterr().out) == is_advised


def test_the_engine_is_chosen_by_measuring_unless_another_is_named(measured):
    main(["bench", "lstm"])

    assert measured[0].choices.engine == "auto"


@pytest.mark.parametrize("flag", ["--case-timeout", "--cell-timeout"])
def test_the_time_of_a_case_is_named_as_cases_are_or_as_they_were(monkeypatch, flag):
    timeouts = []

    def run_none(case: Case, *, timeout, **_settings):
        timeouts.append(timeout)
        return case.record("failed", reason="not measured here")

    monkeypatch.setattr(bench, "run_case", run_none)

    main(["bench", "lstm", flag, "5"])

    assert timeouts == [5.0]


def test_the_command_line_goes_before_the_file(program, tmp_path, measured):
    content = {
        "settings": {"rounds": 3},
        "benchmarks": {
            "mine": {
                "target": f"{program}:make",
                "matrix": {"batch": [1, 2], "engine": "replay"},
                "demand": {"mixed": 1.5},
                "repeats": 2,
                "loader": f"{program}:data",
            }
        },
    }
    (tmp_path / "benchmarks.json").write_text(json.dumps(content))

    main(["bench", "benchmarks.json", "--batch", "8", "--precision", "mixed", "--rounds", "7"])

    assert [(case.choices.batch, case.choices.engine, case.repeat) for case in measured] == [
        (8, "replay", 1),
        (8, "replay", 2),
    ]
    assert (measured[0].settings.rounds, measured[0].demanded) == (7, 1.5)
    assert measured[0].dataset_arguments["target"].endswith("train_bench.py:data")


def test_findings_of_a_file_are_told_all_at_once_and_nothing_runs(tmp_path, measured, capsys):
    (tmp_path / "b.json").write_text('{"benchmarks": {"cnn": {"repeat": 3, "matrx": {}}}}')

    assert main(["bench", str(tmp_path / "b.json")]) == 2

    assert capsys.readouterr().err.count("error[T001]") == 2
    assert measured == []


@pytest.mark.parametrize(
    ("target", "advice"),
    [("mushroom", "did you mean `mushrooms`?"), ("train_bench.py", "`train_bench.py:NAME`"), ("b.yml", "no file")],
)
def test_an_unknown_target_is_answered_with_what_was_meant(program, measured, capsys, target, advice):
    assert main(["bench", target]) == 2

    error = capsys.readouterr().err
    assert "error[T002]" in error
    assert advice in error


def test_an_unreadable_earlier_run_is_refused_before_anything_runs(program, tmp_path, measured, capsys):
    (tmp_path / "earlier.json").write_text("{}")

    assert main(["bench", f"{program}:make", "--compare", str(tmp_path / "earlier.json")]) == 2

    assert "error[T005]" in capsys.readouterr().err
    assert measured == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "what is to be measured?"),
        (["cnn", "--matrix", "batches=3"], "write KEY=A,B with one of batch,"),
        (["cnn", "--matrix", "batch=few"], "batch takes numbers from 1 on"),
        (["cnn", "--matrix", "precision=double"], "'double' is no precision"),
        (["cnn", "--matrix", "batch=1", "--batch", "2"], "say it twice"),
        (["cnn", "--seconds", "-1"], "must be a number above 0"),
        (["cnn", "--suite", "suite"], "are two targets"),
        (["cnn", "--resume"], "--resume goes on with the file of --json"),
        (["cnn", "--part", "3/2"], "write K/N"),
        (["cnn", "--against", "plain,jit"], "known are plain, fused, channels-last, compile"),
    ],
)
def test_wrong_usage_is_exit_status_2(words, message, measured, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["bench", *words])

    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_a_suite_by_its_option_is_the_same_as_by_its_name(measured):
    main(["bench", "--suite", "suite"])
    main(["bench", "suite"])

    assert measured[: len(measured) // 2] == measured[len(measured) // 2 :]


def test_parts_of_names_that_fit_are_measured(measured):
    main(["bench", "suite", "--only", "gpt", "mnist*", "--part", "2/2"])

    assert [(case.name, case.choices.precision) for case in measured] == [
        ("mnist_mlp", "bfloat16"),
        ("gpt", "bfloat16"),
    ]


def test_public_models_take_turns_with_every_way(measured, monkeypatch):
    monkeypatch.setattr("porting.bench.public_models.require_library", lambda _name: None)

    main(["bench", "--suite", "public", "--quick", "--only", "public_bert"])
    main(["bench", "cnn", "--against", "fused,compile"])

    assert [case.settings.against for case in measured[:1]] == [tuple(EAGER_WAYS)]
    assert {case.settings.against for case in measured[1:]} == {("fused", "compile")}


def test_a_missing_library_is_said_before_anything_runs(measured, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    monkeypatch.setitem(sys.modules, "torchvision", None)

    assert main(["bench", "--suite", "public", "--only", "public_resnet50"]) == 2

    assert "error[X001]" in capsys.readouterr().err
    assert measured == []


def test_a_file_that_is_not_there_yet_is_begun(program, tmp_path, measured):
    main(["bench", f"{program}:make", "--json", str(tmp_path / "new.json"), "--resume"])

    assert len(measured) == 1
    assert read_results(tmp_path / "new.json")["complete"] is True


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_run_on_two_workers_that_was_killed_goes_on_where_it_was(program, replayed, tmp_path, capsys):
    file = tmp_path / "results.json"
    words = [
        "bench",
        f"{program}:make",
        "--matrix",
        "batch=2,4",
        *QUICK,
        "--json",
        str(file),
        "--resume",
        "--on=local:2",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", DIES, *words], env=environment, capture_output=True)
    killed = read_results(file)["cells"]

    status = main(words)

    cases = read_results(file)["cells"]
    assert (ended.returncode, sorted(case["status"] for case in killed)) == (-signal.SIGKILL, ["done", "not_run"])
    assert (status, [case["status"] for case in cases]) == (0, ["done"] * 2)
    assert [case["choices"]["batch"] for case in cases] == [2, 4]
    assert [one for one in killed if one["status"] == "done"][0] in cases
    assert capsys.readouterr().err.count("done already") == 1


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
@pytest.mark.timeout(900)  # torch.compile on a busy machine
def test_a_public_model_is_timed_against_every_way_and_told_in_all_files(tmp_path, capsys):
    pytest.importorskip("transformers")
    pytest.importorskip("matplotlib")
    files = ["--json", str(tmp_path / "results.json"), "--html", str(tmp_path / "page.html")]

    status = main(["bench", "--suite", "public", "--only", "public_wav2vec2", *QUICK, "--threads", "1", *files])

    content = read_results(tmp_path / "results.json")
    ways = content["cells"][0]["result"]["against"]["ways"]
    assert status == 0
    assert {way: bool(figures["speed_up"]) for way, figures in ways.items()} == {
        "plain": True,
        "fused": True,
        "channels-last": False,
        "compile": True,
    }
    assert content["summary"]["num_cells"] == 1
    assert "geometric mean of 1 over the best" in capsys.readouterr().out
    assert "Over the best way without the port" in (tmp_path / "page.html").read_text()


def test_the_list_names_every_workload(capsys):
    assert main(["bench", "--list"]) == 0

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(WORKLOADS)


def test_help_starts_without_torch():
    program = "import sys, porting.bench.command; print('torch' in sys.modules)"

    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert output.strip() == "False"


def test_results_are_told_as_data(measured, capsys):
    assert main(["bench", "cnn", "--quick", "--format", "json"]) == 2

    assert {case["reason"] for case in json.loads(capsys.readouterr().out)["cells"]} == {"not measured here"}


def test_workloads_are_listed_as_data(capsys):
    assert main(["bench", "--list", "--format", "json"]) == 0

    assert "mushrooms" in {workload["name"] for workload in json.loads(capsys.readouterr().out)}


def test_an_engine_of_a_file_that_there_is_not_is_refused_before_anything_runs(tmp_path, measured, capsys):
    (tmp_path / "b.json").write_text('{"benchmarks": {"cnn": {"matrix": {"engine": ["auto", "replai"]}}}}')

    assert main(["bench", str(tmp_path / "b.json")]) == 2

    assert "did you mean `replay`?" in capsys.readouterr().err
    assert measured == []
