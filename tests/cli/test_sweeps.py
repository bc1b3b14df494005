"""A sweep runs each of its cases once, on whatever cluster, and one that was killed goes on where it was."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest

from porting.bench import clusters
from porting.bench.clusters import Cluster, parse_cluster, run_sweep
from porting.bench.processes import Case
from porting.bench.results import hold_results, read_results
from porting.cli.main import main

CASE = Case(name="tiny", target="tiny", loader="a:b", arguments={})
PROGRAM = """
import os
import pathlib
import signal

import torch


def make(batch_size=4):
    if os.environ.get("DEADLY") == str(batch_size):
        os.kill(os.getppid(), signal.SIGKILL)
    with open(pathlib.Path(__file__).with_name("marks"), "a") as marks:
        marks.write(f"{batch_size}\\n")
    return torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(), (torch.ones(batch_size, 3), torch.arange(batch_size) % 2)
"""
# each says its address, and ends with its input
STARTERS = {
    "dask": (
        "from distributed import LocalCluster\nimport sys\n"
        "if __name__ == '__main__':\n"
        "    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)\n"
        "    print(cluster.scheduler_address.replace('tcp', 'dask'), flush=True)\n    sys.stdin.read()\n"
    ),
    "ray": (
        "import ray, sys\nray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)\n"
        "print('ray://auto', flush=True)\nsys.stdin.read()\n"
    ),
}
LIBRARIES = {"dask": "distributed", "ray": "ray"}


def sweep(cases, run, *, number=2):
    """Run cases here, and give their records by number."""
    records, settings = {}, {"cache_dir": None, "sweep": "now", "look": lambda _under_way, _still: None}
    numbered = {index: (case, 1.0) for index, case in enumerate(cases)}
    run_sweep(Cluster("local", str(number)), numbered, run, put=records.__setitem__, **settings)
    return records


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Write the program into the folder in which all of a test works."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sweep_bench.py").write_text(PROGRAM)
    return tmp_path / "sweep_bench.py"


@pytest.fixture(params=["local", "dask", "ray"])
def address(request, program):
    """Start a cluster of two processes, where it is installed, and give its address."""
    if request.param == "local":
        yield "local:2"
        return
    pytest.importorskip(LIBRARIES[request.param])
    starter = program.with_name("start_cluster.py")
    starter.write_text(STARTERS[request.param])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "DEADLY": "8"}
    with subprocess.Popen([sys.executable, str(starter)], env=environment, text=True, **pipes) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()


# -- every case once ---------------------------------------------------------------------------------------------------


def test_so_many_cases_run_at_a_time_and_each_once():
    meeting, begun = threading.Barrier(2, timeout=60), []

    def run(case, **_settings):
        begun.append(case.name)
        meeting.wait()
        return case.record("done")

    records = sweep([Case(name=str(index), target="", loader="a:b", arguments={}) for index in range(4)], run)

    assert sorted(begun) == ["0", "1", "2", "3"]
    assert [records[index]["name"] for index in range(4)] == ["0", "1", "2", "3"]


def test_an_interrupt_ends_the_other_cases():
    cases = [Case(name=name, target="", loader="a:b", arguments={}) for name in ("stops", "waits", "never")]
    meeting, left = threading.Barrier(2, timeout=60), []

    def run(case, *, progress, **_settings):
        meeting.wait()
        if case.name == "stops":
            raise KeyboardInterrupt
        try:
            while True:
                progress("waiting", 0.5)
                time.sleep(0.01)
        finally:
            left.append(case.name)

    with pytest.raises(KeyboardInterrupt):
        sweep(cases, run)

    assert left == ["waits"]


def test_an_error_of_this_machine_is_passed_on():
    def run(_case, **_settings):
        raise OSError("no further process")

    with pytest.raises(OSError, match="no further process"):
        sweep([CASE], run)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_sweep_that_was_killed_goes_on_and_runs_no_case_again_that_is_done(program, address):
    file, marks = program.with_name("results.json"), program.with_name("marks")
    words = ["bench", "sweep_bench.py:make", "--matrix", "batch=2,4,6", "--engine", "replay", "--quick", "--rounds=2"]
    words += ["--steps=1", "--json", str(file), "--resume", "--on", address]
    process = subprocess.Popen([sys.executable, "-m", "porting", *words], stderr=subprocess.DEVNULL)
    while not (file.exists() and "done" in [case["status"] for case in read_results(file)["cells"]]):
        time.sleep(0.05)
    process.kill()
    process.wait()
    killed, begun = read_results(file), Counter(marks.read_text().split())

    status = main(words)

    cases, again = read_results(file)["cells"], Counter(marks.read_text().split())
    done = [index for index, case in enumerate(killed["cells"]) if case["status"] == "done"]
    assert (status, [case["status"] for case in cases]) == (0, ["done"] * 3)
    assert [cases[index] for index in done] == [killed["cells"][index] for index in done]
    assert [again[str(cases[index]["choices"]["batch"])] for index in done] == [
        begun[str(cases[index]["choices"]["batch"])] for index in done
    ]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("address", ["dask", "ray"], indirect=True)
def test_a_case_that_takes_its_worker_down_has_failed_and_is_not_begun_again(address, program):
    words = ["bench", "sweep_bench.py:make", "--matrix", "batch=8,2", "--engine", "replay", "--quick", "--rounds=2"]

    status = main([*words, "--steps=1", "--json", "results.json", "--on", address])

    lost, measured = read_results(program.with_name("results.json"))["cells"]
    assert (status, lost["status"], measured["status"]) == (2, "failed", "done")
    assert "lost" in lost["reason"] or "died" in lost["reason"]
    assert measured["machine"]["num_cores"] >= 1


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "local", "local:", "local:0", "local://2", "dask", "ray://", "slurm://node1", "2"]
)
def test_what_names_no_cluster_is_wrong_usage(text):
    with pytest.raises(argparse.ArgumentTypeError, match="write local:N"):
        parse_cluster(text)


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_library_that_is_not_installed_is_named_with_its_extra(program, monkeypatch, capsys, kind):
    monkeypatch.setitem(sys.modules, LIBRARIES[kind], None)

    status = main(["bench", "sweep_bench.py:make", "--on", f"{kind}://127.0.0.1:1"])

    assert status == 2
    assert f'pip install "ipu-porting[{kind}]"' in capsys.readouterr().err


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_a_finding(program, monkeypatch, capsys):
    pytest.importorskip("distributed")
    monkeypatch.setattr(clusters, "_CONNECT_SECONDS", 1)

    status = main(["bench", "sweep_bench.py:make", "--on", "dask://127.0.0.1:1"])

    assert status == 2
    assert "error[T007]: the cluster `dask://127.0.0.1:1` does not answer" in capsys.readouterr().err


def test_a_folder_that_a_machine_does_not_have_is_the_reason_of_a_failed_case(tmp_path):
    record = clusters.run_there(CASE, timeout=1.0, cache_dir=None, folder=str(tmp_path / "none"))

    assert (record["status"], "has no folder" in record["reason"]) == ("failed", True)


def test_two_sweeps_do_not_measure_into_one_file(program, capsys):
    with hold_results(program.with_name("results.json")):
        status = main(["bench", "sweep_bench.py:make", "--json", "results.json", "--resume"])

    assert status == 2
    assert "error[T008]: another run of `porting bench` measures into `results.json`" in capsys.readouterr().err
