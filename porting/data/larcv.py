"""Events in larcv's sparse HDF5 files, as CosmicTagger reads them: wire charges and labels of three planes.

A file has a group of wire charges and a group of labels. Each lists the pixels of all images one after the other in
`voxels`, of which `voxel_extents` (first, count, plane) cuts out an image, and `extents` (first, count) an event's
images. A pixel's `id` counts along ticks first, then along wires: with 2048 wires of 1280 ticks,
`id = wire * 1280 + tick`. Pixels without charge are not listed.

P = planes, H and W = height and width in pixels: ticks of time, and wires.
"""

from __future__ import annotations

import io
from typing import Any, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import torch
from torch.utils.data import Dataset

from porting.support.atomic_files import write_atomically

from .files import AnyPath
from .hits import Hits, check_halving, make_dense_images
from .larcv_file import (
    EVENT_DTYPE,
    EVENT_IDS,
    EXTENT_DTYPE,
    IMAGE_EXTENT_DTYPE,
    LABEL_GROUP,
    META_DTYPE,
    NUM_CLASSES,
    NUM_PLANES,
    VOXEL_DTYPE,
    WIRE_GROUP,
    LarcvFile,
    load_h5py,
)

__all__ = ["LarcvEvents", "write_larcv"]

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
        """Return several events, as loaders ask for them."""
        return [self[index] for index in indices]


def write_larcv(path: AnyPath, events: Iterable[Tuple[Any, Any]]) -> None:
    """Write pairs of image_PHW and labels_PHW, tensors or arrays, as a file that `LarcvEvents` reads, at once or not.

    What has neither charge nor label is left out. ValueError for events of several sizes, for charges that are not
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
