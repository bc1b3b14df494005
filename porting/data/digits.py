"""Load handwritten digits without a download: scikit-learn's small ones, or drawn ones of any number and size.

B = samples, H and W = height and width in pixels, R = rows of a map of distances, P = pixels of an image.
"""

from __future__ import annotations

from functools import lru_cache
from typing import List, Sequence, Tuple

import numpy as np
import torch

from ..diagnostics import require_extra

__all__ = ["load_digits", "make_digits"]

Stroke = Sequence[Tuple[float, float]]

_NUM_CLASSES = 10
_ROWS_AT_ONCE = 1024


def make_digits(num_samples: int, *, seed: int, size: int = 28) -> Tuple[torch.Tensor, torch.Tensor]:
    """Draw digits in many hands: images_B1HW, float32 from 0 (paper) to 1 (ink), and labels_B, int64 from 0 to 9.

    Each digit is a template of strokes (some have two), which is slanted, turned, stretched, moved and bent; pen width,
    softness of the edge and pressure are different each time, and the pixels are noisy. Equal seeds give equal digits,
    and a longer series begins with the shorter one.

    >>> images, labels = make_digits(5, seed=0)
    >>> images.shape, images.dtype, labels.dtype
    (torch.Size([5, 1, 28, 28]), torch.float32, torch.int64)
    >>> torch.equal(labels, make_digits(9, seed=0)[1][:5])
    True
    """
    # streams of their own for traits and noise, drawn sample by sample: so a longer series begins with the shorter one
    traits, noise = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    images_bp = np.empty((num_samples, size * size), dtype=np.float32)
    labels_b = np.empty(num_samples, dtype=np.int64)
    for start in range(0, num_samples, _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, num_samples))
        images_bp[rows], labels_b[rows] = _draw_digits(rows.stop - start, traits, noise, size=size)
    return torch.from_numpy(images_bp).view(num_samples, 1, size, size), torch.from_numpy(labels_b)


def load_digits() -> Tuple[torch.Tensor, torch.Tensor]:
    """Load scikit-learn's 1797 handwritten digits of 8x8 pixels: images_B1HW from 0 to 1, and labels_B.

    Without scikit-learn it is an error X001 that names the extra `recipes`.
    """
    message = "the small digits need `scikit-learn`"
    digits = require_extra("sklearn.datasets", extra="recipes", message=message).load_digits()
    images_b1hw = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    return images_b1hw, torch.tensor(digits.target, dtype=torch.int64)


# -- drawing -----------------------------------------------------------------------------------------------------------


def _draw_digits(
    num_samples: int, traits: np.random.Generator, noise: np.random.Generator, *, size: int
) -> Tuple[np.ndarray, np.ndarray]:
    """Draw images_BP and labels_B: look up how far each pixel is from the strokes, and put ink where it is near."""
    chance = traits.random((num_samples, 16), dtype=np.float32).T
    labels_b = np.minimum((chance[0] * _NUM_CLASSES).astype(np.int64), _NUM_CLASSES - 1)
    maps, first_maps, num_maps = _measure_maps()
    map_b = first_maps[labels_b] + (chance[1] * num_maps[labels_b]).astype(np.int64)

    x_bp, y_bp = _place_pixels(chance[2:12], size=size)
    distance_bp = _look_up(maps, map_b, x_bp, y_bp)
    half_width_b1 = _scale_chance(chance[12], 0.025, 0.06)[:, None]
    softness_b1 = _scale_chance(chance[13], 0.03, 0.07)[:, None]
    pressure_b1 = _scale_chance(chance[14], 0.75, 1.0)[:, None]
    ink_bp = np.clip((half_width_b1 - distance_bp) / softness_b1 + 0.5, 0, 1) * pressure_b1
    strength_b1 = _scale_chance(chance[15], 0.0, 0.12)[:, None]
    ink_bp += strength_b1 * noise.standard_normal(ink_bp.shape, dtype=np.float32)
    return np.clip(ink_bp, 0, 1, out=ink_bp), labels_b


def _place_pixels(chance: np.ndarray, *, size: int) -> Tuple[np.ndarray, np.ndarray]:
    """Return where on the template, a square from 0 to 1, the pixels of each image lie: x_BP and y_BP."""
    grid = (np.arange(size, dtype=np.float32) + 0.5) / size - 0.5
    angle, slant = _scale_chance(chance[0], -0.2, 0.2), _scale_chance(chance[1], -0.3, 0.3)
    width, height = _scale_chance(chance[2], 0.75, 1.15), _scale_chance(chance[3], 0.8, 1.1)
    cos, sin = np.cos(angle), np.sin(angle)
    # the inverse map, from pixel to template: the stretch is divided by
    xx, xy = (cos - slant * sin) / width, (sin + slant * cos) / width
    yx, yy = -sin / height, cos / height
    x_bh = xy[:, None] * grid + 0.5 - _scale_chance(chance[4], -0.1, 0.1)[:, None]
    x_bw = xx[:, None] * grid
    y_bh = yy[:, None] * grid + 0.5 - _scale_chance(chance[5], -0.08, 0.08)[:, None]
    y_bw = yx[:, None] * grid
    # no hand draws straight: rows move to the side, and columns up and down, as waves
    bend_x, bend_y = _scale_chance(chance[6], -0.05, 0.05), _scale_chance(chance[7], -0.05, 0.05)
    x_bh += bend_x[:, None] * np.sin(2 * np.pi * (grid + chance[8][:, None]))
    y_bw += bend_y[:, None] * np.sin(2 * np.pi * (grid + chance[9][:, None]))
    x_bhw = x_bh[:, :, None] + x_bw[:, None, :]
    y_bhw = y_bh[:, :, None] + y_bw[:, None, :]
    return x_bhw.reshape(len(angle), -1), y_bhw.reshape(len(angle), -1)


def _scale_chance(chance: np.ndarray, low: float, high: float) -> np.ndarray:
    return np.float32(low) + np.float32(high - low) * chance


# -- templates ---------------------------------------------------------------------------------------------------------

_MAP_SIZE = 96
# a map shows more than the template, so that few pixels lie outside of it
_MAP_LOW, _MAP_HIGH = -0.3, 1.3


def _look_up(maps: np.ndarray, map_b: np.ndarray, x_bp: np.ndarray, y_bp: np.ndarray) -> np.ndarray:
    """Read maps of distances between their points, linearly: distance_BP."""
    scale = np.float32((_MAP_SIZE - 1) / (_MAP_HIGH - _MAP_LOW))
    x_bp = np.clip((x_bp - np.float32(_MAP_LOW)) * scale, 0, _MAP_SIZE - 1.001)
    y_bp = np.clip((y_bp - np.float32(_MAP_LOW)) * scale, 0, _MAP_SIZE - 1.001)
    column_bp, row_bp = x_bp.astype(np.int32), y_bp.astype(np.int32)
    x_bp -= column_bp
    y_bp -= row_bp
    place_bp = (map_b[:, None] * (_MAP_SIZE * _MAP_SIZE)).astype(np.int32) + row_bp * _MAP_SIZE + column_bp
    flat = maps.reshape(-1)
    above_bp = flat[place_bp]
    above_bp += (flat[place_bp + 1] - above_bp) * x_bp
    below_bp = flat[place_bp + _MAP_SIZE]
    below_bp += (flat[place_bp + _MAP_SIZE + 1] - below_bp) * x_bp
    return above_bp + (below_bp - above_bp) * y_bp


@lru_cache(maxsize=1)
def _measure_maps() -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Measure distances to all templates' strokes: maps of R x R points, each digit's first map and number of maps."""
    templates = _list_templates()
    grid = np.linspace(_MAP_LOW, _MAP_HIGH, _MAP_SIZE)
    points_rr2 = np.stack(np.meshgrid(grid, grid), axis=-1)
    maps = [_measure_distances(points_rr2, strokes) for ways in templates for strokes in ways]
    num_maps = np.array([len(ways) for ways in templates])
    return np.stack(maps).astype(np.float32), np.cumsum(num_maps) - num_maps, num_maps


def _measure_distances(points_rr2: np.ndarray, strokes: Sequence[Stroke]) -> np.ndarray:
    distance_rr = np.full(points_rr2.shape[:2], np.inf)
    for stroke in strokes:
        for start, end in zip(np.array(stroke), np.array(stroke)[1:]):
            along = end - start
            part_rr = np.clip((points_rr2 - start) @ along / (along @ along), 0, 1)
            gap_rr2 = points_rr2 - start - part_rr[..., None] * along
            distance_rr = np.minimum(distance_rr, np.sqrt((gap_rr2**2).sum(axis=-1)))
    return distance_rr


def _list_templates() -> List[List[List[Stroke]]]:
    """Return for each digit the ways to write it; a way is a list of strokes; x goes right, y down."""
    seven = [(0.28, 0.16), (0.73, 0.16), (0.44, 0.86)]
    bow = _make_arc(0.5, 0.35, 0.2, 0.21, 170, 385)
    return [
        [[_make_arc(0.5, 0.5, 0.22, 0.36, 0, 360)], [_make_arc(0.5, 0.5, 0.16, 0.36, 0, 360)]],
        [[[(0.5, 0.13), (0.5, 0.87)]], [[(0.36, 0.3), (0.53, 0.13), (0.53, 0.87)]]],
        [
            [[*bow, (0.29, 0.85), (0.74, 0.85)]],
            [[*bow, *_make_arc(0.36, 0.78, 0.09, 0.08, 270, 90)[::-1], (0.76, 0.86)]],
        ],
        [[[*_make_arc(0.48, 0.31, 0.19, 0.18, 190, 450), *_make_arc(0.48, 0.67, 0.22, 0.2, -90, 165)]]],
        [
            [[(0.58, 0.13), (0.26, 0.62), (0.76, 0.62)], [(0.6, 0.36), (0.6, 0.88)]],
            [[(0.31, 0.16), (0.29, 0.55), (0.72, 0.55)], [(0.67, 0.14), (0.65, 0.88)]],
        ],
        [[[(0.7, 0.15), (0.36, 0.15), (0.33, 0.46), *_make_arc(0.48, 0.64, 0.22, 0.22, -125, 150)]]],
        [[[*_make_arc(0.66, 0.6, 0.37, 0.47, 265, 180), *_make_arc(0.5, 0.66, 0.21, 0.2, 180, -180)]]],
        [[seven], [seven, [(0.37, 0.5), (0.67, 0.5)]]],
        [[_make_arc(0.5, 0.31, 0.17, 0.18, 0, 360), _make_arc(0.5, 0.68, 0.21, 0.19, 0, 360)]],
        [
            [[*_make_arc(0.5, 0.34, 0.2, 0.2, 0, 360), (0.69, 0.6), (0.64, 0.87)]],
            [[*_make_arc(0.5, 0.34, 0.2, 0.2, 0, 360), *_make_arc(0.42, 0.55, 0.28, 0.32, -10, 110)]],
        ],
    ]


def _make_arc(
    x: float, y: float, radius_x: float, radius_y: float, start: float, end: float
) -> List[Tuple[float, float]]:
    """Return points of an arc, angles in degrees: 0 is right, 90 is down."""
    angles = np.radians(np.linspace(start, end, 2 + int(abs(end - start)) // 15))
    return [(x + radius_x * float(np.cos(angle)), y + radius_y * float(np.sin(angle))) for angle in angles]
