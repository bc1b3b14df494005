"""What surrounds a program is looked at without changing it, and told where it is short."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from porting.doctor import machine
from porting.doctor.machine import probe_machine

Usage = namedtuple("Usage", "total used free")
GIB = 1 << 30


def probe(name):
    return next(probe for probe in probe_machine() if probe.name == name)


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """The cache folder of this test, which nobody has made yet."""
    folder = tmp_path / "not" / "there"
    monkeypatch.setenv("PORTING_CACHE_DIR", str(folder))
    return folder


def test_nothing_is_made_or_left(cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert probe("cache folder").finding is None
    assert list(tmp_path.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_a_finding(cache, monkeypatch):
    def refuse(**_keywords):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine.tempfile, "TemporaryFile", refuse)

    finding = probe("cache folder").finding

    assert finding.code == "E004"
    assert finding.message == f"the cache folder {cache} cannot be written: Permission denied"


def test_a_cache_that_is_a_file_is_a_finding(cache, tmp_path):
    (tmp_path / "not").write_text("")

    assert probe("cache folder").finding.code == "E004"


@pytest.mark.parametrize("variable", ["PORTING_CACHE_OWNER", "PORTING_CACHE_MAX_BYTES"])
def test_a_variable_with_a_value_that_it_cannot_have_is_a_finding(cache, monkeypatch, variable):
    cache.mkdir(parents=True)
    monkeypatch.setenv(variable, "nonsense")

    finding = probe("cache folder").finding

    assert finding.code == "P005"
    assert f"{variable} is 'nonsense'" in finding.message


def test_a_full_disk_is_a_finding(cache, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(100 * GIB, 99 * GIB, GIB // 2))

    assert probe("cache folder").finding.message.endswith("has 512.0 MiB left")
    assert probe("shared memory").finding.code == "X017"


def test_room_enough_is_no_finding(cache, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: Usage(100 * GIB, 10 * GIB, 90 * GIB))

    assert (probe("cache folder").finding, probe("shared memory").finding) == (None, None)


@pytest.mark.parametrize(("soft", "code"), [(1024, "X018"), (65536, None), (-1, None)])
def test_the_limit_of_open_files_is_told(monkeypatch, soft, code):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (soft, 524288))

    finding = probe("open files").finding

    assert (finding.code if finding else None) == code
    if finding:
        assert finding.help == ("raise it in the shell that starts the training: `ulimit -n 65536`",)


@pytest.mark.parametrize(
    ("threads", "files", "code"),
    [
        ("8", {}, "X022"),
        ("4", {}, None),
        ("", {}, None),
        ("", {"cpu.max": "150000 100000"}, "X022"),
        ("1", {"cpu.max": "150000 100000"}, None),
        ("4", {"cpu.max": "max 100000"}, None),
        ("", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_threads_are_compared_with_cores(monkeypatch, tmp_path, threads, files, code):
    monkeypatch.setattr(machine, "usable_cores", lambda: 4)
    monkeypatch.setattr(machine, "_GROUP_FOLDER", tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text + "\n")

    finding = probe("cores and threads").finding

    assert (finding.code if finding else None) == code


def test_the_memory_of_a_container_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_GROUP_FOLDER", tmp_path)
    (tmp_path / "memory.max").write_text(f"{2 * GIB}\n")

    assert probe("memory").found == "2.0 GiB"


def test_a_clock_before_this_package_is_a_finding(monkeypatch):
    monkeypatch.setattr(machine.time, "time", lambda: 0.0)

    assert probe("clock").finding.code == "X020"


def test_a_file_system_with_another_clock_is_a_finding(monkeypatch, cache, tmp_path):
    cache.mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(machine, "_iter_skews", lambda: iter([(Path("/net"), -3600.0)]))

    assert probe("clock").finding.message == "the file system of /net is 3600 s behind this clock"


def test_the_clock_of_this_machine_is_right(cache, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert probe("clock").finding is None
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (None, "no C++ compiler works here"),
        ("echo 'fatal error: vector: No such file'; exit 1", "g++ ended with status 1"),
        ("exit 0", "g++ wrote nothing"),
    ],
)
def test_a_compiler_that_is_missing_or_broken_is_a_finding(machine, program, message):
    if program is not None:
        machine.add_program("g++", program)

    finding = probe("C++ compiler").finding

    assert finding.code == "X021"
    assert finding.message.endswith(message)


def test_a_variable_that_names_no_compiler_is_a_finding(machine):
    machine.set(CXX="no-such-compiler -O2")

    assert probe("C++ compiler").finding.message == "CXX is 'no-such-compiler -O2', which is not on PATH"


def test_a_compiler_that_works_is_told_by_its_version():
    found = probe("C++ compiler")

    assert found.finding is None
    assert any(letter.isdigit() for letter in found.found)
