"""`ipu-porting-check` reads sources where there is no torch, and leaves an installed porting as it is."""

from __future__ import annotations

import json
import subprocess
import zipfile

import pytest

from porting.version import VERSION
from tests.installed.environments import build_wheel, make_bare_environment, run

MOST_BYTES = 20_000_000
PLAIN = """import torch

model = torch.nn.Linear(4, 3)
for x, y in batches():
    torch.nn.functional.cross_entropy(model(x), y).backward()


def make():
    return model, torch.nn.CrossEntropyLoss(), (torch.rand(8, 4), torch.randint(3, (8,)))
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def small_wheel(clone, tmp_path_factory):
    """Give the wheel of the small distribution."""
    return build_wheel(clone / "check_alone", tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def bare(small_wheel, tmp_path_factory):
    """Give the folder of commands of an environment with the small distribution alone."""
    return make_bare_environment(tmp_path_factory.mktemp("bare") / "environment", small_wheel)


@pytest.fixture
def plain(tmp_path):
    """Give a plain program."""
    path = tmp_path / "train.py"
    path.write_text(PLAIN, encoding="utf-8")
    return path


def check(bare, *words):
    return subprocess.run([str(bare / "porting-check"), *map(str, words)], capture_output=True, text=True, check=False)


def test_it_shares_no_file_and_no_command_with_the_whole(small_wheel, wheel):
    small, whole = (set(zipfile.ZipFile(path).namelist()) for path in (small_wheel, wheel))

    assert small & whole == set()
    assert {name.split("/")[0] for name in small} == {"porting_check", f"ipu_porting_check-{VERSION}.dist-info"}
    entry_points = zipfile.ZipFile(small_wheel).read(f"ipu_porting_check-{VERSION}.dist-info/entry_points.txt").decode()
    assert [line.split(" = ")[0] for line in entry_points.splitlines() if "=" in line] == ["porting-check"]


def test_it_is_small(bare):
    files = [path for path in bare.parent.rglob("*") if path.is_file() and not path.is_symlink()]

    assert sum(path.stat().st_size for path in files) < MOST_BYTES


def test_it_needs_nothing_else(bare):
    listed = run(
        [bare / "python", "-c", "from importlib.metadata import distributions as d; print(*[x.name for x in d()])"]
    )

    assert listed.split() == ["ipu-porting-check"]


def test_it_finds_what_the_whole_finds_in_the_source(bare, plain):
    done = check(bare, plain, "--format", "json", "--html", plain.with_suffix(".html"))

    codes = {finding["code"] for finding in json.loads(done.stdout)["findings"]}
    assert (done.returncode, done.stderr) == (1, "")
    assert {"L001", "L010"} <= codes
    assert plain.with_suffix(".html").exists()


def test_it_explains_codes(bare):
    assert run([bare / "porting-check", "explain", "L001"]).startswith("# L001: ")


def test_a_function_is_refused_and_its_source_read_instead(bare, plain):
    refused = check(bare, f"{plain}:make")
    read = check(bare, f"{plain}:make", "--source-only", "--quiet")

    assert refused.returncode == 2
    assert "error[X001]: `make` of" in refused.stderr
    assert "`--source-only` reads the program" in refused.stderr
    assert (read.returncode, read.stderr) == (1, "")
