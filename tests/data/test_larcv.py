"""larcv's files: the real one has the published numbers, and what was written is read again."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from porting.data.events import make_events
from porting.data.larcv import LarcvEvents, write_larcv

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
