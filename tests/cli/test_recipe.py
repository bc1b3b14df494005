"""`porting recipe` lists, shows, runs and copies chains of programs, and overwrites nothing."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap

import pytest
import torch

from porting.cli import recipe as verb
from porting.cli.main import main
from porting.cli.recipe import find_recipe, read_recipes

SOURCE = '''
"""{summary}."""

def train(num_steps):
    return [{first} / (index + 1) for index in range(num_steps)]
'''


@pytest.fixture
def chain(tmp_path, monkeypatch):
    """Make a recipe `halving` of two steps that need nothing, and the place where `porting recipe` finds it."""
    folder = tmp_path / "recipes" / "halving"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text('"""Numbers that fall."""\n')
    (folder / "README.md").write_text("# Halving\n")
    (folder / "step_0_plain.py").write_text(SOURCE.format(summary="The beginning", first=1.0).lstrip())
    (folder / "step_1_more.py").write_text(SOURCE.format(summary="A bit more", first=1.5).lstrip())
    monkeypatch.setattr(verb, "RECIPES_FOLDER", folder.parent)
    monkeypatch.setattr(verb.RecipeStep, "module", property(lambda step: f"halving.{step.path.stem}"))
    monkeypatch.syspath_prepend(str(folder.parent))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "halving"]:
        del sys.modules[name]


@pytest.fixture
def one_thread():
    """Keep small models from waiting for busy cores, in programs that are started as well."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def run_program(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, **options)


# -- list and show ---------------------------------------------------------------------------------------------------


def test_list_has_a_line_for_each_recipe_and_step(chain, capsys):
    assert main(["recipe", "list"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        "halving",
        "  Numbers that fall",
        "  0  plain  The beginning",
        "  1  more   A bit more",
    ]


@pytest.mark.parametrize("words", [["--format", "json", "recipe", "list"], ["recipe", "list", "--format", "json"]])
def test_list_as_json_has_the_same(chain, capsys, words):
    assert main(words) == 0

    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "halving",
            "summary": "Numbers that fall",
            "steps": [
                {"number": 0, "name": "plain", "summary": "The beginning"},
                {"number": 1, "name": "more", "summary": "A bit more"},
            ],
        }
    ]


def test_steps_are_in_the_order_of_their_numbers(chain):
    (chain / "step_10_last.py").write_text('"""The end."""\n')

    assert [step.number for step in find_recipe("halving").steps] == [0, 1, 10]


def test_other_files_and_folders_are_no_steps(chain):
    (chain / "demo.py").write_text("")
    (chain / "step_by_step.py").write_text("")
    (chain.parent / "__pycache__").mkdir()

    assert [[step.name for step in recipe.steps] for recipe in read_recipes()] == [["plain", "more"]]


def test_show_prints_the_story(chain, capsys):
    assert main(["recipe", "show", "halving"]) == 0
    assert capsys.readouterr().out == "# Halving\n"


def test_show_with_a_step_prints_its_source(chain, capsys):
    assert main(["recipe", "show", "halving", "--step", "1"]) == 0
    assert capsys.readouterr().out == (chain / "step_1_more.py").read_text()


def test_a_diff_has_the_lines_that_changed_and_no_colour_outside_a_terminal(chain, capsys):
    assert main(["recipe", "show", "halving", "--step", "1", "--diff"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["--- step_0_plain.py", "+++ step_1_more.py"]
    assert [line for line in lines[2:] if line[0] in "+-"] == [
        '-"""The beginning."""',
        '+"""A bit more."""',
        "-    return [1.0 / (index + 1) for index in range(num_steps)]",
        "+    return [1.5 / (index + 1) for index in range(num_steps)]",
    ]
    assert "\033" not in "".join(lines)


def test_a_terminal_gets_colours_unless_it_asks_for_none(chain, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    main(["recipe", "show", "halving", "--step", "1", "--diff"])
    coloured = capsys.readouterr().out
    monkeypatch.setenv("NO_COLOR", "1")
    main(["recipe", "show", "halving", "--step", "1", "--diff"])

    assert '\033[32m+"""A bit more."""\033[0m\n' in coloured
    assert capsys.readouterr().out == re.sub(r"\033\[\d+m", "", coloured)


def test_a_diff_without_a_step_has_all_of_them(capsys):
    assert main(["recipe", "show", "first_port", "--diff"]) == 0

    headings = [line[4:] for line in capsys.readouterr().out.splitlines() if line.startswith("+++ ")]
    assert headings == [step.path.name for step in find_recipe("first_port").steps[1:]]


def test_the_first_step_has_nothing_to_differ_from(chain, capsys):
    assert main(["recipe", "show", "halving", "--step", "0", "--diff"]) == 2
    assert capsys.readouterr() == ("", "porting recipe: no step comes before step 0\n")


@pytest.mark.parametrize("action", ["show", "run"])
def test_an_unknown_step_is_wrong_usage(chain, capsys, action):
    assert main(["recipe", action, "halving", "--step", "7"]) == 2
    assert capsys.readouterr().err == "porting recipe: `halving` has no step 7; it has 0, 1\n"


@pytest.mark.parametrize("words", [["show", "halfing"], ["run", "halfing"], ["copy", "halfing", "somewhere"]])
def test_an_unknown_recipe_is_answered_with_the_nearest(chain, capsys, words):
    assert main(["recipe", *words]) == 1

    errors = capsys.readouterr().err
    assert errors.startswith("error[R001]: there is no recipe of this name")
    assert "= help: did you mean `halving`?" in errors


def test_where_no_recipe_is_near_the_list_is_pointed_to(chain, capsys):
    main(["recipe", "show", "zzz"])

    assert "= help: `porting recipe list` says what each recipe shows" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["list"], ["show", "first_port"], ["show", "first_port", "--diff"]], ids=" ".join)
def test_list_and_show_load_neither_torch_nor_numpy(words):
    program = (
        f"import sys; from porting.cli.main import main; main(['recipe', *{words}])\n"
        "print(*({'torch', 'numpy', 'sklearn'} & set(sys.modules)), file=sys.stderr)"
    )

    result = run_program("-c", program)

    assert (result.returncode, result.stderr) == (0, "\n")


# -- run -------------------------------------------------------------------------------------------------------------


def test_run_puts_the_losses_of_all_steps_side_by_side(chain, capsys):
    assert main(["recipe", "run", "halving", "--steps", "2"]) == 0

    output, errors = capsys.readouterr()
    expected = """\
          step    step_0    step_1
             1  1.000000  1.500000
             2  0.500000  0.750000

        largest relative difference from the column before:
                           5.0e-01
    """
    assert textwrap.dedent(output).split() == expected.split()
    assert errors == ""


def test_a_terminal_is_told_which_step_runs(chain, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    main(["recipe", "run", "halving"])

    assert capsys.readouterr().err == "step 0: The beginning\nstep 1: A bit more\n"


def test_run_with_a_step_has_its_losses_only(chain, capsys):
    assert main(["recipe", "run", "halving", "--step", "1", "--steps", "1"]) == 0
    assert capsys.readouterr().out.split() == ["step", "step_1", "1", "1.500000"]


def test_run_as_json_has_every_digit(chain, capsys):
    assert main(["recipe", "run", "halving", "--steps", "3", "--format", "json"]) == 0

    assert json.loads(capsys.readouterr().out) == [
        {"number": 0, "losses": [1.0, 0.5, 1.0 / 3]},
        {"number": 1, "losses": [1.5, 0.75, 0.5]},
    ]


def test_a_real_recipe_runs(one_thread, capsys):
    assert main(["recipe", "run", "first_port", "--step", "1", "--steps", "3"]) == 0

    losses = [float(line.split()[1]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(losses) == 3
    # ten classes, nothing learnt yet: about log 10
    assert losses[0] == pytest.approx(2.3, abs=0.3)


def test_a_step_that_fails_is_named_below_its_own_error(chain, capsys):
    (chain / "step_1_more.py").write_text('"""A bit more."""\n\ndef train(num_steps):\n    return 1 / 0\n')

    assert main(["recipe", "run", "halving"]) == 1

    errors = capsys.readouterr().err
    assert re.search(r"Traceback.*ZeroDivisionError: .*error\[R003\]: a step of the recipe failed", errors, re.DOTALL)
    assert "= note: step 1 (`more`) raised ZeroDivisionError" in errors


def test_a_finding_of_a_step_is_shown_as_it_is(chain, capsys):
    (chain / "step_0_plain.py").write_text(
        'from porting.diagnostics import PortingError\n\ndef train(num_steps):\n    raise PortingError.of("D001")\n'
    )

    assert main(["recipe", "run", "halving", "--step", "0"]) == 1
    assert capsys.readouterr().err.startswith("error[D001]: no IPU was found")


def test_a_missing_extra_is_named_with_the_command_that_installs_it(chain, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    (chain / "step_0_plain.py").write_text("import sklearn.datasets\n")

    assert main(["recipe", "run", "halving"]) == 1

    errors = capsys.readouterr().err
    assert errors.startswith("error[X001]: an optional dependency is not installed")
    assert '= help: pip install "ipu-porting[recipes]"' in errors


def test_another_missing_module_is_not_taken_for_an_extra(chain):
    (chain / "step_0_plain.py").write_text("import no_such_module\n")

    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        main(["recipe", "run", "halving"])


@pytest.mark.parametrize("count", ["0", "-3", "many"])
def test_the_number_of_steps_is_at_least_one(chain, count):
    with pytest.raises(SystemExit, match="2"):
        main(["recipe", "run", "halving", "--steps", count])


# -- copy ------------------------------------------------------------------------------------------------------------


def test_copy_writes_the_programs_and_the_story(chain, tmp_path, capsys):
    destination = tmp_path / "new" / "mine"

    assert main(["recipe", "copy", "halving", str(destination)]) == 0

    names = ["README.md", "step_0_plain.py", "step_1_more.py"]
    assert sorted(path.name for path in destination.iterdir()) == names
    assert [(destination / name).read_text() for name in names] == [(chain / name).read_text() for name in names]
    assert [path.name for path in destination.parent.iterdir()] == ["mine"]
    assert f"python {destination / 'step_0_plain.py'}" in capsys.readouterr().out


@pytest.mark.parametrize("there_is", ["a folder", "a file", "a link to nothing"])
def test_copy_overwrites_nothing(chain, tmp_path, capsys, there_is):
    destination = tmp_path / "mine"
    {
        "a folder": destination.mkdir,
        "a file": destination.touch,
        "a link to nothing": lambda: destination.symlink_to(tmp_path / "nothing"),
    }[there_is]()

    assert main(["recipe", "copy", "halving", str(destination)]) == 1

    assert capsys.readouterr().err.startswith("error[R002]: the destination exists already")
    assert not destination.is_dir() or list(destination.iterdir()) == []


def test_a_copy_that_fails_leaves_nothing_behind(chain, tmp_path, monkeypatch):
    folder = tmp_path / "empty"
    folder.mkdir()
    (chain / "README.md").unlink()

    with pytest.raises(FileNotFoundError):
        main(["recipe", "copy", "halving", str(folder / "mine")])

    assert list(folder.iterdir()) == []


def test_a_copied_program_is_imported_by_itself(tmp_path):
    main(["recipe", "copy", "first_port", str(tmp_path / "mine")])
    program = "import step_1_loss_in_forward as step; print(*step.train(2))"

    result = run_program("-c", program, cwd=tmp_path / "mine")

    assert len(result.stdout.split()) == 2, result.stderr


@pytest.mark.slow
def test_a_copied_program_runs_as_a_script(tmp_path):
    main(["recipe", "copy", "first_port", str(tmp_path / "mine")])

    result = run_program(str(tmp_path / "mine" / "step_4_device_iterations.py"), cwd=tmp_path)

    assert re.fullmatch(r"loss 2\.\d+ -> 0\.\d+, test accuracy 0\.9[5-9]\d\n", result.stdout), result.stderr


@pytest.mark.parametrize("recipe", read_recipes(), ids=lambda recipe: recipe.name)
def test_programs_import_nothing_of_this_package_but_its_public_names(recipe):
    imports = {line for step in recipe.steps for line in re.findall(r"^.*\bimport\b.*$", step.source, re.MULTILINE)}

    assert {line for line in imports if "porting" in line or line.startswith("from .")} == {"import porting"}
