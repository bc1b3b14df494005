"""An interpreter that starts with the bootstrap has the aliases, and nothing else about it is different."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import porting
from porting.run import simulated_environment

ROOT = Path(porting.__file__).parents[1]


def start(program, *, interpreter=(sys.executable,), folder=None, **variables):
    environment = simulated_environment({**os.environ, **variables})
    command = [*interpreter, "-c", program]
    result = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return result.stdout


def test_the_aliases_are_there():
    assert start("import importlib.util as u; print(u.find_spec('poptorch').origin)").endswith(
        "simulator/__init__.py\n"
    )


def test_nothing_is_imported_for_them():
    assert start("import sys; print({'torch', 'porting.simulator'} & set(sys.modules))") == "set()\n"


def test_the_path_is_what_it_would_have_been():
    program = "import sys; print(sys.path)"
    plain = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert start(program, PYTHONPATH=os.environ.get("PYTHONPATH", "")) == plain


def test_a_sitecustomize_of_somebody_else_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.customized = __file__\n")

    printed = start(
        "import sys, sitecustomize; print(sys.customized, sitecustomize.__file__)", PYTHONPATH=str(tmp_path)
    )

    assert set(printed.split()) == {str(tmp_path / "sitecustomize.py")}


def test_without_another_sitecustomize_importing_it_is_harmless():
    program = "import sitecustomize, sys; print(sum('Alias' in type(finder).__name__ for finder in sys.meta_path))"

    assert start(program) == "1\n"


@pytest.mark.slow
def test_processes_below_have_them_too():
    below = "import poptorch.enums; print(poptorch.enums.__name__)"
    program = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {below!r}], text=True))"

    assert start(program).strip() == "porting.simulator.enums"


def test_an_interpreter_that_does_not_have_the_package_finds_it_beside_the_bootstrap(tmp_path):
    # without site-packages, as in another environment; there `site` imports sitecustomize
    program = "import sitecustomize, sys; print('porting.aliases' in sys.modules, sys.path[-1])"

    assert start(program, interpreter=(sys.executable, "-S"), folder=tmp_path) == f"True {ROOT}\n"


def test_as_a_part_of_the_package_it_does_nothing():
    program = (
        "import sys; before = list(sys.meta_path); import porting.run.bootstrap.sitecustomize; "
        "print(sys.meta_path == before)"
    )

    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert printed == "True\n"
