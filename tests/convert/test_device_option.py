"""Every program gets the choice of its device, and keeps its own command line."""

from __future__ import annotations

import os
import sys

import pytest

from tests.convert.conversions import LOOP, convert_text

_PARSED = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"


@pytest.fixture
def choose(monkeypatch):
    """Return a function that runs a converted program up to its model, and says which device it chose."""

    def run_beginning(text, *arguments):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["train.py", *arguments])
            patch.setattr(os, "environ", dict(os.environ))
            try:
                exec(compile(text.partition("model = ")[0], "train.py", "exec"), {})
            except SystemExit as error:
                return error.code
            return os.environ.get("PORT_DEVICE")

    return run_beginning


@pytest.mark.parametrize(
    "own",
    [
        "",
        _PARSED + "args = parser.parse_args()\n",
        _PARSED + "def read():\n    return parser.parse_args()\nargs = read()\n",
        _PARSED + "import sys\nargs = parser.parse_args(sys.argv[1:])\n",
        _PARSED + "def check(args):\n    assert args.lr != 7\n    return args\nargs = check(parser.parse_args())\n",
        _PARSED + "def check(args):\n    assert args.lr != 7\ncheck(parser.parse_args())\n",
        _PARSED
        + "parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])\nargs = parser.parse_args()\n"
        + "assert args.device == 'cpu'\n",
        _PARSED + "parser.add_argument('--device', type=int, default=0)\nargs = parser.parse_args()\n",
        "import sys\nassert sys.argv[1:] in ([], ['--lr', '1'])\n",
    ],
)
def test_the_device_is_chosen_and_the_rest_of_the_command_line_is_the_programs(tmp_path, choose, own):
    text, made = convert_text(tmp_path, own + LOOP)
    assert not made.left
    words = made.option.make_arguments("sim")
    assert choose(text) is None
    assert choose(text, *words) == "sim"
    assert choose(text, words[0], "tpu") == 2
    if own:
        assert choose(text, "--lr", "1", *words) == "sim"


_OF_LAUNCHER = """\
import os
import torch.distributed as dist
is_one_of_several = {test}
if is_one_of_several:
    dist.init_process_group("gloo")
"""


@pytest.mark.parametrize(
    "test", ["int(os.environ.get('RANK', -1)) != -1", "'WORLD_SIZE' in os.environ", "os.getenv('RANK') is not None"]
)
def test_a_program_that_asks_whether_it_was_launched_is_told_nothing(tmp_path, test):
    text, _made = convert_text(tmp_path, _OF_LAUNCHER.format(test=test) + LOOP)
    assert "RANK" not in text.partition("is_one_of_several")[0]


def test_a_program_that_is_one_of_several_in_any_case_is_told_so(tmp_path):
    text, _made = convert_text(tmp_path, _OF_LAUNCHER.format(test="os.environ['RANK']") + LOOP)
    assert "RANK" in text.partition("is_one_of_several")[0]


_CLICK = """\
import click
@click.command()
@click.option("--device", default="cuda")
def train(device):
    pass
"""


def test_a_device_of_another_librarys_command_line_stays_the_programs_own(tmp_path):
    text, made = convert_text(tmp_path, _CLICK + LOOP)

    assert '_device_parser.add_argument("--accelerator", dest="device", choices=' in text
    assert made.option.make_arguments("sim") == ("--accelerator", "sim")


def test_the_option_is_in_the_help_of_a_program_that_another_library_answers_for(tmp_path, choose, capsys):
    text, _made = convert_text(tmp_path, "import click\n" + LOOP)

    choose(text.replace("import click\n", ""), "--help")

    assert "--device {ipu,sim,cpu,cuda}" in capsys.readouterr().out


def test_an_empty_script_has_no_option_and_nothing_to_convert(tmp_path):
    text, made = convert_text(tmp_path, "")

    assert text == ""
    assert [one.reason for one in made.left] == ["no call of a model with gradients was found"]
