"""Accelerators and their systems as data, of this package and of users."""

from __future__ import annotations

import copy
import json

import pytest

from porting.diagnostics import OptionError
from porting.machines import DEFAULT, collect_chips, find_chip, find_machine, read_machines

OWN = {
    "name": "Wafer",
    "chip": {"tiles": 64, "tile_memory": "1 MiB", "float16": "90 TFLOP/s", "float32": "45 TFLOP/s"},
    "links": {"between_chips": "100 GB/s", "to_host": "16 GB/s", "streaming_memory": "8 GB/s"},
    "systems": {"wafer-box": {"chips": 8}, "wafer-rack": {"chips": 32}},
}


@pytest.fixture
def own_file(tmp_path):
    """Give a function that writes a user's description of a machine, with changes by dotted names."""

    def write(**changes):
        description = copy.deepcopy(OWN)
        for name, value in changes.items():
            *folders, last = name.split("__")
            place = description
            for folder in folders:
                place = place[folder]
            if value is None:
                del place[last]
            else:
                place[last] = value
        path = tmp_path / "wafer.json"
        path.write_text(json.dumps(description))
        return str(path)

    return write


def test_the_memory_is_that_of_the_vendors_tables():
    assert find_chip("gc2").memory_bytes == 318_767_104
    assert find_chip("gc200").memory_bytes == find_chip("bow").memory_bytes == 940_572_672


@pytest.mark.parametrize("chip", collect_chips().values(), ids=list(collect_chips()))
def test_every_figure_has_a_source(chip):
    named = {"tiles", "tile_memory", "float16", "float32", "program_memory", "between_chips", "to_host"}

    assert named <= set(chip.sources)
    assert all(chip.sources.values())


def test_a_chip_is_found_in_any_case():
    assert find_chip(" Bow ") is find_machine("BOW-Pod16").chip is find_chip(DEFAULT)


@pytest.mark.parametrize(("name", "chips"), [("bow-pod4", 4), ("bow-pod16", 16), ("pod64", 64), ("c2", 2)])
def test_systems_have_their_chips(name, chips):
    assert find_machine(name).num_chips == chips


def test_every_machine_is_listed_by_its_own_name():
    assert all(machine.name == name for name, machine in read_machines().items())


def test_an_unknown_chip_is_refused_with_the_nearest():
    with pytest.raises(OptionError, match="did you mean `gc200`"):
        find_chip("gc20")


def test_an_unknown_machine_is_refused_with_the_nearest():
    with pytest.raises(OptionError, match="did you mean `bow-pod16`"):
        find_machine("bow-pod15")


def test_a_user_describes_another_accelerator_in_one_file(own_file):
    machine = find_machine(f"{own_file()}:wafer-rack")

    assert (machine.num_chips, machine.chip.name, machine.chip.memory_bytes) == (32, "wafer", 64 << 20)
    assert (machine.links.chip_rate, machine.links.host_rate) == (100e9, 16e9)


def test_a_file_with_several_systems_needs_the_name_of_one(own_file):
    with pytest.raises(OptionError, match="use one of wafer-box, wafer-rack"):
        find_machine(own_file())


def test_a_file_with_one_system_needs_no_name(own_file):
    assert find_machine(own_file(systems={"only": {"chips": 3}})).num_chips == 3


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"chip__tile_memory": "1 GB/s"}, "must be a number with one of"),
        ({"chip__tile_memory": "1024"}, "must be a number with one of"),
        ({"chip__tile_memory": "1 B"}, "look at its unit"),
        ({"chip__float16": "90 GB/s"}, "must be a number with one of"),
        ({"links__between_chips": "100 Gb/s"}, "must be a number with one of"),
        ({"links__between_chips": "1 KB/s"}, "look at its unit"),
        ({"chip__tiles": 0}, "`chip.tiles` must be at least 1"),
        ({"chip__tiles": "many"}, "a whole number"),
        ({"systems__wafer-box__chips": 0}, "must be at least 1"),
        ({"systems": {}}, "names no system"),
        ({"chip": None}, "`chip` is missing"),
        ({"colour": "red"}, "`colour` is not known"),
    ],
)
def test_a_file_with_a_fault_is_refused_with_the_place(own_file, changes, fault):
    with pytest.raises(OptionError, match="does not describe a machine") as raised:
        find_machine(f"{own_file(**changes)}:wafer-box")

    assert raised.value.finding.code == "M003"
    assert fault in str(raised.value)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(OptionError, match="it cannot be read"):
        find_machine(str(tmp_path / "none.json"))
