"""The command chooses a verb, loads no more than it needs, and ends with a meaningful status."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys

import pytest

import porting
from porting.cli import main as command
from porting.cli.main import VERBS, Verb, main
from porting.diagnostics import Finding, PortingError, render


@pytest.fixture
def verb(monkeypatch):
    """Make a verb `try` that calls the function it is given, and return the way to give it one."""

    def give(function):
        module = type(sys)("porting.cli.try_verb")
        module.add_arguments = lambda parser: None
        module.run = function
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(command, "VERBS", {**VERBS, "try": Verb(module.__name__, "try something")})

    return give


def run_program(program: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, **options)


def fail(_arguments):
    raise PortingError(Finding("D001", notes="poptorch is not installed"))


def interrupt(_arguments):
    raise KeyboardInterrupt


def test_without_a_verb_the_help_is_printed(capsys):
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("usage: porting ")


def test_help_names_every_verb(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])

    assert set(VERBS) <= set(capsys.readouterr().out.split())


@pytest.mark.parametrize("words", [(), *((verb,) for verb in VERBS)], ids=" ".join)
def test_help_fits_a_terminal(words, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])

    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize(("option", "told"), [("--shwo", "--shwo"), ("--fromat", "--fromat: did you mean `--format`?")])
def test_an_option_is_near_by_its_letters_and_not_by_its_dashes(option, told, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["doctor", option, "x"])

    assert capsys.readouterr().err.endswith(f"there is no option {told}\n")


def test_the_session_in_the_help_is_what_happens(capsys):
    main([])
    session = re.search(r"a session:\n(.*?)\n\n", capsys.readouterr().out, re.DOTALL)[1]

    for step in re.split(r"^  \$ porting ", session, flags=re.MULTILINE)[1:]:
        line, *shown = step.splitlines()
        assert main(shlex.split(line)) == 0
        output = capsys.readouterr().out
        assert [text for text in shown if text.strip() != "..." and text[2:] not in output] == []


def test_version_is_the_packages(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])

    assert capsys.readouterr().out == f"porting {porting.__version__}\n"


def test_an_unknown_verb_is_wrong_usage(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["fly"])

    assert "there is no verb fly: use one of backend, bench, " in capsys.readouterr().err


def test_a_verb_that_was_mistyped_is_told(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--format", "json", "recip", "list"])

    assert "there is no verb recip: did you mean `recipe`?" in capsys.readouterr().err


def test_the_status_of_a_verb_is_the_status_of_the_command(verb):
    verb(lambda _arguments: 7)

    assert main(["try"]) == 7


def test_a_finding_that_stops_a_verb_is_shown_and_ends_with_two(verb, capsys):
    verb(fail)

    assert main(["try"]) == 2
    assert capsys.readouterr() == ("", render(Finding("D001", notes="poptorch is not installed")) + "\n")


@pytest.mark.parametrize("words", [["--format", "json", "try"], ["try", "--format", "json"]], ids=" ".join)
def test_the_format_may_be_said_before_or_after_the_verb(verb, capsys, words):
    verb(fail)

    main(words)

    assert json.loads(capsys.readouterr().err)["code"] == "D001"


def test_github_gets_an_annotation(verb, capsys):
    verb(fail)

    main(["try", "--format", "github"])

    assert capsys.readouterr().err.startswith("::error title=D001 no-ipu-found::")


def test_an_unknown_format_is_wrong_usage():
    with pytest.raises(SystemExit, match="2"):
        main(["--format", "xml", "explain", "L001"])


def test_an_interruption_ends_with_130_and_no_traceback(verb, capsys):
    verb(interrupt)

    assert main(["try"]) == 130
    assert capsys.readouterr() == ("", "interrupted\n")


def test_a_fault_of_our_own_is_not_hidden(verb):
    verb(lambda _arguments: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        main(["try"])


def test_a_reader_that_stops_early_sees_no_traceback():
    program = "import sys; from porting.cli.main import main; sys.exit(main(['explain', '--list']))"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()

    _nothing, errors = process.communicate()

    assert (process.returncode, errors) == (141, b"")


def test_the_command_can_be_run_as_a_module():
    result = subprocess.run([sys.executable, "-m", "porting", "--version"], capture_output=True, text=True)

    assert (result.returncode, result.stdout) == (0, f"porting {porting.__version__}\n")


@pytest.mark.parametrize("words", [["--help"], ["explain", "L001"], ["explain", "--list"], ["--version"]], ids=" ".join)
def test_help_and_explain_load_neither_torch_nor_numpy(words):
    program = (
        "import sys\nfrom porting.cli.main import main\n"
        f"try:\n    main({words})\nexcept SystemExit:\n    pass\n"
        "print(*({'torch', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    )

    result = run_program(program)

    assert (result.returncode, result.stderr) == (0, "\n")


def test_only_the_chosen_verbs_module_is_loaded():
    program = "import sys; from porting.cli.main import main; main(['explain', 'L001'])\nprint(*sys.modules)"

    loaded = run_program(program).stdout.split()

    assert [verb.module in loaded for verb in VERBS.values()] == [name == "explain" for name in VERBS]
