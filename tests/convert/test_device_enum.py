"""An enum of devices has a member for the IPU, and the program asks by its own words."""

from __future__ import annotations

import pytest

from tests.convert.conversions import LOOP, convert_files


def convert_enum(folder, members, value="GPU"):
    text = "from enum import Enum\n\nclass Mode(Enum):\n" + "".join(f"    {one}\n" for one in members)
    script = (
        "import argparse\nfrom modes import Mode\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--compute-mode', type=Mode.__getitem__, default=Mode.CPU)\n"
        "args = parser.parse_args()\n"
        f"place = 'cuda' if args.compute_mode == Mode.{value} else 'cpu'\n"
    )
    made = convert_files(folder, {"train.py": script + LOOP, "modes.py": text}, style="idiomatic")
    return made, made.changed.get("modes.py", text.encode()).decode(), made.changed["train.py"].decode()


@pytest.mark.parametrize(
    ("members", "added"),
    [
        (["CPU = 0", "GPU = 1"], "    IPU = 2\n"),
        (["CPU   = 0", "GPU   = 7", "XPU   = 3"], "    IPU   = 8\n"),
        (["CPU = 'cpu'", "GPU = 'cuda'"], '    IPU = "ipu"\n'),
        (["CPU = auto()", "GPU = auto()"], "    IPU = auto()\n"),
    ],
)
def test_the_member_has_the_next_value_and_is_written_as_the_last_one(tmp_path, members, added):
    _made, modes, _script = convert_enum(tmp_path, members)
    assert modes.endswith(added)


def test_a_member_that_is_there_is_not_added_again(tmp_path):
    made, modes, script = convert_enum(tmp_path, ["CPU = 0", "GPU = 1", "IPU = 5"])
    assert modes.count("IPU") == 1
    assert "if args.compute_mode == Mode.IPU:" in script
    assert made.option.make_arguments("sim") == ("--compute-mode", "IPU")


def test_an_enum_of_other_things_leaves_the_choice_to_the_option(tmp_path):
    made, modes, script = convert_enum(tmp_path, ["CPU = 0", "DISK = 1"], value="DISK")
    assert "IPU" not in modes
    assert made.option.make_arguments("sim") == ("--device", "sim")
    assert '"PORT_DEVICE" in os.environ' in script


def test_members_that_are_no_constants_leave_the_choice_to_the_option(tmp_path):
    made, _modes, _script = convert_enum(tmp_path, ["CPU = object()", "GPU = object()"])
    assert made.option.flag == "--device"
