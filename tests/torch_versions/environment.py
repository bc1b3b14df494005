"""Runs the tests that tell what works with a version of torch, in an environment of that version: `make torch`.

    python -m tests.torch_versions.environment 2.8.0 [what pytest takes]

The environment is made once, beside `.venv`: minutes and 5 GB, as torch from PyPI brings CUDA along on Linux. What a
whole run says of each part is written into the table that `docs/torch-versions.md` and `porting doctor` show.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Dict, List
from xml.etree import ElementTree

from porting.engines.compiled.why_replay import why_torch_is_too_old
from porting.support.torch_versions import PartResult
from tests.hardware.environment import clean_environment, made_once, python_in
from tests.torch_versions.table import write_tested

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hypothesis", "libcst", "numpy", "pytest", "pytest-timeout", "pytest-xdist", "PyYAML", "setuptools", "tqdm")
README_EXAMPLES = "tests/docs/test_docs_run.py::test_an_example_of_the_readme_runs_on_its_own_as_a_file"

# what shows that a part works
TESTS = {
    "capture": ["tests/capture"],
    "replay": [
        "tests/adapters",
        "tests/api",
        "tests/engines/calls",
        "tests/engines/update",
        "tests/engines/replay",
        "tests/engines/recompute",
        README_EXAMPLES,
    ],
    "compiled": ["tests/engines/compiled", "tests/engines/recurrence", "tests/engines/tuning"],
    "aot": ["tests/engines/aot"],
}


def main(arguments: List[str]) -> int:
    """Make the environment of a version where it is missing, run its tests, and return their exit status."""
    if not arguments or not arguments[0][0].isdigit():
        print("which torch? `make torch VERSION=2.8.0`", file=sys.stderr)  # noqa: T201 - it is a command
        return 2
    version, *options = arguments
    environment = ROOT / f".venv-torch-{version}"
    made_once(environment, lambda folder: make_environment(version, folder))
    return run_tests(version, python_in(environment), options)


def make_environment(version: str, folder: Path) -> None:
    """Make a virtual environment with this torch, first and alone, and with what the tests need besides."""
    print(f"torch {version}: making {folder}, minutes and 5 GB", flush=True)  # noqa: T201
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [python_in(folder), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    variables = clean_environment()
    subprocess.run([*install, f"torch=={version}"], check=True, env=variables)
    constraints = str(ROOT / "constraints.txt")
    subprocess.run([*install, "--constraint", constraints, *PACKAGES], check=True, env=variables)


def run_tests(version: str, python: str, options: List[str]) -> int:
    """Run the tests of all parts that this torch can have, or what `options` name; write down what a whole run said."""
    parts = {name: tests for name, tests in TESTS.items() if can_have(version, name)}
    chosen = options or [test for tests in parts.values() for test in tests]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", "-m", "not slow"]
        variables = {**clean_environment(), "PYTHONPATH": str(ROOT)}
        status = subprocess.run([python, *command, f"--junitxml={report}", *chosen], cwd=ROOT, env=variables).returncode
        # 1: tests failed; all above, the run itself did
        if not options and status <= 1:
            write_tested(version, read_report(report, parts), page=ROOT / "docs/torch-versions.md")
    return status


def can_have(version: str, part: str) -> bool:
    """Tell whether torch of this version is one that steps are compiled with; all else works with each."""
    return part in ("capture", "replay") or not why_torch_is_too_old(version)


def read_report(report: Path, parts: Dict[str, List[str]]) -> Dict[str, PartResult]:
    """Count in JUnit's report how many tests of each part passed and how many did not."""
    counts = {name: Counter[bool]() for name in parts}
    for case in ElementTree.parse(report).iter("testcase"):
        # a file that cannot be imported has no class, only a name
        module = case.get("classname") or case.get("name") or ""
        (name,) = [name for name, tests in parts.items() if any(is_of(module, test) for test in tests)]
        if case.find("skipped") is None:
            counts[name][case.find("failure") is None and case.find("error") is None] += 1
    return {name: PartResult(passed=count[True], failed=count[False]) for name, count in counts.items()}


def is_of(module: str, test: str) -> bool:
    """Tell whether a module, by its dotted name, lies in what pytest is given."""
    place = test.split("::")[0].replace(".py", "").replace("/", ".")
    return module == place or module.startswith(f"{place}.")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
