"""The search beside a training: it starts late, gives way, and leaves nothing behind, whatever happens to it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.executables import background
from porting.executables.background import BackgroundTuning

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are those of POSIX")

X, Y = torch.ones(8, 4), torch.zeros(8, dtype=torch.int64)


@pytest.fixture(autouse=True)
def _start_soon(monkeypatch, tmp_path):
    """Let a search begin with the second call, in a folder for temporary files of its own."""
    monkeypatch.setattr(background, "_START_SECONDS", 0.0)
    monkeypatch.setattr(background, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(background, "_SPARE_DISK_BYTES", 0)
    # no search has to take turns with its training
    monkeypatch.setattr(background, "_SHARE_OF_A_CORE", 100.0)
    monkeypatch.delenv("PORTING_ENGINE", raising=False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setattr(background, "usable_cores", lambda: 2)


@pytest.fixture
def port(tmp_path):
    """Give a function that ports a model; what it makes is destroyed at the end."""
    made = []

    def make(**settings):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        # no candidate that needs a compiler is done in so little time
        options = PortOptions(cache_dir=tmp_path / "cache", tuning_seconds=1e-3, **settings)
        optimizer = torch.optim.Adam(model.parameters())
        made.append(to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=options, device="sim"))
        return made[-1]

    yield make
    for ported in made:
        ported.destroy()


def left_behind(tmp_path):
    return sorted(path.name for path in (tmp_path / "temporary").iterdir())


def findings_of(ported):
    return [finding for finding in ported.report().findings if finding.code in ("E011", "E012")]


def train_until_said(ported, seconds=280.0):
    deadline = time.monotonic() + seconds
    while not findings_of(ported) and time.monotonic() < deadline:
        ported(X, Y)
        time.sleep(0.01)
    return findings_of(ported)


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_a_training_finds_what_a_process_beside_it_has_chosen_and_the_next_one_begins_with_it(port, tmp_path):
    ported = port()

    [finding] = train_until_said(ported)

    assert finding.code == "E011"
    assert left_behind(tmp_path) == []
    assert ported.report().executors[0].tuning is not None
    ported.destroy()
    ported(X, Y)
    assert ported.report().executors[0].cache == "hit"


@pytest.mark.slow
def test_a_process_that_dies_is_named_and_harms_nothing(port, tmp_path):
    ported = port()
    ported(X, Y)
    ported(X, Y)
    [folder] = (tmp_path / "temporary").iterdir()
    kill_search()

    [finding] = train_until_said(ported)

    assert finding.code == "E012"
    assert "the compiling process died" in finding.message
    assert not folder.exists()


def kill_search():
    """Kill the process that searches, and its group; others of this process's children serve other tests."""
    os.killpg(BackgroundTuning._at_work()._process._process.pid, signal.SIGKILL)


def read_state(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux pauses a process and all that it has started")
def test_beside_a_training_on_all_cores_it_runs_while_the_training_stands_still(port, monkeypatch, tmp_path):
    monkeypatch.setattr(background, "_SHARE_OF_A_CORE", -100.0)
    monkeypatch.setattr(background, "_SHARE_OF_TURNS", 0.5)
    ported = port()

    ported(X, Y)
    ported(X, Y)
    seen = []
    started = time.monotonic()
    while not findings_of(ported) and time.monotonic() < started + 280.0:
        ported(X, Y)
        processes = list((tmp_path / "temporary").glob(".porting-*/ready"))
        search = BackgroundTuning._at_work() if BackgroundTuning._at_work else None
        if processes and search is not None and search._process is not None and not search.is_over:
            seen.append(read_state(search._process._process.pid))
        time.sleep(0.01)

    assert findings_of(ported)[0].code == "E011"
    assert seen.count("T") > 0.8 * len(seen) > 0
    assert left_behind(tmp_path) == []


def test_destroying_the_port_ends_the_search(port, tmp_path):
    ported = port()
    ported(X, Y)
    ported(X, Y)
    assert len(left_behind(tmp_path)) == 1

    ported.destroy()

    assert left_behind(tmp_path) == []


def test_one_port_looks_at_a_time(port, tmp_path):
    first, second = port(), port()
    for _ in range(3):
        first(X, Y)
        second(X, Y)

    assert len(left_behind(tmp_path)) == 1

    first.destroy()
    second(X, Y)
    second(X, Y)
    assert len(left_behind(tmp_path)) == 1


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("usable_cores", lambda: 1, "there is one core"),
        ("find_free_memory", lambda: 1.0, "too little free memory"),
        ("_SPARE_DISK_BYTES", 1 << 62, "too little room"),
    ],
)
def test_a_machine_without_room_is_named(port, monkeypatch, tmp_path, name, value, reason):
    monkeypatch.setattr(background, name, value)
    ported = port()

    [finding] = train_until_said(ported)

    assert finding.code == "E012"
    assert reason in finding.message
    assert left_behind(tmp_path) == []


def test_a_deterministic_program_keeps_its_engine(port):
    torch.use_deterministic_algorithms(True)
    try:
        [finding] = train_until_said(port())
    finally:
        torch.use_deterministic_algorithms(False)

    assert "deterministic" in finding.message


def test_a_full_disk_is_named(port, monkeypatch, tmp_path):
    def fail(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("porting.executables.exported_step.write_step_file", fail)

    [finding] = train_until_said(port())

    assert "No space left on device" in finding.message
    assert left_behind(tmp_path) == []


def test_a_short_training_never_starts_one(port, monkeypatch, tmp_path):
    monkeypatch.setattr(background, "_START_SECONDS", 5.0)
    ported = port()

    for _ in range(20):
        ported(X, Y)

    assert left_behind(tmp_path) == []
    assert findings_of(ported) == []


def test_an_evaluation_never_starts_one(port, tmp_path):
    inference = port().inference()

    for _ in range(5):
        inference(X)

    assert left_behind(tmp_path) == []


def test_a_copy_begins_anew(tmp_path):
    import copy

    tuning = BackgroundTuning(None, None, find=lambda: None, cache_dir=tmp_path, seconds=1.0)
    tuning.is_over = True

    assert not copy.deepcopy(tuning).is_over


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_program_that_ends_leaves_nothing_behind(tmp_path, how):
    program = f"""
import tempfile, time, torch
tempfile.tempdir = {str(tmp_path / "temporary")!r}
from porting import PortOptions, to_ipu
from porting.executables import background
background._START_SECONDS = background._LOOK_SECONDS = background._SPARE_DISK_BYTES = 0
background.usable_cores = lambda: 2
model = torch.nn.Linear(4, 3)
ported = to_ipu(model, torch.nn.CrossEntropyLoss(), device="sim", options=PortOptions(cache_dir={str(tmp_path)!r}))
for number in range(10000):
    ported(torch.ones(8, 4), torch.zeros(8, dtype=torch.int64))
    if number == 3:
        print("begun", flush=True)
    time.sleep(0.01)
"""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        while process.stdout.readline().strip() != "begun":
            pass
        assert len(left_behind(tmp_path)) == 1
        process.send_signal(how)

    deadline = time.monotonic() + 240
    while left_behind(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(("engine", "is_measured"), [(None, False), ("auto", True)])
def test_only_who_asks_for_it_waits_for_the_measurements(port, engine, is_measured):
    ported = port(engine=engine)

    ported.compile(X, Y)

    assert (ported.report().executors[0].tuning is not None) == is_measured


def test_a_search_for_nan_waits_for_nothing(port):
    ported = port(engine="auto")

    assert ported.find_nan((X, Y)) is None

    assert ported.report().executors[0].tuning is None
