"""A larcv file with its checks: whatever is wrong in it is an error that names the data set and the event.

HDF5 checks little of what it reads: a damaged file may silently give zeros, other lengths, or another type.
Everything that is read is therefore compared with what else the file says.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Tuple

import numpy as np

from porting.diagnostics import require_extra

from .files import AnyPath, make_file_error, require_file
from .hits import Hits

__all__ = [
    "EVENT_DTYPE",
    "EVENT_IDS",
    "EXTENT_DTYPE",
    "IMAGE_EXTENT_DTYPE",
    "LABEL_GROUP",
    "META_DTYPE",
    "NUM_CLASSES",
    "NUM_PLANES",
    "VOXEL_DTYPE",
    "WIRE_GROUP",
    "LarcvFile",
    "load_h5py",
]

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
    """The structure of a file, checked and kept; pixels are read when an event is asked for.

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
        """How many events the file has."""
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
        """Return how many rows a data set has, after a look at whether it can be what it says."""
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
        """Let what h5py says of a damaged file be an error of this toolkit; a file that may not be read is another."""
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
