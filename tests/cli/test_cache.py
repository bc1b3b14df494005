"""`porting cache` shows what is on disk, why it was made, and removes nothing that was not named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest

from porting.cli.main import main
from porting.executables.entry import MANIFEST
from porting.executables.identity import ExecutableKey
from porting.executables.store import ExecutableStore

GRAPH = {"mode": "training", "operators": [], "results": []}
TENSORS = {"parameters": [], "buffers": [], "inputs": [], "constants": [], "outputs": []}


def key_with(**changes):
    sections = {"constants": [], "plan": {}, "optimizer": [], "engine": {"name": "auto"}, "threads": 1}
    sections.update(graph=GRAPH, tensors=TENSORS, versions={}, processor={}, explained={"model": "Net"})
    return ExecutableKey({**sections, **changes})


ONE, TWO = key_with(), key_with(threads=2)


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("PORTING_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "program.so").write_bytes(b"x" * 3000)
    store = ExecutableStore()
    content = {"choice": {"engine": "aot", "channels_last": True, "steps_per_run": 4}, "speed_up": 1.625}
    store.keep(ONE, tmp_path / "files", content, sources={})
    because = [{"text": "threads 1 -> 2"}, {"text": "batch 8 -> 16"}]
    store.keep(TWO, tmp_path / "files", {}, sources={}, because=because)
    return store


def printed(capsys, *words, status=0):
    assert main(["cache", *words]) == status
    return capsys.readouterr().out


def test_the_list_is_a_table(store, capsys):
    header, *rows, total = printed(capsys, "list").splitlines()

    assert header.split("  ")[0] == "KEY"
    row = next(row for row in rows if row.startswith(ONE.digest[:8]))
    for text in ("Net (training)", "aot, channels-last, 4 steps a run (auto)", "1.62x", "KiB", "just now", "ok"):
        assert text in row
    assert total.startswith("2 executables, 6.")
    assert total.endswith(f"of 2.0 GiB in {store.folder}")


def test_predictions_stand_beside_measurements(store, tmp_path, capsys):
    interval = {"median": 2.0, "low": 1.5, "high": 2.5}
    measured = {name: {"median": 2.25, "low": 2.0, "high": 2.5} for name in ("speed_up", "clock_speed_up")}
    candidates = [
        {"label": "replay", "expected": None, **measured},
        {"label": "aot", "expected": interval, **measured},
        {"label": "aot, channels-last", "expected": {**interval, "high": 2.1}, **measured},
        {"label": "aot, fused update", "expected": interval, "speed_up": None, "clock_speed_up": None, "problem": ""},
    ]
    store.keep(key_with(threads=4), tmp_path / "files", {"tuning": {"candidates": candidates}}, sources={})

    header, *rows, total = printed(capsys, "tunings").splitlines()

    assert "EXPECTED" in header
    assert [" ".join(row.split()[2:]) for row in rows] == [
        "aot 2.00x 1.50 - 2.50 2.25x",
        "aot, channels-last 2.00x 1.50 - 2.10 2.25x outside",
        "aot, fused update 2.00x 1.50 - 2.50 - not compiled",
    ]
    assert total.startswith("1 of 2 measured candidates within the bounds")


def test_without_predictions_there_is_no_table(store, capsys):
    assert printed(capsys, "tunings") == f"no predictions in {store.folder}\n"
    assert json.loads(printed(capsys, "tunings", "--format", "json")) == []


def test_an_empty_list_says_where_it_looked(tmp_path, capsys):
    assert printed(capsys, "list", "--dir", str(tmp_path)) == f"no executables in {tmp_path}\n"


@pytest.mark.parametrize("words", [["list", "--json"], ["list", "--format", "json"]])
def test_the_list_as_json_holds_the_manifests(words, store, capsys):
    listed = json.loads(printed(capsys, *words))

    assert listed["folder"] == str(store.folder)
    assert {entry["key"] for entry in listed["executables"]} == {ONE.digest, TWO.digest}
    assert {entry["state"] for entry in listed["executables"]} == {"ok"}
    assert [entry["content"]["speed_up"] for entry in listed["executables"] if entry["key"] == ONE.digest] == [1.625]


def test_damaged_and_failed_ones_are_listed_too(store, capsys):
    (store.programs / ONE.digest / MANIFEST).write_text("{")
    store.failures.note(key_with(threads=3), "inductor", "it took too long")

    table = printed(capsys, "list")

    assert "damaged: the manifest is not JSON" in table
    assert any("inductor" in row and row.endswith("failed") for row in table.splitlines())


def test_verifying_reads_all_files(store, capsys):
    (store.programs / ONE.digest / "program.so").write_bytes(b"y" * 3000)

    assert "damaged" not in printed(capsys, "list")
    assert "damaged: `program.so` has another content" in printed(capsys, "list", "--verify")


def test_what_a_manifest_says_does_not_reach_the_terminal(store, tmp_path, capsys):
    store.keep(key_with(threads=9, explained={"model": "N\x1b[2Jt\n"}), tmp_path / "files", {}, sources={})

    assert "\x1b" not in printed(capsys, "list")


def test_the_folder_of_programs_may_be_named_itself(store, capsys, monkeypatch):
    monkeypatch.delenv("PORTING_CACHE_DIR")

    assert "2 executables" in printed(capsys, "list", "--dir", str(store.programs))


# -- why ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[], ["--last"], [TWO.digest[:6]]])
def test_why_prints_what_was_recorded(words, store, capsys):
    text = printed(capsys, "why", *words)

    assert "recompiled: threads 1 -> 2\n      also: batch 8 -> 16\n" in text


def test_the_first_executable_of_a_model_says_so(store, capsys):
    assert "no earlier executable of this model" in printed(capsys, "why", ONE.digest)


def test_two_executables_are_compared(store, capsys):
    text = printed(capsys, "why", ONE.digest[:6], TWO.digest[:6])

    assert text == f"from {ONE.digest[:8]} to {TWO.digest[:8]}:\n  threads 1 -> 2\n"


def test_reasons_are_told_as_data(store, capsys):
    why = json.loads(printed(capsys, "why", TWO.digest, "--format", "json"))
    compared = json.loads(printed(capsys, "why", ONE.digest, TWO.digest, "--format", "json"))

    assert why == {"key": TWO.digest, "problem": "", "because": ["threads 1 -> 2", "batch 8 -> 16"], "failures": {}}
    assert compared == {"from": ONE.digest, "to": TWO.digest, "changes": ["threads 1 -> 2"]}


def test_failures_are_told(store, capsys):
    store.failures.note(ONE, "inductor", "the compiler crashed")

    assert "could not be compiled: inductor: the compiler crashed" in printed(capsys, "why", ONE.digest[:8])


@pytest.mark.parametrize("words", [["why", "zzzz"], ["why", ""], ["clear", "zzzz"], ["export", "x.zip", "zzzz"]])
def test_a_key_that_there_is_not_is_a_finding(words, store, capsys):
    assert main(["cache", *words]) == 2

    assert "error[E010]: there is no executable" in capsys.readouterr().err


def test_without_executables_there_is_no_last_one(tmp_path, capsys):
    assert main(["cache", "why", "--dir", str(tmp_path)]) == 2
    assert "error[E010]: there are no executables" in capsys.readouterr().err


# -- clear -------------------------------------------------------------------------------------------------------------


def test_clearing_nothing_in_particular_is_wrong_usage_and_removes_nothing(store, capsys):
    assert main(["cache", "clear"]) == 2

    assert "--all" in capsys.readouterr().err
    assert len(store.list_entries()) == 2


def test_one_can_be_cleared(store, capsys):
    assert printed(capsys, "clear", ONE.digest[:8]).startswith("removed 1 executable, ")
    assert [entry.digest for entry in store.list_entries()] == [TWO.digest]


def test_all_can_be_cleared(store, capsys):
    store.failures.note(ONE, "aot", "no reason")

    assert "removed 2 executables" in printed(capsys, "clear", "--all")
    assert store.list_entries() == []
    assert store.failures.read_all() == {}


def test_those_not_used_for_long_can_be_cleared(store, capsys):
    long_ago = time.time() - 10 * 86400
    os.utime(store.programs / ONE.digest / MANIFEST, (long_ago, long_ago))

    assert "removed 1 executable" in printed(capsys, "clear", "--older-than", "7d")
    assert [entry.digest for entry in store.list_entries()] == [TWO.digest]


def test_failures_can_be_cleared_without_the_executables(store, capsys):
    store.failures.note(ONE, "inductor", "no reason")

    assert "forgot the failures of 1 step" in printed(capsys, "clear", "--failed")
    assert len(store.list_entries()) == 2
    assert store.failures.read(ONE.digest) == {}


def test_damaged_ones_can_be_cleared(store, capsys):
    (store.programs / ONE.digest / "program.so").write_bytes(b"y" * 3000)

    assert "removed 1 executable" in printed(capsys, "clear", "--damaged")
    assert [entry.digest for entry in store.list_entries()] == [TWO.digest]


@pytest.mark.parametrize("text", ["7", "d", "week", "-1d"])
def test_a_time_that_is_none_is_wrong_usage(text, store, capsys):
    with pytest.raises(SystemExit) as end:
        main(["cache", "clear", f"--older-than={text}"])

    assert end.value.code == 2
    assert "such as 7d" in capsys.readouterr().err


# -- export and import -------------------------------------------------------------------------------------------------


def test_executables_go_through_a_file_to_another_folder(store, tmp_path, capsys):
    file, other = str(tmp_path / "programs.zip"), str(tmp_path / "other")

    assert printed(capsys, "export", file).startswith(f"wrote 2 executables to {file}, ")
    assert len(printed(capsys, "import", file, "--dir", other).splitlines()) == 2
    assert printed(capsys, "import", file, "--dir", other).startswith("had ")
    assert "2 executables" in printed(capsys, "list", "--dir", other)


def test_a_file_that_is_something_else_is_a_finding(store, tmp_path, capsys):
    (tmp_path / "x.zip").write_text("no zip")

    assert main(["cache", "import", str(tmp_path / "x.zip")]) == 2
    assert "error[E005]" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(store, tmp_path, capsys):
    assert main(["cache", "import", str(tmp_path / "none.zip")]) == 2
    assert f"porting cache: `{tmp_path / 'none.zip'}`: No such file or directory" in capsys.readouterr().err


def test_the_command_starts_without_torch(store):
    program = "import sys; from porting.cli.main import main; main(['cache', 'list']); print('torch' in sys.modules)"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout.splitlines()[-1] == "False"
