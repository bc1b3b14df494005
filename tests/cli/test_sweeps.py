"""A sweep runs each of its cases once, on whatever cluster, and one that was killed goes on where it was."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from porting.cli.sweeps import Cluster, hold_results, parse_cluster, run_sweep, run_there
from porting.diagnostics import PortingError
from tests.cli.sweep_cases import MarkCase, run_mark

ROOT = Path(__file__).parents[2]
# of a busy machine: what answers at all may take its time
PATIENT = {"DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": "600s", "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "600s"}
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


def sweep(cases, run):
    """Run cases here, two at a time, and give their records by number."""
    records, settings = {}, {"told": {}, "sweep": "now", "look": lambda _under_way, _still: None}
    numbered = {index: (case, 1.0) for index, case in enumerate(cases)}
    run_sweep(Cluster("local", "2"), numbered, run, put=records.__setitem__, **settings)
    return records


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """Give the environment of programs that find these tests; all of a test works in its own folder."""
    monkeypatch.chdir(tmp_path)
    return {**os.environ, **PATIENT, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


@pytest.fixture(params=["local", *(pytest.param(kind, marks=pytest.mark.slow) for kind in LIBRARIES)])
def address(request, environment):
    """Start a cluster of two processes, where it is installed, and give its address."""
    if request.param == "local":
        yield "local:2"
        return
    pytest.importorskip(LIBRARIES[request.param])
    Path("start_cluster.py").write_text(STARTERS[request.param])
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "start_cluster.py"], env=environment, text=True, **pipes) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()


@pytest.fixture
def run_marks(environment):
    """Give a function that runs a sweep in a program of its own, and returns what that wrote and said."""

    def run(address, *names, **variables):
        program = "import sys; from tests.cli.sweep_cases import run_marks; run_marks(*sys.argv[1:])"
        command = [sys.executable, "-c", program, address, *names]
        return subprocess.run(command, env={**environment, **variables}, text=True, capture_output=True)

    return run


def read_records():
    return {name: record["status"] for name, record in json.loads(Path("records.json").read_text()).items()}


def count_marks():
    return Counter(Path("marks").read_text().split())


# -- every case once ---------------------------------------------------------------------------------------------------


def test_so_many_cases_run_at_a_time_and_each_once():
    meeting, begun = threading.Barrier(2, timeout=60), []

    def run(case, **_settings):
        begun.append(case.name)
        meeting.wait()
        return case.record("done")

    records = sweep([MarkCase(str(index)) for index in range(4)], run)

    assert sorted(begun) == ["0", "1", "2", "3"]
    assert [records[index]["name"] for index in range(4)] == ["0", "1", "2", "3"]


def test_an_interrupt_ends_the_other_cases():
    cases = [MarkCase(name) for name in ("stops", "waits", "never")]
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
        sweep([MarkCase("any")], run)


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_sweep_that_was_killed_goes_on_and_runs_no_case_again_that_is_done(run_marks, address):
    killed = run_marks(address, "quick", "waits", "later", DIES="1")
    recorded = read_records()
    Path("go").touch()

    ended = run_marks(address, "quick", "waits", "later")

    assert (killed.returncode, ended.returncode) == (-9, 0), killed.stderr + ended.stderr
    assert recorded == {"quick": "done"}
    assert read_records() == {"quick": "done", "waits": "done", "later": "done"}
    assert count_marks()["quick"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("address", ["dask"], indirect=True)
def test_a_scheduler_keeps_what_was_under_way_when_the_sweep_was_killed(run_marks, address):
    run_marks(address, "quick", "waits", "later", DIES="1")
    Path("go").touch()

    run_marks(address, "quick", "waits", "later")

    assert count_marks() == {"quick": 1, "waits": 1, "later": 1}


@pytest.mark.slow
@pytest.mark.parametrize("address", ["dask", "ray"], indirect=True)
def test_a_case_that_takes_its_worker_down_has_failed_and_is_not_begun_again(address, run_marks):
    ended = run_marks(address, "deadly", "quick")

    reason = json.loads(Path("records.json").read_text())["deadly"]["reason"]
    assert (read_records(), ended.stderr) == ({"deadly": "failed", "quick": "done"}, ended.stderr)
    assert "lost" in reason or "died" in reason
    assert count_marks() == {"deadly": 1, "quick": 1}


# -- what a scheduler keeps, by a stand-in for Dask -------------------------------------------------------------------


class Scheduler:
    """Dask's module and client at once: it runs a case as soon as it is submitted."""

    def __init__(self):
        self.kept, self.marks = {}, set()

    def Client(self, _where):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def Event(self, name):
        return SimpleNamespace(
            set=lambda: self.marks.add(name),
            clear=lambda: self.marks.discard(name),
            is_set=lambda: name in self.marks,
        )

    def submit(self, function, *arguments, key, pure, **settings):
        self.key = key
        result = function(*arguments, **settings)
        return SimpleNamespace(done=lambda: True, result=lambda: result)

    def publish_dataset(self, future, *, name, override):
        self.kept[name] = future

    def unpublish_dataset(self, name):
        del self.kept[name]

    def list_datasets(self):
        return tuple(self.kept)

    def cancel(self, futures, *, force):
        pass


@pytest.fixture
def scheduler(monkeypatch, tmp_path):
    """Let a stand-in be Dask."""
    monkeypatch.chdir(tmp_path)
    stand_in = Scheduler()
    monkeypatch.setitem(sys.modules, "distributed", stand_in)
    return stand_in


def sweep_over_dask(name):
    records, settings = {}, {"told": {}, "sweep": "now", "look": lambda _under_way, _still: None}
    cases = {0: (MarkCase(name), None)}
    run_sweep(Cluster("dask", "node:1"), cases, run_mark, put=records.__setitem__, **settings)
    return records[0]


def test_a_scheduler_is_left_without_cases_and_marks_those_of_a_killed_sweep_included(scheduler):
    scheduler.kept = {"porting-now-done-before": None, "of-another": None}

    record = sweep_over_dask("quick")

    assert (record["status"], list(scheduler.kept), scheduler.marks) == ("done", ["of-another"], set())


@pytest.mark.parametrize(("is_kept", "status"), [(True, "failed"), (False, "done")])
def test_a_case_that_was_begun_is_lost_if_the_scheduler_kept_it_and_else_begun_anew(scheduler, is_kept, status):
    sweep_over_dask("quick")
    scheduler.marks = {f"begun-{scheduler.key}"}
    scheduler.kept = {scheduler.key: None} if is_kept else {}

    record = sweep_over_dask("quick")

    assert (record["status"], "was lost" in record["reason"]) == (status, is_kept)


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["", "local", "local:", "local:0", "local://2", "dask", "ray://", "slurm://node1", "2"]
)
def test_what_names_no_cluster_is_wrong_usage(text):
    with pytest.raises(argparse.ArgumentTypeError, match="write local:N"):
        parse_cluster(text)


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_library_that_is_not_installed_is_named_with_its_extra(monkeypatch, kind):
    monkeypatch.setitem(sys.modules, LIBRARIES[kind], None)

    with pytest.raises(PortingError, match=f"{kind} is not installed") as refused:
        run_sweep(Cluster(kind, "node:1"), {}, run_mark, told={}, sweep="now", put=print, look=print)

    assert f'pip install "ipu-porting[{kind}]"' in str(refused.value)


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_a_finding(run_marks):
    pytest.importorskip("distributed")

    ended = run_marks("dask://127.0.0.1:1", "quick", DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT="1s")

    assert "error[T007]: the cluster `dask://127.0.0.1:1` does not answer" in ended.stderr


def test_a_folder_that_a_machine_does_not_have_is_the_reason_of_a_failed_case(tmp_path):
    record = run_there(run_mark, MarkCase("quick"), folder=str(tmp_path / "none"))

    assert (record["status"], "has no folder" in record["reason"]) == ("failed", True)


def test_two_sweeps_do_not_write_one_file(tmp_path):
    with hold_results(tmp_path / "results.json", "bench"):
        with pytest.raises(PortingError, match="another run of `porting verify` writes its results into") as refused:
            with hold_results(tmp_path / "results.json", "verify"):
                pass

    assert refused.value.finding.code == "T008"
