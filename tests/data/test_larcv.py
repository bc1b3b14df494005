"""larcv's files: the real one has the published numbers, and what was written is read again."""

from __future__ import annotations

import pickle
import random
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from porting.data.events import make_events
from porting.data.larcv import LarcvEvents, write_larcv
from porting.diagnostics import PortingError

h5py = pytest.importorskip("h5py", reason="the extra `recipes` is not installed")

WIRES = "Data/sparse2d_sbndwire_group"


@pytest.fixture(scope="module")
def real_file(data_folder):
    path = data_folder / "cosmic_tagging_light.h5"
    if not path.exists():
        pytest.skip(f"no real data: {path} does not exist")
    return path


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "events.h5"
    write_larcv(path, zip(*make_events(3, height=16, width=24)))
    return path


# -- the real file -----------------------------------------------------------------------------------------------------


def test_the_real_file_has_the_numbers_that_were_measured(real_file):
    events = LarcvEvents(real_file)
    hits = [plane for event in range(len(events)) for plane in events.file.read_event(event)]
    charges = np.concatenate([plane.charges for plane in hits])

    assert len(events) == 5
    assert (events.file.height, events.file.width) == (1280, 2048)
    assert len(charges) == 276_764
    assert np.bincount(np.concatenate([plane.labels for plane in hits])).tolist() == [149_099, 103_664, 24_001]
    assert [min(len(plane.rows) for plane in hits), max(len(plane.rows) for plane in hits)] == [3_066, 26_961]
    assert charges.min() == pytest.approx(5.0, abs=1e-5)
    assert charges.max() == pytest.approx(2772, abs=0.5)
    assert np.median(charges) == pytest.approx(9.0, abs=0.05)


def test_an_event_of_the_real_file_has_its_charges_and_labels_in_two_images(real_file):
    events = LarcvEvents(real_file)
    image, labels = events[0]

    assert image.shape == labels.shape == (3, 1280, 2048)
    assert [(plane > 0).sum().item() for plane in image] == [len(plane.rows) for plane in events.file.read_event(0)]
    assert not labels[image == 0].any()


def test_tracks_of_the_real_file_hold_together(real_file):
    """A pixel's neighbours on a track are the next tick and the next wire, in the image as well."""
    image, labels = LarcvEvents(real_file)[0]
    is_track = labels > 0

    def share_with_neighbour(shift, dim):
        return (is_track & is_track.roll(shift, dim)).sum() / is_track.sum()

    assert share_with_neighbour(1, 1) > 0.5
    assert share_with_neighbour(1, 2) > 0.5


def test_the_real_file_halved_is_the_full_one_pooled(real_file):
    full, full_labels = LarcvEvents(real_file)[4]

    image, labels = LarcvEvents(real_file, downsample=2)[4]

    torch.testing.assert_close(image, torch.nn.functional.avg_pool2d(full, 4), rtol=1e-5, atol=1e-4)
    assert torch.equal(labels.float(), torch.nn.functional.max_pool2d(full_labels.float(), 4))


# -- round trips -------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    st.integers(0, 2**32),
    st.integers(0, 3),
    st.tuples(st.integers(1, 9), st.integers(1, 9)),
    st.sampled_from([0.0, 0.2, 1.0]),
)
def test_what_was_written_is_read(tmp_path_factory, seed, num_events, size, occupancy):
    path = tmp_path_factory.mktemp("larcv") / "events.h5"
    generator = torch.Generator().manual_seed(seed)
    shape = (num_events, 3, *size)
    images = torch.randn(shape, generator=generator) * (torch.rand(shape, generator=generator) < occupancy)
    labels = torch.randint(3, shape, generator=generator)

    write_larcv(path, zip(images, labels))
    events = LarcvEvents(path)

    assert len(events) == num_events
    for event in range(num_events):
        assert torch.equal(events[event][0], images[event])
        assert torch.equal(events[event][1], labels[event])


def test_a_file_that_was_written_has_the_layout_of_the_real_one(real_file, file):
    with h5py.File(real_file, "r") as real, h5py.File(file, "r") as written:
        for group in (WIRES, "Data/sparse2d_sbnd_cosmicseg_group"):
            for name in ("extents", "image_meta", "voxel_extents", "voxels"):
                assert written[f"{group}/{name}"].dtype == real[f"{group}/{name}"].dtype
                assert written[f"{group}/{name}"].chunks == real[f"{group}/{name}"].chunks
        assert written["Events/event_id"].dtype == real["Events/event_id"].dtype


def test_pixels_may_be_listed_in_any_order_and_planes_too(file):
    expected = [LarcvEvents(file)[event] for event in range(3)]
    with h5py.File(file, "r+") as opened:
        for group in (WIRES, "Data/sparse2d_sbnd_cosmicseg_group"):
            extents = opened[f"{group}/voxel_extents"][:]
            first, count, _plane = extents[0]
            voxels = opened[f"{group}/voxels"][:]
            voxels[first : first + count] = voxels[first : first + count][::-1]
            opened[f"{group}/voxels"][:] = voxels
            opened[f"{group}/voxel_extents"][:] = np.concatenate([extents[:3][::-1], extents[3:]])

    found = LarcvEvents(file)

    for event in range(3):
        torch.testing.assert_close(found[event], expected[event], rtol=0, atol=0)


@pytest.mark.parametrize("size", [(10, 20), (20, 30), (16, 24), (32, 8)])
def test_images_are_padded_or_cropped_around_their_centre(file, size):
    image, labels = LarcvEvents(file)[1]

    fitted, fitted_labels = LarcvEvents(file, size=size)[1]

    # torch's padding of a negative number of pixels crops
    rows, columns = size[0] - 16, size[1] - 24
    padding = (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
    assert torch.equal(fitted, torch.nn.functional.pad(image, padding))
    assert torch.equal(fitted_labels, torch.nn.functional.pad(labels, padding))


def test_workers_open_the_file_for_themselves(file):
    events = LarcvEvents(file)
    expected = [events[event][0] for event in range(3)]

    assert torch.equal(pickle.loads(pickle.dumps(events))[1][0], expected[1])
    loader = torch.utils.data.DataLoader(events, batch_size=3, num_workers=1)
    ((images, _labels),) = loader
    assert torch.equal(images, torch.stack(expected))


def test_several_events_are_given_at_once(file):
    events = LarcvEvents(file)

    assert [image.sum() for image, _ in events.__getitems__([2, 0])] == [events[2][0].sum(), events[0][0].sum()]
    assert torch.equal(events[-1][0], events[2][0])
    with pytest.raises(IndexError, match="event 3 of 3"):
        events[3]


def test_a_file_that_cannot_be_written_leaves_the_old_one(file):
    before = file.read_bytes()
    image, labels = torch.zeros(3, 4, 4), torch.full((3, 4, 4), 3)

    with pytest.raises(ValueError, match="labels are 0 to 2"):
        write_larcv(file, [(image, labels)])

    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([(torch.zeros(3, 4, 4), torch.zeros(3, 4, 5))], "and have shapes"),
        ([(torch.zeros(2, 4, 4), torch.zeros(2, 4, 4))], "are 3 planes"),
        ([(torch.full((3, 2, 2), float("nan")), torch.zeros(3, 2, 2))], "not finite"),
        ([(torch.zeros(3, 4, 4),) * 2, (torch.zeros(3, 4, 8),) * 2], "events of one file have one size"),
    ],
)
def test_events_that_no_file_can_hold_are_refused(tmp_path, events, message):
    with pytest.raises(ValueError, match=message):
        write_larcv(tmp_path / "events.h5", events)


def test_images_that_cannot_be_halved_so_often_are_refused(file):
    with pytest.raises(ValueError, match="16 x 24 pixels cannot be halved 4 times"):
        LarcvEvents(file, downsample=4)


LABELS = "Data/sparse2d_sbnd_cosmicseg_group"


@pytest.fixture
def two_events(tmp_path):
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
def test_numbers_that_cannot_be_right_are_named(two_events, dataset, row, field, value, found):
    change(two_events, dataset, row, field, value)

    note = damage(two_events)

    assert note.startswith(f"dataset `{dataset}`")
    assert found in note


def test_a_pixel_that_is_there_twice_is_named(two_events):
    with h5py.File(two_events, "r") as opened:
        second = opened[f"{WIRES}/voxels"][1]["id"]
    change(two_events, f"{WIRES}/voxels", 0, "id", second)

    assert damage(two_events) == f"dataset `{WIRES}/voxels`, event 0, plane 0: a pixel that is there twice"


def test_labels_of_other_pixels_are_named(two_events):
    with h5py.File(two_events, "r+") as opened:
        voxels = opened[f"{LABELS}/voxels"][:]
        count = opened[f"{LABELS}/voxel_extents"][0]["N"]
        voxels["id"][:count] = np.arange(count)
        opened[f"{LABELS}/voxels"][:] = voxels

    assert damage(two_events) == f"dataset `{LABELS}/voxels`, event 0, plane 0: other pixels than those with charge"


@pytest.mark.parametrize("name", [f"{WIRES}/voxels", f"{LABELS}/image_meta", f"{WIRES}/extents", LABELS])
def test_a_data_set_that_is_missing_is_named(two_events, name):
    with h5py.File(two_events, "r+") as opened:
        del opened[name]

    assert f"dataset `{name}" in damage(two_events)


@pytest.mark.parametrize(
    "replacement", [np.zeros(3), np.zeros((3, 2), dtype=[("id", "<u8"), ("value", "<f4")]), np.float64(1)]
)
def test_a_data_set_of_another_type_or_shape_is_named(two_events, replacement):
    with h5py.File(two_events, "r+") as opened:
        del opened[f"{WIRES}/voxels"]
        opened[f"{WIRES}/voxels"] = replacement

    assert f"dataset `{WIRES}/voxels`: rows of " in damage(two_events)


def test_a_group_in_the_place_of_a_data_set_is_named(two_events):
    with h5py.File(two_events, "r+") as opened:
        del opened[f"{WIRES}/voxels"]
        opened.create_group(f"{WIRES}/voxels")

    assert f"dataset `{WIRES}/voxels`: rows of None" in damage(two_events)


def test_a_length_that_no_data_stand_behind_is_not_filled_with_zeros(two_events):
    with h5py.File(two_events, "r+") as opened:
        opened[f"{WIRES}/voxels"].resize((10**12,))

    assert f"dataset `{WIRES}/voxels`: 1000000000000 rows, and " in damage(two_events)


def test_labels_of_more_events_than_there_are_charges_are_named(two_events, tmp_path):
    write_larcv(tmp_path / "one.h5", zip(*make_events(1, height=16, width=24)))
    with h5py.File(two_events, "r+") as opened, h5py.File(tmp_path / "one.h5", "r") as other:
        del opened[LABELS]
        other.copy(LABELS, opened["Data"])

    assert damage(two_events) == f"dataset `{LABELS}/extents`: another number of events than the wires have"


@pytest.mark.parametrize("content", [b"", b"run,event\n1,2\n", b"\x89HDF\r\n\x1a\n", bytes(5000)])
def test_a_file_of_another_kind_is_named(tmp_path, content):
    (tmp_path / "events.h5").write_bytes(content)

    assert damage(tmp_path / "events.h5").startswith("the HDF5 header: ")


@pytest.mark.parametrize("part", [0.0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 0.999])
def test_a_file_that_is_cut_off_is_named(two_events, part):
    content = two_events.read_bytes()
    two_events.write_bytes(content[: int(part * len(content))])

    assert damage(two_events).startswith("the HDF5 header: ")


def test_flipped_bits_are_found_or_change_nothing(two_events):
    content, expected = two_events.read_bytes(), read_all(two_events)
    chance, outcomes = random.Random(0), []

    for _ in range(60):
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        two_events.write_bytes(changed)
        try:
            found = read_all(two_events)
        except PortingError as error:
            outcomes.append(error.code)
        else:
            torch.testing.assert_close(found, expected, rtol=0, atol=0)
            outcomes.append("the same")

    assert set(outcomes) == {"F001", "the same"}


def test_a_file_that_is_not_there_is_f002(tmp_path):
    with pytest.raises(PortingError, match="F002"):
        LarcvEvents(tmp_path / "events.h5")


def test_without_h5py_the_extra_is_named(two_events, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)

    with pytest.raises(PortingError, match="X001") as caught:
        LarcvEvents(two_events)

    assert caught.value.finding.help == ('pip install "ipu-porting[recipes]"',)
