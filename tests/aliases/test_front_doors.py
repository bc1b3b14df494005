"""The folders at the top of a clone are links into the package; what is imported by them is the package's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import porting

ROOT = Path(porting.__file__).parents[1]
DOORS = ("adapters", "models", "recipes")

PROGRAMS = {
    "packages": """
        import adapters, models, recipes
        import porting.adapters, porting.models, porting.recipes
        assert (adapters, models, recipes) == (porting.adapters, porting.models, porting.recipes)
        assert adapters.LossInForward is porting.LossInForward
    """,
    "the package first": """
        import porting.adapters, porting.models.gpt
        import adapters, models.gpt
        assert adapters is porting.adapters and models.gpt is porting.models.gpt
    """,
    "submodules": """
        from adapters.loss import LossInForward
        import models.gpt
        import recipes.first_port.checks
        import porting.models.gpt, porting.recipes.first_port.checks
        from porting import LossInForward as own
        assert LossInForward is own
        assert models.gpt is porting.models.gpt
        assert recipes.first_port.checks is porting.recipes.first_port.checks
    """,
    "a class of each": """
        import pickle, torch
        from models.mlp import MLPConfig
        from adapters import LossInForward
        import porting, porting.simulator, porting.models.mlp
        wrapped = porting.to_ipu(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss()).port.wrapped
        assert isinstance(wrapped, LossInForward)
        assert MLPConfig is porting.models.mlp.MLPConfig
        assert MLPConfig.__module__ == "porting.models.mlp"
    """,
    "a program by its name": """
        import runpy
        names = runpy.run_module("recipes.first_port.checks")
        assert names["__name__"] == "recipes.first_port.checks"
        import recipes.first_port, porting.recipes.first_port
        assert recipes.first_port is porting.recipes.first_port
    """,
    "what is not there": """
        import pytest
        with pytest.raises(ModuleNotFoundError, match="adapters.nothing"):
            import adapters.nothing
    """,
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """Copy what a clone has: the links and the package."""
    folder = tmp_path_factory.mktemp("clone")
    for door in DOORS:
        os.symlink(os.readlink(ROOT / door), folder / door)
    shutil.copytree(ROOT / "porting", folder / "porting", ignore=shutil.ignore_patterns("__pycache__", "*.png"))
    return folder


def run_in(clone, *arguments):
    environment = {**os.environ, "PYTHONPATH": str(clone), "PORTING_DEVICE": "sim"}
    return subprocess.run([sys.executable, *arguments], cwd=clone, env=environment, capture_output=True, text=True)


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_front_doors_lead_to_the_same_modules(name, clone):
    lines = [line[8:] for line in PROGRAMS[name].splitlines()]

    ended = run_in(clone, "-W", "ignore", "-c", "\n".join(lines))

    assert ended.returncode == 0, ended.stderr


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_they_do_so_under_pytest(clone):
    (clone / "test_mine.py").write_text(
        "from adapters.loss import LossInForward\n"
        "import models.gpt, recipes.first_port\n"
        "def test_it():\n"
        "    import porting\n"
        "    assert LossInForward is porting.LossInForward\n"
    )

    for mode in ("prepend", "importlib"):
        ended = run_in(clone, "-m", "pytest", "-q", f"--import-mode={mode}", "test_mine.py")

        assert ended.returncode == 0, ended.stdout


@pytest.mark.usefixtures("programs_have_torch")
def test_a_program_behind_a_link_runs_by_its_name(clone):
    ended = run_in(clone, "-m", "recipes.first_port.checks")

    assert (ended.returncode, ended.stderr) == (0, "")


def test_another_package_of_the_name_is_left_alone(tmp_path):
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters" / "__init__.py").write_text("origin = 'mine'\n")
    program = "import adapters, porting.adapters; assert adapters.origin == 'mine'"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}

    subprocess.run([sys.executable, "-c", program], env=environment, cwd=tmp_path, check=True)
