"""Every program gets the choice of its device, and keeps its own command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.convert.conversions import LOOP, convert_text

_PARSED = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr', type=float)\n"
_PRINT = 'import os\nprint(os.environ.get("PORT_DEVICE"))\n'


def run_beginning(tmp_path, text, *arguments):
    """Run a converted program up to its model, and return what it says of the device."""
    head = text.partition("model = ")[0] + _PRINT
    path = tmp_path / "head.py"
    path.write_text("\n".join(line for line in head.split("\n") if "torch" not in line))
    return subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "own",
    [
        "",
        _PARSED + "args = parser.parse_args()\n",
        _PARSED + "def read():\n    return parser.parse_args()\nargs = read()\n",
        _PARSED
        + "parser.add_argument('--device', default='cpu', choices=['cpu', 'cuda'])\nargs = parser.parse_args()\n"
        + "assert args.device == 'cpu'\n",
        _PARSED + "parser.add_argument('--device', type=int, default=0)\nargs = parser.parse_args()\n",
        "import sys\nassert sys.argv[1:] in ([], ['--lr', '1'])\n",
    ],
)
def test_the_device_is_chosen_and_the_rest_of_the_command_line_is_the_programs(tmp_path, own):
    text, made = convert_text(tmp_path, own + LOOP)
    assert not made.left
    words = made.option.make_arguments("sim")
    assert run_beginning(tmp_path, text).stdout == "None\n"
    assert run_beginning(tmp_path, text, *words).stdout == "sim\n"
    assert run_beginning(tmp_path, text, words[0], "tpu").returncode == 2
    if own:
        assert run_beginning(tmp_path, text, "--lr", "1", *words).stdout == "sim\n"
