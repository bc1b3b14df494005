"""`porting recipe` lists, shows, runs and copies chains of programs, and overwrites nothing."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import runpy
import subprocess
import sys
import textwrap

import pytest
import torch

from porting.cli.main import main
from porting.diagnostics import PortingError
from porting.recipe_chain import find_recipe, read_recipes, recipe_files
from porting.recipe_chain.checks import report_failures_of

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
    monkeypatch.setattr(recipe_files, "RECIPES_FOLDER", folder.parent)
    monkeypatch.setattr(recipe_files.Recipe, "module_name", lambda recipe, stem: f"halving.{stem}")
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


def test_a_long_summary_is_wrapped_in_a_terminal(chain, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "40")
    (chain / "step_1_more.py").write_text('"""A bit more than what there is room for in one line."""\n')

    main(["recipe", "list"])

    assert capsys.readouterr().out.splitlines()[-2:] == [
        "  1  more   A bit more than what there",
        "            is room for in one line",
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


def test_show_with_the_workload_prints_what_all_steps_share(chain, capsys):
    assert main(["recipe", "show", "halving", "--workload"]) == 2
    assert "error[R004]: the recipe `halving` has no `workload.py`" in capsys.readouterr().err

    (chain / "workload.py").write_text("HALF = 0.5\n")

    assert main(["recipe", "show", "halving", "--workload"]) == 0
    assert capsys.readouterr().out == "HALF = 0.5\n"


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
    assert main(["recipe", *words]) == 2

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
                           3.3e-01
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

    assert main(["recipe", "run", "halving"]) == 2

    errors = capsys.readouterr().err
    assert re.search(r"Traceback.*ZeroDivisionError: .*error\[R003\]: a step of the recipe failed", errors, re.DOTALL)
    assert "= note: step 1 (`more`) raised ZeroDivisionError" in errors


def test_a_step_that_ends_itself_is_no_success(chain, capsys):
    (chain / "step_1_more.py").write_text("import sys\n\nsys.exit(0)\n")

    assert main(["recipe", "run", "halving"]) == 2
    assert "step 1 (`more`) raised SystemExit" in capsys.readouterr().err


def test_losses_that_are_no_number_are_infinitely_far(chain, capsys):
    (chain / "step_1_more.py").write_text(
        "def train(num_steps):\n    return [1.0, *[float('nan')] * (num_steps - 1)]\n"
    )

    assert main(["recipe", "run", "halving", "--steps", "3"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["inf"]


def test_a_finding_of_a_step_is_shown_as_it_is(chain, capsys):
    (chain / "step_0_plain.py").write_text(
        'from porting.diagnostics import PortingError\n\ndef train(num_steps):\n    raise PortingError.of("D001")\n'
    )

    assert main(["recipe", "run", "halving", "--step", "0"]) == 2
    assert capsys.readouterr().err.startswith("error[D001]: no IPU was found")


@pytest.mark.parametrize("words", [[], ["--check"]], ids=["run", "check"])
@pytest.mark.parametrize(
    ("module", "extra"), [("sklearn", "recipes"), ("h5py", "recipes"), ("transformers", "transformers")]
)
def test_a_missing_extra_is_named_with_the_command_that_installs_it(chain, capsys, monkeypatch, module, extra, words):
    monkeypatch.setitem(sys.modules, module, None)
    (chain / "step_0_plain.py").write_text(f"import {module}.datasets\n")
    (chain / "checks.py").write_text(CHECKS)

    assert main(["recipe", "run", "halving", *words]) == 2

    errors = capsys.readouterr().err
    assert errors.startswith("error[X001]: an optional dependency is not installed")
    assert f'= help: pip install "ipu-porting[{extra}]"' in errors


def test_another_missing_module_is_not_taken_for_an_extra(chain, capsys):
    (chain / "step_0_plain.py").write_text("import no_such_module\n")

    assert main(["recipe", "run", "halving"]) == 2

    errors = capsys.readouterr().err
    assert "ModuleNotFoundError: No module named 'no_such_module'" in errors
    assert "step 0 (`plain`) raised ModuleNotFoundError" in errors
    assert "X001" not in errors


def test_the_owner_of_a_failing_step_is_told_to_run_it_and_of_the_packages_to_copy_it(chain, tmp_path, capsys):
    main(["recipe", "copy", "halving", str(tmp_path / "mine")])
    for folder in (chain, tmp_path / "mine"):
        (folder / "step_1_more.py").write_text("1 / 0\n")
    own = dataclasses.replace(find_recipe(str(tmp_path / "mine")), package=None)

    main(["recipe", "run", "halving"])
    assert "run it by itself: `porting recipe copy halving DEST`, then change step_1_more.py" in capsys.readouterr().err

    with pytest.raises(PortingError, match="R003") as caught, report_failures_of(own, "step_1_more.py"):
        runpy.run_path(str(tmp_path / "mine" / "step_1_more.py"))
    assert caught.value.finding.help == (f"run it by itself: `python {tmp_path / 'mine' / 'step_1_more.py'}`",)


@pytest.mark.parametrize("count", ["0", "-3", "many"])
def test_the_number_of_steps_is_at_least_one(chain, count):
    with pytest.raises(SystemExit, match="2"):
        main(["recipe", "run", "halving", "--steps", count])


# -- check -----------------------------------------------------------------------------------------------------------

CHECKS = """
from porting.recipe_chain import equal_losses, reaches

NUM_STEPS = 3
CHECKS = (
    reaches(0, "last loss", at_most=0.4, measure=lambda step: step.train(3)[-1]),
    equal_losses(1, like=0),
)
"""


def test_check_has_a_line_for_each_check_and_fails_with_one_of_them(chain, capsys):
    (chain / "checks.py").write_text(CHECKS)
    (chain / "step_1_more.py").write_text("def train(num_steps):\n    return [2.0, 0.5, 1 / 3][:num_steps]\n")

    assert main(["recipe", "run", "halving", "--check"]) == 1

    output, errors = capsys.readouterr()
    assert re.sub(r"\d+\.\d s", "N s", output).splitlines() == [
        "ok     step 0: last loss at most 0.4: 0.3333 (N s)",
        "FAILED step 1: losses equal step 0's: 3 losses, largest relative difference 5.0e-01 in optimizer step 1 (N s)",
        "2 checks of halving: 1 FAILED",
    ]
    assert errors == ""


def test_check_with_a_step_has_its_checks_only(chain, capsys):
    (chain / "checks.py").write_text(CHECKS)

    assert main(["recipe", "run", "halving", "--check", "--step", "0"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "1 check of halving: it holds"


def test_a_step_without_a_check_is_not_said_to_hold(chain, capsys):
    (chain / "checks.py").write_text(CHECKS.replace("    equal_losses(1, like=0),\n", ""))

    assert main(["recipe", "run", "halving", "--check", "--step", "1"]) == 2
    assert "has no check for step 1" in capsys.readouterr().err


def test_check_as_json_has_the_same(chain, capsys):
    (chain / "checks.py").write_text(CHECKS)

    assert main(["recipe", "run", "halving", "--check", "--format", "json"]) == 1

    first, second = json.loads(capsys.readouterr().out)
    assert (first["step"], first["text"], first["is_met"], first["found"]) == (
        0,
        "last loss at most 0.4",
        True,
        "0.3333",
    )
    assert (second["step"], second["is_met"]) == (1, False)


def test_a_step_that_raises_fails_its_check_and_the_others_run(chain, capsys):
    (chain / "checks.py").write_text(CHECKS)
    (chain / "step_0_plain.py").write_text('def train(num_steps):\n    print("here")\n    return 1 / 0\n')

    assert main(["recipe", "run", "halving", "--check"]) == 1

    output, errors = capsys.readouterr()
    assert output.startswith("FAILED step 0: last loss at most 0.4: raised ZeroDivisionError: division by zero")
    assert output.endswith("2 checks of halving: 2 FAILED\n")
    assert errors.startswith("here\nTraceback")


def test_what_steps_print_is_not_shown_where_checks_hold(chain, capsys):
    (chain / "checks.py").write_text(CHECKS)
    (chain / "step_0_plain.py").write_text('def train(num_steps):\n    print("here")\n    return [0.1] * num_steps\n')

    main(["recipe", "run", "halving", "--check", "--step", "0"])

    assert "here" not in "".join(capsys.readouterr())


def test_a_terminal_is_told_what_is_being_checked(chain, capsys, monkeypatch):
    (chain / "checks.py").write_text(CHECKS)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    main(["recipe", "run", "halving", "--check", "--step", "0"])

    assert "step 0: last loss at most 0.4 ..." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "there is no `checks.py`"),
        ("", "`checks.py` has no table `CHECKS`"),
        ("CHECKS = (1,)", "`CHECKS` holds a int in the place of a check"),
        (
            "from porting.recipe_chain import equal_losses\nCHECKS = (equal_losses(4, like=0),)",
            "a check is for step 4, and the steps are 0, 1",
        ),
        (
            "from porting.recipe_chain import equal_losses\nCHECKS = (equal_losses(1, like=7),)",
            "a check of step 1 is like step 7, and the steps are 0, 1",
        ),
    ],
)
def test_a_recipe_without_right_checks_cannot_be_checked(chain, capsys, text, fault):
    if text is not None:
        (chain / "checks.py").write_text(text)

    assert main(["recipe", "run", "halving", "--check"]) == 2
    assert f"error[R004]: the recipe `halving` cannot be checked: {fault}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("CHECKS = (equal_looses(1),)", "NameError"),
        ("import no_such_module", "ModuleNotFoundError"),
        ("CHECKS = (", "SyntaxError"),
        ("raise SystemExit(0)", "SystemExit"),
        ("from halving import measures", "NameError"),
    ],
)
def test_checks_that_fail_themselves_are_a_finding_below_their_traceback(chain, capsys, text, fault):
    (chain / "measures.py").write_text("undefined\n")
    (chain / "checks.py").write_text(text)

    assert main(["recipe", "run", "halving", "--check"]) == 2

    errors = capsys.readouterr().err
    assert re.search(
        r"Traceback.*error\[R004\]: `checks.py` of the recipe `halving` raised " + fault, errors, re.DOTALL
    )


@pytest.mark.parametrize(
    ("text", "fault"), [("import sys\nsys.exit(0)", "SystemExit"), ("undefined", "NameError"), ("(", "SyntaxError")]
)
def test_a_step_that_fails_where_checks_import_it_is_named(chain, capsys, text, fault):
    (chain / "step_1_more.py").write_text(text)
    (chain / "checks.py").write_text(f"from halving import step_1_more\n{CHECKS}")

    assert main(["recipe", "run", "halving", "--check"]) == 2

    errors = capsys.readouterr().err
    assert "error[R003]: a step of the recipe failed" in errors
    assert f"= note: step 1 (`more`) raised {fault}" in errors


# -- folders in the place of names -----------------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path):
    """Copy the first recipe beside nothing else, and leave no module of the copy behind."""
    main(["recipe", "copy", "first_port", str(tmp_path / "mine")])
    return tmp_path / "mine"


def test_a_copy_can_be_shown_run_and_checked_by_its_path(copied, one_thread, capsys):
    (copied / "checks.py").write_text(
        "from porting.recipe_chain import equal_losses\nNUM_STEPS = 2\nCHECKS = (equal_losses(1, like=0),)\n"
    )
    before = list(sys.path)

    assert main(["recipe", "show", str(copied), "--diff"]) == 0
    assert main(["recipe", "run", str(copied), "--step", "0", "--steps", "2"]) == 0
    assert main(["recipe", "run", str(copied), "--check"]) == 0

    assert capsys.readouterr().out.endswith("1 check of mine: it holds\n")
    assert sys.path == before
    assert "step_0_plain" not in sys.modules


def test_two_copies_do_not_share_modules(copied, one_thread, tmp_path, capsys):
    main(["recipe", "copy", str(copied), str(tmp_path / "other")])
    step = tmp_path / "other" / "step_1_host_loop.py"
    step.write_text("def train(num_steps):\n    return [7.0] * num_steps\n")
    main(["recipe", "run", str(copied), "--step", "1", "--steps", "1"])
    capsys.readouterr()

    main(["recipe", "run", str(tmp_path / "other"), "--step", "1", "--steps", "1"])

    assert capsys.readouterr().out.split()[-1] == "7.000000"


def test_a_folder_without_steps_is_no_recipe(tmp_path, capsys):
    assert main(["recipe", "show", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"error[R001]: no recipe is in the folder `{tmp_path}`")


# -- pictures --------------------------------------------------------------------------------------------------------


def test_pictures_are_drawn_into_a_new_folder(chain, tmp_path, capsys):
    (chain / "pictures.py").write_text(
        'def draw(folder):\n    (folder / "a.png").write_text("")\n    return [folder / "a.png"]\n'
    )

    assert main(["recipe", "pictures", "halving", str(tmp_path / "drawn")]) == 0

    assert capsys.readouterr().out == f"{tmp_path / 'drawn' / 'a.png'}\n"
    assert main(["recipe", "pictures", "halving", str(tmp_path / "drawn")]) == 2
    assert capsys.readouterr().err.startswith("error[R002]")


def test_pictures_that_cannot_be_drawn_are_a_finding_and_nothing_is_left(chain, tmp_path, capsys):
    (chain / "pictures.py").write_text("def draw(folder):\n    return undefined\n")

    assert main(["recipe", "pictures", "halving", str(tmp_path / "drawn")]) == 2

    errors = capsys.readouterr().err
    assert re.search(r"Traceback.*error\[R004\]: `pictures.py` of the recipe `halving` raised", errors, re.DOTALL)
    assert not (tmp_path / "drawn").exists()


def test_a_recipe_without_pictures_says_so(chain, tmp_path, capsys):
    assert main(["recipe", "pictures", "halving", str(tmp_path / "drawn")]) == 2
    assert "error[R004]: the recipe `halving` has no program `pictures.py`" in capsys.readouterr().err


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

    assert main(["recipe", "copy", "halving", str(destination)]) == 2

    assert capsys.readouterr().err.startswith("error[R002]: the destination exists already")
    assert not destination.is_dir() or list(destination.iterdir()) == []


@pytest.mark.parametrize("words", [["copy", "halving"], ["new"]])
def test_a_destination_that_cannot_be_written_is_a_finding(chain, tmp_path, capsys, words):
    (tmp_path / "file").write_text("")
    destination = str(tmp_path / "file" / "mine")

    assert main(["recipe", *words, destination]) == 2
    assert capsys.readouterr().err.startswith(f"error[R002]: the destination `{destination}` cannot be written")


def test_a_full_disk_ends_a_copy_with_a_finding(chain, tmp_path, capsys, monkeypatch):
    def fail(*_paths):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", fail)

    assert main(["recipe", "copy", str(chain), str(tmp_path / "mine")]) == 2
    assert "= note: No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()


def test_a_copy_that_fails_leaves_nothing_behind(chain, tmp_path, monkeypatch):
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.setattr("shutil.copyfile", lambda *_paths: 1 / 0)

    with pytest.raises(ZeroDivisionError):
        main(["recipe", "copy", "halving", str(folder / "mine")])

    assert list(folder.iterdir()) == []


def test_a_copy_has_all_that_a_reader_needs_and_nothing_of_the_package(chain, tmp_path):
    (chain / "pictures").mkdir()
    (chain / "pictures" / "a.png").write_text("")
    (chain / "planes.py").write_text("WIDTH = 3\n")
    (chain / "__pycache__").mkdir()
    (chain / "__pycache__" / "planes.pyc").write_text("")
    (chain / "step_1_more.py").write_text("from porting.recipes.halving.planes import WIDTH\n")

    main(["recipe", "copy", "halving", str(tmp_path / "mine")])

    files = sorted(
        str(path.relative_to(tmp_path / "mine")) for path in (tmp_path / "mine").rglob("*") if path.is_file()
    )
    assert files == ["README.md", "pictures/a.png", "planes.py", "step_0_plain.py", "step_1_more.py"]
    assert (tmp_path / "mine" / "step_1_more.py").read_text() == "from planes import WIDTH\n"


# -- several recipes ---------------------------------------------------------------------------------------------------


@pytest.fixture
def swept(monkeypatch):
    """Let each recipe of a sweep have one check, which fails for the one called `ptb_rnn`; list their commands."""
    commands = []

    def run(case, **_told):
        commands.append(case.words)
        checks = [{"step": 2, "found": "0.1 apart", "is_met": "ptb_rnn" not in case.words}]
        status = 0 if checks[0]["is_met"] else 1
        return case.record("done", exit_status=status, output=json.dumps(checks))

    monkeypatch.setattr("porting.cli.swept_commands.run_command", run)
    return commands


def test_several_recipes_are_checked_by_a_command_each(swept, capsys):
    status = main(["recipe", "run", "first_port", "ptb_rnn", "--check", "--on", "local:2"])

    assert status == 1
    assert sorted(swept) == [("recipe", "run", name, "--check", "--format=json") for name in ("first_port", "ptb_rnn")]
    assert capsys.readouterr().out.splitlines() == [
        "ok      first_port  0 s",
        "FAILED  ptb_rnn     0 s  step 2: 0.1 apart",
        "of 2: 1 ok, 1 FAILED",
    ]


def test_all_recipes_are_those_that_are_listed(swept, tmp_path):
    main(["recipe", "run", "--all", "--check", "--out", str(tmp_path)])

    assert [words[2] for words in swept] == [recipe.name for recipe in read_recipes()]
    assert (tmp_path / "sweep.json").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name a recipe, or ask for `--all`"),
        (["first_port", "ptb_rnn"], "a sweep checks whole recipes"),
        (["--all", "--check", "--step=1"], "a sweep checks whole recipes"),
        (["--all", "first_port", "--check"], "a sweep checks whole recipes"),
        (["--all", "--check", "--resume"], "--resume goes on with the folder of --out"),
        (["first_prt", "ptb_rnn", "--check"], "did you mean `first_port`?"),
    ],
)
def test_what_is_no_sweep_of_recipes_is_refused(swept, capsys, words, said):
    assert main(["recipe", "run", *words]) == 2
    assert said in capsys.readouterr().err
    assert swept == []
