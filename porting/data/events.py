"""Generate events that look like a neutrino's among cosmic rays in three wire planes; a network can learn from them.

Cosmic rays are straight, noisy, near-vertical tracks that cross the frame. A neutrino makes a vertex with two to five
short tracks and showers, at the same tick in all planes. Low charge is scattered all over. Shares, occupancy and
charges are like those of SBND's simulated events: 0.9 % of the pixels see something, 55 % of these are background, and
the median charge is 9. Even a frame too small for that has one cosmic ray and one vertex.

The hits of a plane are a list, as detectors store them; images are what networks see.

N = events, P = planes (3), H and W = height and width in pixels: ticks of time, and wires.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Dict, List, Sequence, Tuple

import numpy as np
import torch
from torch.utils.data import Dataset

__all__ = ["Hits", "NeutrinoEvents", "check_halving", "make_dense_images", "make_events"]

BACKGROUND, COSMIC, NEUTRINO = 0, 1, 2
"""The labels of pixels."""

_NUM_PLANES = 3
_OCCUPANCY = 0.009
_BACKGROUND_SHARE = 0.55
_NEUTRINO_SHARE = 0.085
_THRESHOLD = 5.0
_BACKGROUND_RUN = 3.0
_COSMIC_THICKNESS = 2.2
_COSMIC_EFFICIENCY = 0.93
_MIN_NEUTRINO_PIXELS = 18
# medians and widths of log-normal charges; together their median is 9
_CHARGES = {BACKGROUND: (7.0, 0.3), COSMIC: (19.0, 0.95), NEUTRINO: (26.0, 0.95)}


class NeutrinoEvents(Dataset[Tuple[torch.Tensor, torch.Tensor]]):
    """`num_events` events as pairs of image_PHW (float32) and labels_PHW (int64), made when they are read.

    `height` and `width` are the frame's, whose sides are halved `downsample` times: the mean of charges, the largest
    label. Equal seeds give equal events, and a longer dataset begins with the shorter one.

    >>> image, labels = NeutrinoEvents(4, height=160, width=256, downsample=1)[3]
    >>> image.shape, labels.dtype, sorted(labels.unique().tolist())
    (torch.Size([3, 80, 128]), torch.int64, [0, 1, 2])
    """

    def __init__(
        self, num_events: int, *, height: int = 1280, width: int = 2048, downsample: int = 0, seed: int = 0
    ) -> None:
        check_halving(height, width, downsample)
        if num_events < 0 or min(height, width) < 16:
            raise ValueError(f"{num_events} events of {height} x {width} pixels; a frame has 16 x 16 at least")
        self.num_events, self.seed = num_events, seed
        self.height, self.width, self.downsample = height, width, downsample

    def __len__(self) -> int:
        return self.num_events

    def __getitem__(self, index: int) -> Tuple[torch.Tensor, torch.Tensor]:
        if not -self.num_events <= index < self.num_events:
            raise IndexError(f"event {index} of {self.num_events}")
        planes = _make_planes(self.height, self.width, seed=self.seed, event=index % self.num_events)
        return make_dense_images(planes, height=self.height, width=self.width, downsample=self.downsample)

    def __getitems__(self, indices: Sequence[int]) -> List[Tuple[torch.Tensor, torch.Tensor]]:
        """Return several events at once, for loaders."""
        return [self[index] for index in indices]


def make_events(
    num_events: int, *, height: int = 1280, width: int = 2048, seed: int = 0
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make the images_NPHW (float32) and labels_NPHW (int64) of `NeutrinoEvents` all at once.

    >>> images, labels = make_events(2, height=64, width=96)
    >>> images.shape, bool((images[labels > 0] >= 5).all())
    (torch.Size([2, 3, 64, 96]), True)
    """
    events = NeutrinoEvents(num_events, height=height, width=width, seed=seed)
    images = torch.zeros(num_events, _NUM_PLANES, height, width)
    labels = torch.zeros_like(images, dtype=torch.int64)
    for event in range(num_events):
        images[event], labels[event] = events[event]
    return images, labels


# -- one event ---------------------------------------------------------------------------------------------------------

Points = Tuple[np.ndarray, np.ndarray]
"""Rows and columns of points, as fractions of pixels."""


def _make_planes(height: int, width: int, *, seed: int, event: int) -> List[Hits]:
    random = np.random.default_rng([seed, event])
    signal_pixels = _OCCUPANCY * (1 - _BACKGROUND_SHARE) * height * width
    neutrino_pixels = max(_MIN_NEUTRINO_PIXELS, _NEUTRINO_SHARE * _OCCUPANCY * height * width)
    crossing = _COSMIC_EFFICIENCY * _COSMIC_THICKNESS * height
    num_cosmics = max(1, random.poisson(max(0.0, signal_pixels - neutrino_pixels) / crossing))
    # a frame that is too small for one cosmic ray of full thickness gets a thinner one
    thickness = min(_COSMIC_THICKNESS, max(1.0, (signal_pixels - neutrino_pixels) / (_COSMIC_EFFICIENCY * height)))
    cosmics = [_draw_cosmic(random, height, width, thickness=thickness) for _ in range(num_cosmics)]
    neutrino = _draw_neutrino(random, height, width, num_pixels=neutrino_pixels)
    planes = []
    for plane in range(_NUM_PLANES):
        signal = [(cosmic[plane], COSMIC) for cosmic in cosmics] + [(neutrino[plane], NEUTRINO)]
        planes.append(_make_hits(random, signal, height=height, width=width))
    return planes


def _draw_cosmic(random: np.random.Generator, height: int, width: int, *, thickness: float) -> List[Points]:
    """Draw a track from the top of the frame to its bottom, in each plane: the same ticks, another projection."""
    planes = []
    for _ in range(_NUM_PLANES):
        angle = random.normal(0.0, 0.2)
        middle = random.uniform(0.0, width)
        length = height / math.cos(angle)
        along = np.arange(-length / 2, length / 2, 0.5)
        wobble = np.cumsum(random.normal(0.0, 0.05, along.shape))
        rows = height / 2 + along * math.cos(angle)
        columns = middle + along * math.sin(angle) + wobble - wobble.mean()
        planes.append(_thicken_line(random, rows, columns, across=(0.0, 1.0), thickness=thickness))
    return planes


def _draw_neutrino(random: np.random.Generator, height: int, width: int, *, num_pixels: float) -> List[Points]:
    """Draw the tracks and showers of a vertex, in each plane: the same ticks, another projection."""
    num_prongs = int(random.integers(2, 6))
    row, column = random.uniform(0.15, 0.85) * height, random.uniform(0.15, 0.85, _NUM_PLANES) * width
    lengths = random.dirichlet(np.full(num_prongs, 3.0)) * num_pixels * random.uniform(0.75, 1.25)
    angles = random.uniform(0.0, 2 * math.pi, num_prongs)
    is_shower = random.random(num_prongs) < 0.35
    planes = []
    for plane in range(_NUM_PLANES):
        turned = angles + random.normal(0.0, 0.35, num_prongs)
        prongs = [
            _draw_prong(random, row, column[plane], angle=angle, num_pixels=length, is_shower=bool(showers))
            for angle, length, showers in zip(turned, lengths, is_shower)
        ]
        planes.append((np.concatenate([rows for rows, _ in prongs]), np.concatenate([wires for _, wires in prongs])))
    return planes


def _draw_prong(
    random: np.random.Generator, row: float, column: float, *, angle: float, num_pixels: float, is_shower: bool
) -> Points:
    """Draw a track of two pixels across, or a shower that gets wider with the distance from the vertex."""
    direction = (math.sin(angle), math.cos(angle))
    across = (direction[1], -direction[0])
    along: np.ndarray
    if not is_shower:
        along = np.arange(0.0, max(3.0, num_pixels / 2), 0.5)
        rows, columns = row + along * direction[0], column + along * direction[1]
        return _thicken_line(random, rows, columns, across=across, thickness=2.0)
    along = random.gamma(2.0, max(1.0, num_pixels / 8), int(1.4 * num_pixels) + 2)
    spread = random.normal(0.0, 0.12, along.shape) * (along + 2.0)
    return row + along * direction[0] + spread * across[0], column + along * direction[1] + spread * across[1]


def _thicken_line(
    random: np.random.Generator, rows: np.ndarray, columns: np.ndarray, *, across: Tuple[float, float], thickness: float
) -> Points:
    """Repeat the points of a line beside each other, `thickness` of them on average, and leave gaps."""
    copies_rows, copies_columns = [], []
    for offset in range(math.ceil(thickness)):
        share = _COSMIC_EFFICIENCY * min(1.0, thickness - offset)
        kept = np.repeat(random.random((len(rows) + 1) // 2) < share, 2)[: len(rows)]
        copies_rows.append(rows[kept] + offset * across[0])
        copies_columns.append(columns[kept] + offset * across[1])
    return np.concatenate(copies_rows), np.concatenate(copies_columns)


# -- hits --------------------------------------------------------------------------------------------------------------


def _make_hits(random: np.random.Generator, signal: Sequence[Tuple[Points, int]], *, height: int, width: int) -> Hits:
    """Make each pixel one hit, the neutrino's where it meets cosmic rays, and scatter background between them."""
    owner: Dict[int, np.ndarray] = {COSMIC: np.zeros(0, dtype=np.int64), NEUTRINO: np.zeros(0, dtype=np.int64)}
    for (rows, columns), label in signal:
        inside = (rows >= 0) & (rows < height) & (columns >= 0) & (columns < width)
        pixels = rows[inside].astype(np.int64) * width + columns[inside].astype(np.int64)
        owner[label] = np.union1d(owner[label], pixels)
    cosmic = np.setdiff1d(owner[COSMIC], owner[NEUTRINO], assume_unique=True)
    taken = np.union1d(cosmic, owner[NEUTRINO])
    num_background = round(len(taken) * _BACKGROUND_SHARE / (1 - _BACKGROUND_SHARE))
    background = _scatter_pixels(random, num_background, taken=taken, height=height, width=width)
    kinds = [background, cosmic, owner[NEUTRINO]]
    pixels, counts = np.concatenate(kinds), [len(kind) for kind in kinds]
    charges = np.concatenate([_draw_charges(random, number, *_CHARGES[label]) for label, number in enumerate(counts)])
    labels = np.repeat([BACKGROUND, COSMIC, NEUTRINO], counts)
    return Hits(pixels // width, pixels % width, charges, labels)


def _scatter_pixels(
    random: np.random.Generator, num_wanted: int, *, taken: np.ndarray, height: int, width: int
) -> np.ndarray:
    """Choose free pixels, in short runs of ticks on one wire; a few less than wanted where runs meet."""
    runs = random.geometric(1 / _BACKGROUND_RUN, max(1, round(num_wanted / _BACKGROUND_RUN)))
    first_rows, columns = random.integers(0, height, len(runs)), random.integers(0, width, len(runs))
    rows = np.repeat(first_rows, runs) + np.arange(runs.sum()) - np.repeat(np.cumsum(runs) - runs, runs)
    pixels = (rows % height) * width + np.repeat(columns, runs)
    return np.setdiff1d(pixels, taken)


def _draw_charges(random: np.random.Generator, num_hits: int, median: float, width: float) -> np.ndarray:
    """Draw log-normal charges above the threshold, in float32."""
    charges = random.lognormal(math.log(median), width, num_hits)
    return np.maximum(charges, _THRESHOLD + 0.1 * random.random(num_hits)).astype(np.float32)


@dataclass(frozen=True)
class Hits:
    """The pixels of one plane that saw something: their rows (ticks), columns (wires), charges and labels."""

    rows: np.ndarray
    columns: np.ndarray
    charges: np.ndarray
    labels: np.ndarray


def make_dense_images(
    planes: Sequence[Hits], *, height: int, width: int, downsample: int = 0
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make image_PHW (float32) and labels_PHW (int64) of the hits of each plane; other pixels have no charge, label 0.

    `downsample` is the number of times that height and width are halved: a pixel then has the mean charge of the pixels
    that it covers, and their largest label. ValueError for sides that cannot be halved that often.

    >>> hits = Hits(np.array([0, 3]), np.array([1, 2]), np.array([8.0, 4.0]), np.array([2, 1]))
    >>> make_dense_images([hits], height=4, width=4, downsample=1)[0]
    tensor([[[2., 0.],
             [0., 1.]]])
    """
    check_halving(height, width, downsample)
    height, width = height >> downsample, width >> downsample
    image = np.zeros((len(planes), height * width), dtype=np.float32)
    labels = np.zeros((len(planes), height * width), dtype=np.int64)
    for plane, hits in enumerate(planes):
        pixels = (hits.rows.astype(np.int64) >> downsample) * width + (hits.columns.astype(np.int64) >> downsample)
        # many hits may share a pixel: charges add up in float64
        charges = np.bincount(pixels, weights=hits.charges, minlength=height * width)
        image[plane] = charges / 4**downsample
        # of hits that share a pixel the last one is kept, and it has the largest label
        order = np.argsort(hits.labels, kind="stable")
        labels[plane, pixels[order]] = hits.labels[order]
    shape = (len(planes), height, width)
    return torch.from_numpy(image).view(shape), torch.from_numpy(labels).view(shape)


def check_halving(height: int, width: int, downsample: int) -> None:
    """Raise ValueError for a number of halvings that is negative, or that height and width do not allow."""
    if downsample < 0:
        raise ValueError(f"`downsample` is {downsample}; it counts how often the sides are halved")
    if height % 2**downsample or width % 2**downsample:
        raise ValueError(f"{height} x {width} pixels cannot be halved {downsample} times")
