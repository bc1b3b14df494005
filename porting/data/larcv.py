"""Read events from larcv's sparse HDF5 files, as CosmicTagger does: wire charges and labels of three planes.

A file has a group of wire charges and a group of labels. Each lists the pixels of all images one after the other in
`voxels`, of which `voxel_extents` (first, count, plane) cuts out an image, and `extents` (first, count) an event's
images. A pixel's `id` counts along ticks first, then along wires: with 2048 wires of 1280 ticks,
`id = wire * 1280 + tick`. Pixels without charge are not listed.

HDF5 checks little of its data: a damaged file may silently give zeros, other lengths, or another type. Everything that
is read is therefore compared with other parts of the file, and a contradiction is an error that names the data set and
the event.

P = planes, H and W = height and width in pixels: ticks of time, and wires.
"""

from __future__ import annotations

import io
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, NoReturn, Optional, Sequence, Tuple

import numpy as np
import torch
from torch.utils.data import Dataset

from porting.diagnostics import require_extra
from porting.support.atomic_files import write_atomically
from porting.support.data_files import AnyPath, make_file_error, require_file

from .events import Hits, check_halving, make_dense_images

__all__ = ["LarcvEvents", "LarcvFile", "load_h5py", "write_larcv"]

Event = Tuple[torch.Tensor, torch.Tensor]
"""image_PHW and labels_PHW."""


class LarcvEvents(Dataset[Event]):
    """The events of a file as pairs of image_PHW (float32) and labels_PHW (int64, 0 to 2).

    The sides of the images are halved `downsample` times: the mean of charges, the largest label. `size` is the height
    and width that they are then padded with zeros to, or cropped to, around their centre. The file is opened on first
    use, and again in each worker of a loader.

    Raises PortingError F002 without the file, F001 for one that is damaged or of another format, X001 without h5py, and
    ValueError for images that cannot be halved that often.
    """

    def __init__(self, path: AnyPath, *, downsample: int = 0, size: Optional[Tuple[int, int]] = None) -> None:
        self.downsample = downsample
        self.size = size
        self.file = LarcvFile(path)
        check_halving(self.file.height, self.file.width, downsample)

    def __len__(self) -> int:
        return self.file.num_events

    def __getitem__(self, index: int) -> Event:
        if not -len(self) <= index < len(self):
            raise IndexError(f"event {index} of {len(self)} in `{self.file.path}`")
        planes = self.file.read_event(index % len(self))
        image, labels = make_dense_images(
            planes, height=self.file.height, width=self.file.width, downsample=self.downsample
        )
        return (image, labels) if self.size is None else (_fit_planes(image, self.size), _fit_planes(labels, self.size))

    def __getitems__(self, indices: Sequence[int]) -> List[Event]:
        """Return several events at once, for loaders."""
        return [self[index] for index in indices]


def write_larcv(path: AnyPath, events: Iterable[Tuple[Any, Any]]) -> None:
    """Write pairs of image_PHW and labels_PHW, tensors or arrays, as a file that `LarcvEvents` reads, at once or not.

    Pixels with neither charge nor label are left out. ValueError for events of several sizes, for charges that are not
    finite, and for labels that are not 0, 1 or 2. Raises PortingError X001 without h5py.
    """
    pairs = [_check_event(np.asarray(image), np.asarray(labels)) for image, labels in events]
    shapes = sorted({image.shape for image, _labels in pairs})
    if len(shapes) > 1:
        raise ValueError(f"events of one file have one size, and these have {' and '.join(map(str, shapes))}")
    _planes, height, width = shapes[0] if shapes else (NUM_PLANES, 1280, 2048)
    # HDF5 seeks in what it writes, and a file that takes its place at once is written from the front
    content = io.BytesIO()
    with load_h5py().File(content, "w") as file:
        wires, labels, counts = _list_pixels(pairs)
        _write_group(file, WIRE_GROUP, wires, counts, height=height, width=width)
        _write_group(file, LABEL_GROUP, labels, counts, height=height, width=width)
        ids = np.zeros(len(pairs), dtype=EVENT_DTYPE)
        ids["event"] = np.arange(len(pairs))
        _write_dataset(file, EVENT_IDS, ids, chunk=100)
    write_atomically(path, content.getvalue())


# -- reading -----------------------------------------------------------------------------------------------------------


def _fit_planes(planes: torch.Tensor, size: Tuple[int, int]) -> torch.Tensor:
    """Pad or crop planes_PHW around their centre to a height and width."""
    padding: List[int] = []
    for have, want in zip(planes.shape[:0:-1], size[::-1]):
        # rounded towards zero, so that the odd row or column is the last one in either case
        before = int((want - have) / 2)
        padding += [before, want - have - before]
    return torch.nn.functional.pad(planes, padding)


# -- writing -----------------------------------------------------------------------------------------------------------


def _check_event(image: np.ndarray, labels: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    if image.shape != labels.shape or image.ndim != 3 or image.shape[0] != NUM_PLANES:
        raise ValueError(f"image and labels are {NUM_PLANES} planes, and have shapes {image.shape} and {labels.shape}")
    charges = image.astype(np.float32)
    if not np.isfinite(charges).all():
        raise ValueError("an image has charges that are not finite")
    if not np.isin(labels, range(NUM_CLASSES)).all():
        raise ValueError(f"labels are 0 to {NUM_CLASSES - 1}, and these are {labels.min()} to {labels.max()}")
    return charges, labels.astype(np.float32)


def _list_pixels(pairs: Sequence[Tuple[np.ndarray, np.ndarray]]) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """List the pixels of all images with their charges, the same with their labels, and how many each image has."""
    hits = []
    for image, classes in ((image[plane], classes[plane]) for image, classes in pairs for plane in range(NUM_PLANES)):
        columns, rows = np.nonzero((image.T != 0) | (classes.T != 0))
        hits.append(Hits(rows, columns, image[rows, columns], classes[rows, columns]))
    counts = np.array([len(plane.rows) for plane in hits], dtype=np.int64)
    wires = np.zeros(counts.sum(), dtype=VOXEL_DTYPE)
    labels = np.zeros(counts.sum(), dtype=VOXEL_DTYPE)
    height = pairs[0][0].shape[1] if pairs else 0
    for last, plane in zip(np.cumsum(counts), hits):
        place = slice(last - len(plane.rows), last)
        wires["id"][place] = labels["id"][place] = plane.columns * height + plane.rows
        wires["value"][place], labels["value"][place] = plane.charges, plane.labels
    return wires, labels, counts


def _write_group(file: Any, group: str, voxels: np.ndarray, counts: np.ndarray, *, height: int, width: int) -> None:
    num_images = len(counts)
    images = np.zeros(num_images, dtype=IMAGE_EXTENT_DTYPE)
    images["first"], images["N"] = np.cumsum(counts) - counts, counts
    images["ID"] = np.arange(num_images) % NUM_PLANES
    events = np.zeros(num_images // NUM_PLANES, dtype=EXTENT_DTYPE)
    events["first"], events["N"] = np.arange(len(events)) * NUM_PLANES, NUM_PLANES
    meta = np.zeros(num_images, dtype=META_DTYPE)
    meta["valid"], meta["projection_id"] = 1, images["ID"]
    meta["image_sizes"] = meta["number_of_voxels"] = (width, height)
    datasets: Dict[str, Tuple[np.ndarray, int]] = {
        "extents": (events, 10),
        "image_meta": (meta, 100),
        "voxel_extents": (images, 100),
        "voxels": (voxels, 1000),
    }
    for name, (values, chunk) in datasets.items():
        _write_dataset(file, f"{group}/{name}", values, chunk=chunk)


def _write_dataset(file: Any, name: str, values: np.ndarray, *, chunk: int) -> None:
    file.create_dataset(name, data=values, chunks=(chunk,), maxshape=(None,), compression="gzip", fletcher32=True)


WIRE_GROUP = "Data/sparse2d_sbndwire_group"
LABEL_GROUP = "Data/sparse2d_sbnd_cosmicseg_group"
EVENT_IDS = "Events/event_id"

NUM_PLANES = 3
NUM_CLASSES = 3

VOXEL_DTYPE = np.dtype({"names": ["id", "value"], "formats": ["<u8", "<f4"], "offsets": [0, 8], "itemsize": 16})
EXTENT_DTYPE = np.dtype({"names": ["first", "N"], "formats": ["<u8", "<u4"], "offsets": [0, 8], "itemsize": 16})
IMAGE_EXTENT_DTYPE = np.dtype([("first", "<u8"), ("N", "<u4"), ("ID", "<u4")])
META_DTYPE = np.dtype(
    {
        "names": ["valid", "projection_id", "image_sizes", "number_of_voxels", "origin"],
        "formats": ["u1", "<u8", ("<f8", (2,)), ("<u8", (2,)), ("<f8", (2,))],
        "offsets": [0, 8, 16, 32, 48],
        "itemsize": 72,
    }
)
EVENT_DTYPE = np.dtype([("run", "<i8"), ("subrun", "<i8"), ("event", "<i8")])

_MAX_PIXELS = 1 << 28
# no data compress better with gzip
_MAX_COMPRESSION = 1100
_HELP = "get the file again from where it came from, or read one of larcv's sparse 2-D files of CosmicTagger"
# what h5py raises for files that are not as it expects; it has no error class of its own
_FAILURES = (OSError, RuntimeError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError, AttributeError)


def load_h5py() -> Any:
    """Import h5py; raises PortingError X001 when it is not installed."""
    return require_extra("h5py", extra="recipes", message="larcv's files need `h5py`")


class LarcvFile:
    """The structure of a file, checked and kept; pixels are read with their event.

    `height` and `width` are those of all images: ticks and wires.
    """

    def __init__(self, path: AnyPath) -> None:
        self.path: Path = require_file(path, help="check the path; `write_larcv` makes such a file of generated events")
        self._opened: Dict[int, Any] = {}
        load_h5py()
        self._image_extents = {}
        sizes = {}
        for group in (WIRE_GROUP, LABEL_GROUP):
            sizes[group] = self._read_size(group)
            self._image_extents[group] = self._read_extents(group, num_pixels=int(np.prod(sizes[group])))
        if sizes[WIRE_GROUP] != sizes[LABEL_GROUP]:
            self._fail(f"{LABEL_GROUP}/image_meta", "images of another size than those of the wires")
        if len(self._image_extents[WIRE_GROUP]) != len(self._image_extents[LABEL_GROUP]):
            self._fail(f"{LABEL_GROUP}/extents", "another number of events than the wires have")
        self.width, self.height = sizes[WIRE_GROUP]

    @property
    def num_events(self) -> int:
        """The number of events in the file."""
        return len(self._image_extents[WIRE_GROUP])

    def read_event(self, event: int) -> List[Hits]:
        """Read the hits of each plane of an event; raises PortingError F001 where they cannot be right."""
        return [self._read_plane(event, plane) for plane in range(NUM_PLANES)]

    def __getstate__(self) -> Dict[str, Any]:
        """Return the state for a loading process; an open file cannot be passed to another process."""
        return {**self.__dict__, "_opened": {}}

    # -- structure ---------------------------------------------------------------------------------------------------

    def _read_size(self, group: str) -> Tuple[int, int]:
        """Read how many wires and ticks the images of a group have."""
        name = f"{group}/image_meta"
        meta = self._read_dataset(name, META_DTYPE)
        sizes = {(int(wires), int(ticks)) for wires, ticks in meta["number_of_voxels"]}
        if len(sizes) > 1:
            self._fail(name, f"images of {len(sizes)} sizes: {', '.join(map(str, sorted(sizes)))}")
        wires, ticks = sizes.pop() if sizes else (2048, 1280)
        if not (0 < wires <= _MAX_PIXELS and 0 < ticks <= _MAX_PIXELS and wires * ticks <= _MAX_PIXELS):
            self._fail(name, f"images of {wires} x {ticks} pixels")
        return wires, ticks

    def _read_extents(self, group: str, *, num_pixels: int) -> np.ndarray:
        """Read where the voxels of each event's planes begin and end: an array of [event, plane, 2]."""
        events = self._read_dataset(f"{group}/extents", EXTENT_DTYPE)
        images = self._read_dataset(f"{group}/voxel_extents", IMAGE_EXTENT_DTYPE)
        meta = self._read_dataset(f"{group}/image_meta", META_DTYPE)
        num_voxels = self._read_length(f"{group}/voxels", VOXEL_DTYPE)
        if len(images) != NUM_PLANES * len(events) or len(meta) != len(images):
            self._fail(
                f"{group}/voxel_extents", f"{len(events)} events with {len(images)} images and {len(meta)} image sizes"
            )
        result = np.zeros((len(events), NUM_PLANES, 2), dtype=np.int64)
        for event, (first_image, num_images) in enumerate(events.tolist()):
            if num_images != NUM_PLANES or first_image != NUM_PLANES * event:
                self._fail(f"{group}/extents", f"{num_images} images from image {first_image} on", event=event)
            mine = images[first_image : first_image + NUM_PLANES]
            if sorted(mine["ID"].tolist()) != list(range(NUM_PLANES)):
                self._fail(f"{group}/voxel_extents", f"planes {mine['ID'].tolist()}", event=event)
            for first, count, plane in mine.tolist():
                if count > num_pixels or first + count > num_voxels:
                    what = f"{count} pixels from pixel {first} on, of {num_voxels} in the file"
                    self._fail(f"{group}/voxel_extents", what, event=event, plane=plane)
                result[event, plane] = first, first + count
        # in their order each span begins where the one before ends, so that each voxel belongs to one image
        spans = result.reshape(-1, 2)
        spans = spans[np.lexsort((spans[:, 1], spans[:, 0]))]
        if [0, *spans[:, 1].tolist()] != [*spans[:, 0].tolist(), num_voxels]:
            self._fail(f"{group}/voxel_extents", f"the images do not cover the {num_voxels} pixels of the file once")
        return result

    # -- pixels ------------------------------------------------------------------------------------------------------

    def _read_plane(self, event: int, plane: int) -> Hits:
        wires = self._read_voxels(WIRE_GROUP, event, plane)
        labels = self._read_voxels(LABEL_GROUP, event, plane)
        if not np.array_equal(wires["id"], labels["id"]):
            self._fail(f"{LABEL_GROUP}/voxels", "other pixels than those with charge", event=event, plane=plane)
        if not np.isfinite(wires["value"]).all():
            self._fail(f"{WIRE_GROUP}/voxels", "a charge that is not finite", event=event, plane=plane)
        if not np.isin(labels["value"], range(NUM_CLASSES)).all():
            what = f"a label other than 0 to {NUM_CLASSES - 1}"
            self._fail(f"{LABEL_GROUP}/voxels", what, event=event, plane=plane)
        pixels = wires["id"].astype(np.int64)
        return Hits(pixels % self.height, pixels // self.height, wires["value"], labels["value"].astype(np.int64))

    def _read_voxels(self, group: str, event: int, plane: int) -> np.ndarray:
        """Read the pixels of an image in the order of their ids."""
        name = f"{group}/voxels"
        first, end = self._image_extents[group][event, plane]
        self._read_length(name, VOXEL_DTYPE)
        with self._name_failures(name, event=event, plane=plane):
            voxels: np.ndarray = self._open_file()[name][int(first) : int(end)]
        if len(voxels) != end - first:
            self._fail(name, f"{len(voxels)} pixels, not {end - first}", event=event, plane=plane)
        ids = voxels["id"]
        if (ids[1:] <= ids[:-1]).any():
            voxels = voxels[np.argsort(ids, kind="stable")]
            ids = voxels["id"]
        if (ids[1:] == ids[:-1]).any():
            self._fail(name, "a pixel that is there twice", event=event, plane=plane)
        if len(ids) and ids[-1] >= self.width * self.height:
            what = f"pixel {ids[-1]} of an image of {self.width} x {self.height}"
            self._fail(name, what, event=event, plane=plane)
        return voxels

    # -- HDF5 --------------------------------------------------------------------------------------------------------

    def _read_dataset(self, name: str, dtype: np.dtype[Any]) -> np.ndarray:
        self._read_length(name, dtype)
        with self._name_failures(name):
            return self._open_file()[name][:]

    def _read_length(self, name: str, dtype: np.dtype[Any]) -> int:
        """Return how many rows a data set has, and check that its file can hold them."""
        with self._name_failures(name):
            dataset = self._open_file()[name]
            found, shape = getattr(dataset, "dtype", None), getattr(dataset, "shape", None)
            if found != dtype or shape is None or len(shape) != 1:
                self._fail(name, f"rows of {found} in the shape {shape}, not a list of {dtype}")
            num_rows = int(shape[0])
            # a length that was damaged would be filled up with zeros, however many
            if num_rows * dtype.itemsize > _MAX_COMPRESSION * dataset.id.get_storage_size():
                self._fail(name, f"{num_rows} rows, and {dataset.id.get_storage_size()} bytes of them")
        return num_rows

    def _open_file(self) -> Any:
        """Open the file in this process, unless it is."""
        process = os.getpid()
        if process not in self._opened:
            # a file that a process opened before it forked is not this one's to close
            try:
                self._opened[process] = load_h5py().File(self.path, "r")
            except PermissionError:
                raise
            except _FAILURES as error:
                raise make_file_error(self.path, _decode_text(error), location="the HDF5 header", help=_HELP) from error
        return self._opened[process]

    @contextmanager
    def _name_failures(self, name: str, **where: int) -> Iterator[None]:
        """Turn h5py's errors for a damaged file into this toolkit's; a file without permission is another error."""
        try:
            yield
        except PermissionError:
            raise
        except _FAILURES as error:
            self._fail(name, _decode_text(error), **where)

    def _fail(self, name: str, what: str, **where: int) -> NoReturn:
        location = ", ".join([f"dataset `{name}`", *(f"{word} {number}" for word, number in where.items())])
        raise make_file_error(self.path, what, location=location, help=_HELP)


def _decode_text(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
