"""Define a trained Chainer model without Chainer: a small network in NumPy, and the file that it saves.

B = images, C = channels, H and W = height and width. The network is

    conv1 = L.Convolution2D(1, 8, 5); bn1 = L.BatchNormalization(8); conv2 = L.Convolution2D(8, 16, 5)
    fc3 = L.Linear(None, 64); fc4 = L.Linear(64, 10)
    h = F.max_pooling_2d(F.relu(bn1(conv1(x))), 3, 2); h = F.max_pooling_2d(F.relu(conv2(h)), 3, 2)
    y = fc4(F.relu(fc3(h)))
"""

from __future__ import annotations

import atexit
import functools
import io
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Dict

import numpy as np
import torch

from porting.data.digits import make_digits

__all__ = ["compute_logits", "make_snapshot", "provide_snapshot", "save_npz"]

Arrays = Dict[str, np.ndarray]
PREFIX = "updater/model:main/predictor/"


@functools.lru_cache(maxsize=None)
def provide_snapshot(path: str = "") -> Path:
    """Give the snapshot at `path`, or write a stand-in into a folder for temporary files."""
    if path:
        return Path(path)
    file = Path(tempfile.mkdtemp(prefix="from_chainer-")) / "snapshot_iter_600.npz"
    atexit.register(shutil.rmtree, file.parent, ignore_errors=True)
    save_npz(file, make_snapshot())
    return file


def compute_logits(images: torch.Tensor, path: Path) -> torch.Tensor:
    """Compute logits_BC of images_B1HW by Chainer's definitions, with the weights of a snapshot of this network."""
    with np.load(path) as archive:
        snapshot = dict(archive)
    hidden = _compute_features(images.numpy(), snapshot)
    return torch.from_numpy(hidden @ snapshot[f"{PREFIX}fc4/W"].T + snapshot[f"{PREFIX}fc4/b"]).float()


def make_snapshot(seed: int = 0) -> Arrays:
    """Make the content of a trainer's snapshot: the predictor's arrays, and entries that are no weights.

    The last layer is fitted to digits by least squares, so that the network recognises most of them.
    """
    draws = np.random.default_rng(seed)
    shapes = {"conv1": (8, 1, 5, 5), "conv2": (16, 8, 5, 5), "fc3": (64, 256)}
    arrays: Arrays = {}
    for link, shape in shapes.items():
        scale = np.prod(shape[1:]) ** -0.5
        arrays[f"{PREFIX}{link}/W"] = (draws.standard_normal(shape) * scale).astype(np.float32)
        arrays[f"{PREFIX}{link}/b"] = np.zeros(shape[0], np.float32)
    images, labels = make_digits(1500, seed=seed + 10)
    maps = _convolve(images.numpy()[:300], arrays[f"{PREFIX}conv1/W"], arrays[f"{PREFIX}conv1/b"])
    arrays[f"{PREFIX}bn1/avg_mean"] = maps.mean(axis=(0, 2, 3)).astype(np.float32)
    arrays[f"{PREFIX}bn1/avg_var"] = maps.var(axis=(0, 2, 3)).astype(np.float32)
    arrays[f"{PREFIX}bn1/gamma"] = draws.uniform(0.5, 1.5, 8).astype(np.float32)
    arrays[f"{PREFIX}bn1/beta"] = draws.standard_normal(8).astype(np.float32) * 0.1
    arrays[f"{PREFIX}bn1/N"] = np.array(0)
    arrays["updater/iteration"] = np.array(600)
    arrays["updater/optimizer:main/predictor/fc4/W/m"] = np.zeros((10, 64), np.float32)
    features = np.c_[_compute_features(images.numpy(), arrays), np.ones(len(images))]
    wanted = 6.0 * np.eye(10)[labels.numpy()]
    fitted = np.linalg.solve(features.T @ features + 30.0 * np.eye(features.shape[1]), features.T @ wanted)
    arrays[f"{PREFIX}fc4/W"] = fitted[:-1].T.astype(np.float32)
    arrays[f"{PREFIX}fc4/b"] = fitted[-1].astype(np.float32)
    return arrays


def save_npz(path: Path, arrays: Arrays) -> None:
    """Write the file as `chainer.serializers.save_npz` does: compressed, one entry an array."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, array)
            archive.writestr(f"{name}.npy", content.getvalue())


def _compute_features(images: np.ndarray, snapshot: Arrays) -> np.ndarray:
    """Compute the input of the last layer."""
    arrays = {name[len(PREFIX) :]: array for name, array in snapshot.items() if name.startswith(PREFIX)}
    hidden = _convolve(images, arrays["conv1/W"], arrays["conv1/b"])
    hidden = _pool(np.maximum(_normalise(hidden, arrays), 0))
    hidden = _pool(np.maximum(_convolve(hidden, arrays["conv2/W"], arrays["conv2/b"]), 0))
    return np.maximum(hidden.reshape(len(images), -1) @ arrays["fc3/W"].T + arrays["fc3/b"], 0)


# every window of an array, as a view; its type is known to few versions of NumPy
_slide: Any = np.lib.stride_tricks.sliding_window_view


def _convolve(inputs: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    windows = _slide(inputs, weight.shape[2:], axis=(2, 3))
    return np.einsum("bchwij,ocij->bohw", windows, weight, optimize=True) + bias[:, None, None]


def _normalise(inputs: np.ndarray, arrays: Arrays) -> np.ndarray:
    """Normalise by the running statistics; Chainer's eps is 2e-5, torch's 1e-5."""
    mean, variance, gamma, beta = (
        arrays[f"bn1/{name}"][:, None, None] for name in ("avg_mean", "avg_var", "gamma", "beta")
    )
    return gamma * (inputs - mean) / np.sqrt(variance + 2e-5) + beta


def _pool(inputs: np.ndarray) -> np.ndarray:
    """Pool 3 x 3 in steps of 2; by Chainer's default the last window may reach beyond the edge (`cover_all`)."""
    _num, _channels, height, width = inputs.shape
    rows, columns = ((size - 3 + 1) // 2 + 1 for size in (height, width))
    padding = ((0, 0), (0, 0), (0, 2 * rows + 1 - height), (0, 2 * columns + 1 - width))
    padded = np.pad(inputs, padding, constant_values=-np.inf)
    windows = _slide(padded, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    return windows.max(axis=(4, 5))
