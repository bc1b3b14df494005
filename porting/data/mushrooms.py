"""Read the UCI data set of mushrooms, edible or poisonous, by 22 traits with letters as values, or generate its like.

B = samples, F = features, the 22 traits.
"""

from __future__ import annotations

from typing import Dict, Sequence, Tuple

import numpy as np
import torch
from torch.utils.data import TensorDataset

from porting.support.data_files import AnyPath, make_file_error, read_encoded_lines

from ..support.atomic_files import write_atomically

__all__ = ["TRAITS", "make_mushrooms", "read_mushrooms", "split_at_random", "write_mushrooms"]

TRAITS: Dict[str, str] = {
    "cap-shape": "bcfksx",
    "cap-surface": "fgsy",
    "cap-color": "bcegnpruwy",
    "bruises": "ft",
    "odor": "acflmnpsy",
    "gill-attachment": "adfn",
    "gill-spacing": "cdw",
    "gill-size": "bn",
    "gill-color": "beghknopruwy",
    "stalk-shape": "et",
    "stalk-root": "?bceruz",
    "stalk-surface-above-ring": "fksy",
    "stalk-surface-below-ring": "fksy",
    "stalk-color-above-ring": "bcegnopwy",
    "stalk-color-below-ring": "bcegnopwy",
    "veil-type": "pu",
    "veil-color": "nowy",
    "ring-number": "not",
    "ring-type": "cefnlpsz",
    "spore-print-color": "bhknoruwy",
    "population": "acnsvy",
    "habitat": "dglmpuw",
}
"""The traits in the order of the file's columns, with the letters that the data set's description allows."""

_LABELS = "ep"
_COLUMNS = {"class": _LABELS, **TRAITS}
_HELP = "the format is that of UCI's `mushrooms.csv`: a line of names, then 23 letters a line, the label first"


def read_mushrooms(path: AnyPath) -> Tuple[torch.Tensor, torch.Tensor]:
    """Read `mushrooms.csv`: features_BF, and poisonous_B1 of 0.0 and 1.0, both float32.

    A feature is the letter's index among those of its column, in the order of the alphabet. A file that is
    not there raises PortingError F002; one that is damaged F001, with line and column. Rows that are missing at the end
    as a whole cannot be noticed: the format does not say how many there are.
    """
    letters = _read_letters(path)
    return _encode_letters(letters, [np.unique(column).tolist() for column in letters[:, 1:].T])


def make_mushrooms(num_samples: int = 8124, *, seed: int, noise: float = 0.015) -> Tuple[torch.Tensor, torch.Tensor]:
    """Make mushrooms that can be learnt from: features_BF and poisonous_B1, shaped as `read_mushrooms` gives them.

    A feature is the letter's index among all of its trait, in the order of the alphabet, drawn or not.
    Poisonous is what smells badly, or has a green or chocolate spore print, or has narrow gills and a white one;
    a share `noise` of the labels is wrong. So three traits decide, and no model can be right about more than
    1 - `noise`.

    >>> features, poisonous = make_mushrooms(100, seed=0)
    >>> features.shape, poisonous.shape
    (torch.Size([100, 22]), torch.Size([100, 1]))
    """
    alphabets = [sorted(letters) for letters in TRAITS.values()]
    return _encode_letters(_draw_letters(num_samples, seed=seed, noise=noise), alphabets)


def write_mushrooms(path: AnyPath, num_samples: int = 8124, *, seed: int, noise: float = 0.015) -> None:
    """Write those of `make_mushrooms` as a file of the format that `read_mushrooms` reads.

    In a file of few mushrooms some letters are missing. Reading does not count those, so that its features are smaller.
    """
    lines = [",".join(_COLUMNS), *(",".join(row) for row in _draw_letters(num_samples, seed=seed, noise=noise))]
    write_atomically(path, "".join(f"{line}\n" for line in lines).encode("ascii"))


def split_at_random(
    samples: Sequence[torch.Tensor], *, share: float = 0.7, seed: int = 0
) -> Tuple[TensorDataset, TensorDataset]:
    """Divide samples, tensors of as many rows, into `share` to train with and the rest to test with, at random.

    ValueError for tensors that do not have as many rows as the first one.

    >>> train_set, test_set = split_at_random(make_mushrooms(10, seed=0))
    >>> len(train_set), len(test_set)
    (7, 3)
    """
    num_samples = len(samples[0])
    if any(len(part) != num_samples for part in samples):
        raise ValueError(f"samples are tensors of as many rows, not of {', '.join(str(len(part)) for part in samples)}")
    order = torch.randperm(num_samples, generator=torch.Generator().manual_seed(seed))
    train_rows, test_rows = order[: int(share * num_samples)], order[int(share * num_samples) :]
    return TensorDataset(*(part[train_rows] for part in samples)), TensorDataset(*(part[test_rows] for part in samples))


def _encode_letters(letters: np.ndarray, alphabets: Sequence[Sequence[str]]) -> Tuple[torch.Tensor, torch.Tensor]:
    """Replace the letters of each trait by their places among those of its alphabet, which is sorted."""
    columns = letters[:, 1:].T
    codes = np.stack([np.searchsorted(known, column) for known, column in zip(alphabets, columns)], axis=1)
    poisonous = letters[:, :1] == "p"
    return torch.from_numpy(codes.astype(np.float32)), torch.from_numpy(poisonous.astype(np.float32))


# -- reading -----------------------------------------------------------------------------------------------------------


def _read_letters(path: AnyPath) -> np.ndarray:
    lines = read_encoded_lines(path, encoding="ascii", fault="byte {byte:#04x} is no letter", help=_HELP)
    # not `strip`: a blank beside a letter is a fault
    rows = [line.split(",") for line in lines]
    header, names = rows[0] if rows else [], list(_COLUMNS)
    if header != names:
        ends = min(len(header), len(names))
        index = next((place for place in range(ends) if header[place] != names[place]), ends)
        found = f"`{header[index][:40]}`" if index < len(header) else "nothing"
        expected = f"the name `{names[index]}`" if index < len(names) else "the end of the line"
        what = f"{expected} should stand here, not {found}"
        raise make_file_error(path, what, line=1, column=_find_field_column(header, index), help=_HELP)
    if len(rows) == 1:
        raise make_file_error(path, "there is no mushroom below the line of names", line=1, help=_HELP)
    for number, fields in enumerate(rows[1:], start=2):
        if len(fields) != len(_COLUMNS):
            what = f"{len(fields)} fields in the line, not {len(_COLUMNS)}"
            raise make_file_error(path, what, line=number, column=_find_field_column(fields, len(_COLUMNS)), help=_HELP)
        for index, (field, (name, letters)) in enumerate(zip(fields, _COLUMNS.items())):
            if len(field) != 1 or field not in letters:
                found = f"`{field[:40]}`" if field else "an empty field"
                what = f"{found} is no value of `{name}`, which are {', '.join(letters)}"
                raise make_file_error(path, what, line=number, column=_find_field_column(fields, index), help=_HELP)
    return np.array(rows[1:])


def _find_field_column(fields: Sequence[str], index: int) -> int:
    """Return the column of the first character of a field, or where the line ends when there is no such field."""
    return min(sum(len(field) + 1 for field in fields[:index]), len(",".join(fields))) + 1


# -- making ------------------------------------------------------------------------------------------------------------

_BAD_ODORS, _BAD_SPORES = "cfmpsy", "hr"

# shares of the letters of the deciding traits, in %, close to those of the real mushrooms
_SHARES: Dict[str, Sequence[float]] = {
    "odor": (4, 3, 28, 4, 1, 42, 4, 7, 7),
    "gill-size": (69, 31),
    "spore-print-color": (1, 16, 24, 25, 1, 2, 1, 29, 1),
}
# so much rarer is the last letter of another trait than the first one if the mushroom is edible, and the reverse
_LEAN = 6.0


def _draw_letters(num_samples: int, *, seed: int, noise: float) -> np.ndarray:
    """Draw the deciding traits, the label by the rule, and the other traits, which correlate weakly with the label."""
    random = np.random.default_rng(seed)
    odor, gills, spores = (
        _draw_column(name, np.array([shares]), num_samples, random) for name, shares in _SHARES.items()
    )
    poisonous = (
        np.isin(odor, list(_BAD_ODORS)) | np.isin(spores, list(_BAD_SPORES)) | ((gills == "n") & (spores == "w"))
    )
    columns = {"odor": odor, "gill-size": gills, "spore-print-color": spores}
    for name in TRAITS:
        if name not in columns:
            rising = np.geomspace(1, _LEAN, len(TRAITS[name]))
            columns[name] = _draw_column(name, np.where(poisonous[:, None], rising, rising[::-1]), num_samples, random)
    poisonous ^= random.random(num_samples) < noise
    return np.stack([np.where(poisonous, "p", "e"), *(columns[name] for name in TRAITS)], axis=1)


def _draw_column(name: str, shares: np.ndarray, num_samples: int, random: np.random.Generator) -> np.ndarray:
    """Draw letters of a trait; `shares` has a row for all samples, or one for each."""
    limits = np.cumsum(shares / shares.sum(axis=1, keepdims=True), axis=1)
    places = (random.random((num_samples, 1)) > limits[:, :-1]).sum(axis=1)
    return np.array(list(TRAITS[name]))[places]
