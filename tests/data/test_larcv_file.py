"""Whatever is wrong in a larcv file is an error that names the data set and the event."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest
import torch

from porting.data.events import make_events
from porting.data.larcv import LarcvEvents, write_larcv
from porting.diagnostics import PortingError

h5py = pytest.importorskip("h5py", reason="the extra `recipes` is not installed")

WIRES = "Data/sparse2d_sbndwire_group"
LABELS = "Data/sparse2d_sbnd_cosmicseg_group"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "events.h5"
    write_larcv(path, zip(*make_events(2, height=16, width=24)))
    return path


def change(path, dataset, row, field, value):
    with h5py.File(path, "r+") as file:
        rows = file[dataset][:]
        rows[field][row] = value
        file[dataset][:] = rows


def read_all(path):
    events = LarcvEvents(path)
    return events.__getitems__(range(len(events)))


def damage(path):
    with pytest.raises(PortingError) as caught:
        read_all(path)
    assert caught.value.code == "F001"
    assert caught.value.finding.message == f"`{path}` cannot be read"
    return caught.value.finding.notes[0]


@pytest.mark.parametrize(
    ("dataset", "row", "field", "value", "found"),
    [
        (f"{WIRES}/voxels", 0, "id", 16 * 24, "event 0, plane 0: pixel 384 of an image of 24 x 16"),
        (f"{WIRES}/voxels", 0, "id", 2**64 - 1, "event 0, plane 0: pixel 18446744073709551615 of an image"),
        (f"{WIRES}/voxels", -1, "value", np.nan, "event 1, plane 2: a charge that is not finite"),
        (f"{WIRES}/voxels", -1, "value", np.inf, "event 1, plane 2: a charge that is not finite"),
        (f"{LABELS}/voxels", -1, "value", 3.0, "event 1, plane 2: a label other than 0 to 2"),
        (f"{LABELS}/voxels", 0, "value", 0.5, "event 0, plane 0: a label other than 0 to 2"),
        (f"{LABELS}/voxels", 0, "value", np.nan, "event 0, plane 0: a label other than 0 to 2"),
        (f"{WIRES}/voxel_extents", 4, "N", 10**6, "event 1, plane 1: 1000000 pixels from pixel"),
        (f"{WIRES}/voxel_extents", 3, "first", 2**63, "event 1, plane 0:"),
        (f"{WIRES}/voxel_extents", 1, "N", 1, "the images do not cover the"),
        (f"{WIRES}/voxel_extents", 1, "ID", 0, "event 0: planes [0, 0, 2]"),
        (f"{WIRES}/extents", 1, "N", 2, "event 1: 2 images from image 3 on"),
        (f"{WIRES}/extents", 1, "first", 0, "event 1: 3 images from image 0 on"),
        (f"{WIRES}/image_meta", 1, "number_of_voxels", (16, 24), "images of 2 sizes: (16, 24), (24, 16)"),
        (f"{WIRES}/image_meta", slice(None), "number_of_voxels", (0, 16), "images of 0 x 16 pixels"),
        (f"{WIRES}/image_meta", slice(None), "number_of_voxels", (2**63, 16), "x 16 pixels"),
        (f"{LABELS}/image_meta", slice(None), "number_of_voxels", (32, 16), "images of another size than those of"),
    ],
)
def test_numbers_that_cannot_be_right_are_named(file, dataset, row, field, value, found):
    change(file, dataset, row, field, value)

    note = damage(file)

    assert note.startswith(f"dataset `{dataset}`")
    assert found in note


def test_a_pixel_that_is_there_twice_is_named(file):
    with h5py.File(file, "r") as opened:
        second = opened[f"{WIRES}/voxels"][1]["id"]
    change(file, f"{WIRES}/voxels", 0, "id", second)

    assert damage(file) == f"dataset `{WIRES}/voxels`, event 0, plane 0: a pixel that is there twice"


def test_labels_of_other_pixels_are_named(file):
    with h5py.File(file, "r+") as opened:
        voxels = opened[f"{LABELS}/voxels"][:]
        count = opened[f"{LABELS}/voxel_extents"][0]["N"]
        voxels["id"][:count] = np.arange(count)
        opened[f"{LABELS}/voxels"][:] = voxels

    assert damage(file) == f"dataset `{LABELS}/voxels`, event 0, plane 0: other pixels than those with charge"


@pytest.mark.parametrize("name", [f"{WIRES}/voxels", f"{LABELS}/image_meta", f"{WIRES}/extents", LABELS])
def test_a_data_set_that_is_missing_is_named(file, name):
    with h5py.File(file, "r+") as opened:
        del opened[name]

    assert f"dataset `{name}" in damage(file)


@pytest.mark.parametrize(
    "replacement", [np.zeros(3), np.zeros((3, 2), dtype=[("id", "<u8"), ("value", "<f4")]), np.float64(1)]
)
def test_a_data_set_of_another_type_or_shape_is_named(file, replacement):
    with h5py.File(file, "r+") as opened:
        del opened[f"{WIRES}/voxels"]
        opened[f"{WIRES}/voxels"] = replacement

    assert f"dataset `{WIRES}/voxels`: rows of " in damage(file)


def test_a_group_in_the_place_of_a_data_set_is_named(file):
    with h5py.File(file, "r+") as opened:
        del opened[f"{WIRES}/voxels"]
        opened.create_group(f"{WIRES}/voxels")

    assert f"dataset `{WIRES}/voxels`: rows of None" in damage(file)


def test_a_length_that_no_data_stand_behind_is_not_filled_with_zeros(file):
    with h5py.File(file, "r+") as opened:
        opened[f"{WIRES}/voxels"].resize((10**12,))

    assert f"dataset `{WIRES}/voxels`: 1000000000000 rows, and " in damage(file)


def test_labels_of_more_events_than_there_are_charges_are_named(file, tmp_path):
    write_larcv(tmp_path / "one.h5", zip(*make_events(1, height=16, width=24)))
    with h5py.File(file, "r+") as opened, h5py.File(tmp_path / "one.h5", "r") as other:
        del opened[LABELS]
        other.copy(LABELS, opened["Data"])

    assert damage(file) == f"dataset `{LABELS}/extents`: another number of events than the wires have"


@pytest.mark.parametrize("content", [b"", b"run,event\n1,2\n", b"\x89HDF\r\n\x1a\n", bytes(5000)])
def test_a_file_of_another_kind_is_named(tmp_path, content):
    (tmp_path / "events.h5").write_bytes(content)

    assert damage(tmp_path / "events.h5").startswith("the HDF5 header: ")


@pytest.mark.parametrize("part", [0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999])
def test_a_file_that_is_cut_off_is_named(file, part):
    content = file.read_bytes()
    file.write_bytes(content[: int(part * len(content))])

    assert damage(file).startswith("the HDF5 header: ")


def test_flipped_bits_are_found_or_change_nothing(file):
    content, expected = file.read_bytes(), read_all(file)
    chance, outcomes = random.Random(0), []

    for _ in range(60):
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        file.write_bytes(changed)
        try:
            found = read_all(file)
        except PortingError as error:
            outcomes.append(error.code)
        else:
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
            outcomes.append("the same")

    assert set(outcomes) == {"F001", "the same"}


def test_a_file_that_is_not_there_is_f002(tmp_path):
    with pytest.raises(PortingError, match="F002"):
        LarcvEvents(tmp_path / "events.h5")


def test_without_h5py_the_extra_is_named(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)

    with pytest.raises(PortingError, match="X001") as caught:
        LarcvEvents(file)

    assert caught.value.finding.help == ('pip install "ipu-porting[recipes]"',)
