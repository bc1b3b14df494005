"""Generate pictures: textures and silhouettes with labels, blobs and checks without, and plain noise.

B = samples, H and W = height and width in pixels, P = parts of a picture. Equal seeds give equal pictures.
"""

from __future__ import annotations

from typing import Callable, Dict, List, Tuple

import numpy as np
import torch

__all__ = ["fake_data", "make_labelled_images", "make_silhouettes", "make_unlabelled_images"]

# roughly how many numbers are drawn at once, which bounds the memory
_NUMBERS_AT_ONCE = 2**21

Drawing = Callable[[int, np.random.Generator], Tuple[np.ndarray, np.ndarray]]


def make_labelled_images(
    num_samples: int, *, num_classes: int = 10, size: int = 32, seed: int
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make coloured textures: images_B3HW, float32 from 0 to 1, and labels_B.

    Label c means one of five patterns (stripes, checks, rings, dots, waves), c modulo 5, and a direction and fineness,
    c divided by 5. Colours and place are random, and there is noise: neither colour nor a single pixel tells the label.

    >>> images, labels = make_labelled_images(4, num_classes=10, size=32, seed=0)
    >>> images.shape, labels.dtype
    (torch.Size([4, 3, 32, 32]), torch.int64)
    """

    def draw(num_rows: int, random: np.random.Generator) -> Tuple[np.ndarray, np.ndarray]:
        labels_b = random.integers(num_classes, size=num_rows)
        pattern_bhw = _make_textures(labels_b, random, num_directions=-(-num_classes // len(_PATTERNS)), size=size)
        images_b3hw = _paint_two_colours(pattern_bhw, random)
        images_b3hw += 0.08 * random.standard_normal(images_b3hw.shape, dtype=np.float32)
        return images_b3hw, labels_b

    return _draw_portions(draw, num_samples, shape=(3, size, size), seed=seed)


def make_silhouettes(num_samples: int, *, seed: int, size: int = 28) -> Tuple[torch.Tensor, torch.Tensor]:
    """Draw filled shapes of ten kinds: images_B1HW, float32 from 0 (ground) to 1, and labels_B.

    The kinds: disc, square, triangle, star, cross, ring, crescent, heart, half disc, arrow; turned a little, moved,
    stretched, of any grey, with noise.

    >>> images, labels = make_silhouettes(4, seed=0)
    >>> images.shape, labels.dtype
    (torch.Size([4, 1, 28, 28]), torch.int64)
    """

    def draw(num_rows: int, random: np.random.Generator) -> Tuple[np.ndarray, np.ndarray]:
        labels_b = random.integers(len(_SHAPES), size=num_rows)
        x_bhw, y_bhw = _rotate_grids(num_rows, random, size=size)
        inside_bhw = np.empty_like(x_bhw)
        for label, shape in enumerate(_SHAPES.values()):
            rows = labels_b == label
            inside_bhw[rows] = shape(x_bhw[rows], y_bhw[rows])
        # positive inside, in units of half the picture: the edge is about one pixel wide
        images_bhw = np.clip(inside_bhw * (size / 2) + 0.5, 0, 1)
        images_bhw *= random.uniform(0.5, 1, size=(num_rows, 1, 1)).astype(np.float32)
        images_bhw += 0.05 * random.standard_normal(images_bhw.shape, dtype=np.float32)
        return images_bhw[:, None], labels_b

    return _draw_portions(draw, num_samples, shape=(1, size, size), seed=seed)


def make_unlabelled_images(num_samples: int, *, seed: int, size: int = 32) -> torch.Tensor:
    """Make pictures for a generative model, coloured blobs and checkerboards: images_B3HW, float32 from 0 to 1.

    >>> make_unlabelled_images(4, seed=0).shape
    torch.Size([4, 3, 32, 32])
    """

    def draw(num_rows: int, random: np.random.Generator) -> Tuple[np.ndarray, np.ndarray]:
        kinds_b = random.integers(2, size=num_rows)
        blobs_b3hw = _make_blobs(num_rows, random, size=size)
        checks_b3hw = _paint_two_colours(_make_checkerboards(num_rows, random, size=size), random)
        return np.where(kinds_b[:, None, None, None] == 0, blobs_b3hw, checks_b3hw), kinds_b

    return _draw_portions(draw, num_samples, shape=(3, size, size), seed=seed)[0]


def fake_data(
    num_samples: int, *, shape: Tuple[int, ...] = (784,), num_classes: int = 10, seed: int
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make samples without a pattern, to measure speed or try a program: inputs from 0 to 1, and labels_B.

    Chainer's examples take 150 of them to train and 100 to test where they are called with `--use-fake-data`.

    >>> inputs, labels = fake_data(150, seed=0)
    >>> inputs.shape, labels.shape
    (torch.Size([150, 784]), torch.Size([150]))
    """
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.rand((num_samples, *shape), generator=generator)
    return inputs, torch.randint(num_classes, (num_samples,), generator=generator)


def _draw_portions(
    draw: Drawing, num_samples: int, *, shape: Tuple[int, ...], seed: int
) -> Tuple[torch.Tensor, torch.Tensor]:
    """Draw portions of a fixed size, each from its own random stream, so that longer series begin with shorter ones."""
    rows_at_once = max(1, _NUMBERS_AT_ONCE // int(np.prod(shape)))
    images = np.empty((num_samples, *shape), dtype=np.float32)
    labels = np.empty(num_samples, dtype=np.int64)
    for portion, start in enumerate(range(0, num_samples, rows_at_once)):
        drawn, kinds = draw(rows_at_once, np.random.default_rng([seed, portion]))
        rows = slice(start, min(start + rows_at_once, num_samples))
        np.clip(drawn[: rows.stop - start], 0, 1, out=images[rows])
        labels[rows] = kinds[: rows.stop - start]
    return torch.from_numpy(images), torch.from_numpy(labels)


# -- textures ----------------------------------------------------------------------------------------------------------


# stripes, checks, rings, dots and waves from -1 to 1, along u_BHW and across v_BHW
_PATTERNS: Tuple[Callable[[np.ndarray, np.ndarray], np.ndarray], ...] = (
    lambda u, _v: np.sign(np.sin(u)),
    lambda u, v: np.sign(np.sin(u) * np.sin(v)),
    lambda u, v: np.sin(np.hypot(u, v)),
    lambda u, v: np.where(np.cos(u) + np.cos(v) > 0.9, np.float32(1), np.float32(-1)),
    lambda u, v: np.sin(u + 1.5 * np.sin(v)),
)


def _make_textures(labels_b: np.ndarray, random: np.random.Generator, *, num_directions: int, size: int) -> np.ndarray:
    """Make pattern_BHW from -1 to 1, of a direction between 0 and 90 degrees and a wave length in pixels."""
    num_rows = len(labels_b)
    direction_b = (labels_b // len(_PATTERNS)).astype(np.float32) / num_directions
    angle_b = np.pi / 2 * direction_b + random.uniform(-0.08, 0.08, size=num_rows)
    waves_b = (3 + 3 * direction_b) * random.uniform(0.9, 1.1, size=num_rows)
    grid = np.linspace(-np.pi, np.pi, size, dtype=np.float32)
    middle_b2 = random.uniform(-np.pi / 2, np.pi / 2, size=(num_rows, 2)).astype(np.float32)
    x_bhw = np.broadcast_to((grid - middle_b2[:, :1])[:, None, :], (num_rows, size, size))
    y_bhw = np.broadcast_to((grid - middle_b2[:, 1:])[:, :, None], (num_rows, size, size))
    cos_b11 = (np.cos(angle_b) * waves_b).astype(np.float32)[:, None, None]
    sin_b11 = (np.sin(angle_b) * waves_b).astype(np.float32)[:, None, None]
    u_bhw, v_bhw = cos_b11 * x_bhw + sin_b11 * y_bhw, cos_b11 * y_bhw - sin_b11 * x_bhw
    pattern_bhw = np.empty_like(u_bhw)
    for kind, pattern in enumerate(_PATTERNS):
        rows = labels_b % len(_PATTERNS) == kind
        pattern_bhw[rows] = pattern(u_bhw[rows], v_bhw[rows])
    return pattern_bhw


def _paint_two_colours(pattern_bhw: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Paint a pattern from -1 to 1 in two colours that are some way apart: images_B3HW."""
    num_rows = len(pattern_bhw)
    middle_b3 = random.uniform(0.35, 0.65, size=(num_rows, 3))
    direction_b3 = random.standard_normal((num_rows, 3))
    direction_b3 /= np.linalg.norm(direction_b3, axis=1, keepdims=True)
    step_b3 = direction_b3 * random.uniform(0.3, 0.5, size=(num_rows, 1))
    images_b3hw: np.ndarray = pattern_bhw[:, None] * step_b3.astype(np.float32)[:, :, None, None]
    images_b3hw += middle_b3.astype(np.float32)[:, :, None, None]
    return images_b3hw


# -- silhouettes -------------------------------------------------------------------------------------------------------


def _rotate_grids(num_rows: int, random: np.random.Generator, *, size: int) -> Tuple[np.ndarray, np.ndarray]:
    """Return x_BHW (right) and y_BHW (down), from about -1 to 1, of shapes that are turned, stretched and moved."""
    grid = (np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1
    angle_b, scale_b2 = random.uniform(-0.3, 0.3, num_rows), random.uniform(0.75, 1.05, (num_rows, 2))
    middle_b2 = random.uniform(-0.12, 0.12, (num_rows, 2)).astype(np.float32)
    x_bhw = np.broadcast_to((grid - middle_b2[:, :1])[:, None, :], (num_rows, size, size))
    y_bhw = np.broadcast_to((grid - middle_b2[:, 1:])[:, :, None], (num_rows, size, size))
    parts = [np.cos(angle_b) / scale_b2[:, 0], np.sin(angle_b) / scale_b2[:, 0]]
    parts += [np.cos(angle_b) / scale_b2[:, 1], np.sin(angle_b) / scale_b2[:, 1]]
    xx, xy, yy, yx = (part.astype(np.float32)[:, None, None] for part in parts)
    return xx * x_bhw + xy * y_bhw, yy * y_bhw - yx * x_bhw


Shape = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""How far inside a shape the points x, y of a picture from -1 to 1 are, y down: positive there, negative outside."""


def _draw_star(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Five points: the radius of the edge falls from each point to the notch between two."""
    sector = 2 * np.pi / 5
    from_point = np.abs((np.arctan2(x, -y) % sector) / sector - 0.5) * 2
    return np.float32(0.32) + np.float32(0.5) * from_point.astype(np.float32) ** 2 - np.hypot(x, y)


def _draw_heart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    lobes = 0.36 - np.hypot(np.abs(x) - 0.3, y + 0.22)
    point = np.minimum((0.62 - y) * 0.7 - np.abs(x) * 0.7, y + 0.22)
    return np.maximum(lobes, np.minimum(point, 0.62 - np.abs(x)))


def _draw_arrow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    head = np.minimum((y + 0.75) * 0.7 - np.abs(x) * 0.7, -0.05 - y)
    shaft = np.minimum(0.16 - np.abs(x), np.minimum(0.7 - y, y + 0.3))
    return np.maximum(head, shaft)


# in the order of their labels; Python's numbers leave the type of an array as it is
_SHAPES: Dict[str, Shape] = {
    "disc": lambda x, y: 0.7 - np.hypot(x, y),
    "square": lambda x, y: 0.6 - np.maximum(np.abs(x), np.abs(y)),
    "triangle": lambda x, y: np.minimum(0.5 - y, 0.42 + y * 0.5 - np.abs(x) * 0.87),
    "star": _draw_star,
    "cross": lambda x, y: np.minimum(0.7 - np.maximum(np.abs(x), np.abs(y)), 0.24 - np.minimum(np.abs(x), np.abs(y))),
    "ring": lambda x, y: 0.17 - np.abs(np.hypot(x, y) - 0.55),
    "crescent": lambda x, y: np.minimum(0.7 - np.hypot(x, y), np.hypot(x - 0.4, y) - 0.55),
    "heart": _draw_heart,
    "half disc": lambda x, y: np.minimum(0.75 - np.hypot(x, y - 0.3), 0.3 - y),
    "arrow": _draw_arrow,
}


# -- pictures without labels -------------------------------------------------------------------------------------------


def _make_blobs(num_rows: int, random: np.random.Generator, *, size: int, num_blobs: int = 3) -> np.ndarray:
    """Make soft blobs of bright colours on a dark ground: images_B3HW."""
    grid = np.linspace(0, 1, size, dtype=np.float32)
    middle_bp2 = random.uniform(0.15, 0.85, (num_rows, num_blobs, 2)).astype(np.float32)
    width_bp11 = random.uniform(0.08, 0.2, (num_rows, num_blobs, 1, 1)).astype(np.float32)
    colour_bp3 = random.uniform(0.1, 1.0, (num_rows, num_blobs, 3)).astype(np.float32)
    x_bp1w = (grid - middle_bp2[:, :, :1])[:, :, None, :] / width_bp11
    y_bph1 = (grid - middle_bp2[:, :, 1:])[:, :, :, None] / width_bp11
    blobs_bphw = np.exp(-(x_bp1w**2) / 2) * np.exp(-(y_bph1**2) / 2)
    return np.einsum("bphw,bpc->bchw", blobs_bphw, colour_bp3, optimize=True) + np.float32(0.05)


def _make_checkerboards(num_rows: int, random: np.random.Generator, *, size: int) -> np.ndarray:
    """Make boards_BHW of -1 and 1, whose squares are an eighth to a quarter of the picture wide."""
    square_b: List[int] = [max(1, size // int(count)) for count in random.integers(4, 9, size=num_rows)]
    shift_b2 = random.integers(size, size=(num_rows, 2))
    column_bw = (np.arange(size) + shift_b2[:, :1]) // np.array(square_b)[:, None]
    row_bh = (np.arange(size) + shift_b2[:, 1:]) // np.array(square_b)[:, None]
    return ((column_bw[:, None, :] + row_bh[:, :, None]) % 2 * 2 - 1).astype(np.float32)
