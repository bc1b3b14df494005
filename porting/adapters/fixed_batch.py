"""Fill the last batch of a dataset with padding samples whose label the loss ignores; metrics leave them out.

A static graph takes batches of one size only. `FixedBatchDataset` therefore repeats sample 0 at the end of the
dataset until the last batch is full, and gives those samples a label that the loss ignores, so that no sample is lost
and none counts twice. Programs wrap their datasets in it.

What padding does and does not change:

* Of a loss with `ignore_index`, value and gradient of a padded **micro-batch** are those of its real samples alone.
* With `reduction="mean"` that is the mean over the real samples of the micro-batch. Accumulation, replicas and output
  modes then treat all micro-batches alike, so the samples of a micro-batch with few real ones weigh more than others.
  A micro-batch of padding alone has the loss NaN (0 / 0), in torch with gradients of zero. `reduction="sum"` has
  neither problem.
* Layers that mix samples, BatchNorm above all, see the padding: `padding_checks.note_batchnorm` finds them.
* A metric that is not masked counts the padding: use `masked_accuracy` and `masked_mean`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, List, Optional, Protocol, Sequence, Tuple, Type, TypeVar, Union

import numpy
import torch
import torch.utils.data

from porting.adapters.labels import IGNORE_LABEL
from porting.diagnostics import BatchError, join_names
from porting.options import is_count
from porting.structure import replace_item

__all__ = [
    "IGNORE_LABEL",
    "FixedBatchDataset",
    "Samples",
    "count_padding",
    "count_real",
    "find_dataset",
    "masked_accuracy",
    "masked_mean",
    "read_samples",
]

_Dataset = TypeVar("_Dataset")


class Samples(Protocol):
    """A map-style dataset, or any sequence of samples."""

    def __len__(self) -> int:
        """Count the samples."""

    def __getitem__(self, index: int) -> Any:
        """Return a sample."""


class FixedBatchDataset(torch.utils.data.Dataset):
    """A map-style dataset, padded to a multiple of `batch_size` samples.

    `batch_size` is what one call takes: `PortOptions.samples_per_call`. A padding sample is sample 0 with its label,
    of whatever shape, filled with `ignore_label`; dtypes and shapes stay. Samples are tuples, named tuples, lists or
    dictionaries; `label` is the label's position or key in them. Without padding to add, the samples are passed on as
    they are. `num_real` counts the samples of the dataset itself, `num_padding` those behind them.

    A dataset that cannot be padded is a BatchError here, not at the end of the first epoch: no length, no samples, no
    label at that place, or a label that cannot hold `ignore_label`.

    >>> data = torch.utils.data.TensorDataset(torch.rand(5, 2), torch.arange(5))
    >>> padded = FixedBatchDataset(data, batch_size=4)
    >>> [int(label) for _, label in (padded[i] for i in range(len(padded)))]
    [0, 1, 2, 3, 4, -100, -100, -100]
    """

    def __init__(
        self, dataset: Samples, batch_size: int, ignore_label: int = IGNORE_LABEL, *, label: Union[int, str] = -1
    ) -> None:
        _refuse_unpaddable(dataset, batch_size)
        self.dataset = dataset
        self.batch_size = int(batch_size)
        self.ignore_label = ignore_label
        self.label = label
        self.num_real = len(dataset)
        self.num_padding = -self.num_real % self.batch_size
        if self.num_padding:
            self._make_padding(dataset[0])

    def is_padding(self, index: int) -> bool:
        """Tell whether the sample at `index` is padding; negative indices count from the end."""
        return self._find_position(index) >= self.num_real

    def __len__(self) -> int:
        """Count all samples, padding included: a multiple of `batch_size`."""
        return self.num_real + self.num_padding

    def __getitem__(self, index: int) -> Any:
        """Return a sample, or a padding sample; beyond the end an IndexError."""
        position = self._find_position(index)
        return self.dataset[position] if position < self.num_real else self._make_padding(self.dataset[0])

    def __getitems__(self, indices: Sequence[int]) -> List[Any]:
        """Return the samples at `indices`, read at once where the dataset can."""
        positions = [self._find_position(index) for index in indices]
        samples = read_samples(self.dataset, [position if position < self.num_real else 0 for position in positions])
        return [
            sample if position < self.num_real else self._make_padding(sample)
            for position, sample in zip(positions, samples)
        ]

    def as_padded_rows(self) -> Tuple[Any, int, Union[int, str], int]:
        """Say how the samples follow from the dataset's, for loaders that read whole batches of tensors at once.

        Returns the dataset, the number of samples with padding, the label's place, and the value that fills it.
        """
        return self.dataset, len(self), self.label, self.ignore_label

    def _find_position(self, index: int) -> int:
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"index {index} is out of range for {len(self)} samples")
        return position

    def _make_padding(self, sample: object) -> Any:
        """Copy `sample` with its label filled with the ignored one."""
        if isinstance(sample, (Mapping, tuple, list)):
            ignored = self._make_ignored_label(_read_label(sample, self.label))
            return replace_item(sample, self.label, ignored)
        raise BatchError.at_caller(
            "B007",
            message=f"a sample is of type `{type(sample).__name__}`, so no label is found in it",
            help="make the samples tuples `(input, label)` or dictionaries; name the label's place with `label=`",
        )

    def _make_ignored_label(self, label: object) -> Any:
        """Make a label of the same kind, dtype and shape that holds nothing but the ignored one."""
        info = _find_integer_range(label)
        if info is None:
            raise BatchError.at_caller(
                "B007",
                message=f"the label is {_describe_label(label)}, which has no value that a loss ignores",
                notes="padding needs class labels: integers, or tensors and arrays of integers",
                help=(
                    "choose sizes that divide the dataset, or let the loader drop the rest with `drop_last=True`",
                    "if the label stands elsewhere in the sample, name its place with `label=`",
                ),
            )
        if not info.min <= self.ignore_label <= info.max:
            raise BatchError.at_caller(
                "B007",
                message=f"`ignore_label={self.ignore_label}` does not fit into the label, {_describe_label(label)}",
                notes=f"it holds {info.min} to {info.max}",
                help=(
                    "pass an `ignore_label` in that range, and give the loss the same number as `ignore_index`",
                    "or make the labels int64",
                ),
            )
        if isinstance(label, torch.Tensor):
            return torch.full_like(label, self.ignore_label)
        if isinstance(label, numpy.ndarray):
            return numpy.full_like(label, self.ignore_label)
        return type(label)(self.ignore_label) if isinstance(label, numpy.integer) else self.ignore_label


def _refuse_unpaddable(dataset: object, batch_size: object) -> None:
    code = "B004"
    if not is_count(batch_size):
        fault = f"`batch_size` is {batch_size!r}, not a positive number of samples"
        remedy = "pass what one call takes: `batch_size=options.samples_per_call`"
    elif not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        fault = f"`{type(dataset).__name__}` has no length and no samples by index, so its end cannot be padded"
        remedy = "pass a map-style dataset, with `__len__` and `__getitem__`"
    elif len(dataset) == 0:
        code, fault = "B005", "the dataset has no samples"
        remedy = "padding repeats sample 0: pass a dataset that has one"
    else:
        return
    raise BatchError.at_caller(code, message=fault, help=remedy)


def _read_label(sample: Union[Mapping[Any, Any], Sequence[Any]], label: Union[int, str]) -> Any:
    """Read the label out of a sample, or say what the sample has instead."""
    if isinstance(sample, Mapping):
        if label in sample:
            return sample[label]
        has = "the keys " + join_names(sample)
    else:
        if isinstance(label, int) and -len(sample) <= label < len(sample):
            return sample[label]
        has = f"{len(sample)} parts"
    raise BatchError.at_caller(
        "B007",
        message=f"a sample has no label at {label!r}",
        notes=f"a sample is a `{type(sample).__name__}` with {has}",
        help="name the label's position or key: `FixedBatchDataset(dataset, batch_size, label=...)`",
    )


def _find_integer_range(label: object) -> Any:
    """Return an object with the `min` and `max` that a label can hold; None for anything but integers."""
    if isinstance(label, torch.Tensor):
        is_integer = label.dtype is not torch.bool and not label.is_floating_point() and not label.is_complex()
        return torch.iinfo(label.dtype) if is_integer else None
    if isinstance(label, (numpy.ndarray, numpy.integer)):
        return numpy.iinfo(label.dtype) if numpy.issubdtype(label.dtype, numpy.integer) else None
    if isinstance(label, int) and not isinstance(label, bool):
        return torch.iinfo(torch.int64)  # what the collate function makes of Python's integers
    return None


def _describe_label(label: object) -> str:
    if isinstance(label, (torch.Tensor, numpy.ndarray)):
        return f"a {type(label).__name__} of {label.dtype}"
    return f"a {type(label).__name__}"


def count_real(labels: torch.Tensor, ignore_label: int = IGNORE_LABEL) -> torch.Tensor:
    """Count the labels that are not padding: a 0-d int64 tensor.

    >>> int(count_real(torch.tensor([3, -100, 1])))
    2
    """
    return (labels != ignore_label).sum()


def read_samples(dataset: Samples, positions: Sequence[int]) -> List[Any]:
    """Read samples of a dataset, at once where it can."""
    read_at_once = getattr(dataset, "__getitems__", None)
    return list(read_at_once(positions)) if read_at_once else [dataset[position] for position in positions]


def find_dataset(dataset: object, kind: Type[_Dataset]) -> Optional[_Dataset]:
    """Return the dataset of class `kind` that `dataset` is, or is made from: by a `Subset`, an instance's share.

    >>> data = FixedBatchDataset(torch.utils.data.TensorDataset(torch.arange(5), torch.arange(5)), batch_size=4)
    >>> find_dataset(torch.utils.data.Subset(data, [0, 7]), FixedBatchDataset) is data
    True
    """
    while dataset is not None and not isinstance(dataset, kind):
        dataset = getattr(dataset, "dataset", None)
    return dataset


def count_padding(dataset: object) -> int:
    """Count the padding samples of a `FixedBatchDataset`, or of a `Subset` of one.

    >>> data = FixedBatchDataset(torch.utils.data.TensorDataset(torch.arange(5), torch.arange(5)), batch_size=4)
    >>> count_padding(data), count_padding(torch.utils.data.Subset(data, [0, 7]))
    (3, 1)
    """
    if isinstance(dataset, FixedBatchDataset):
        return dataset.num_padding
    if isinstance(dataset, torch.utils.data.Subset) and isinstance(dataset.dataset, FixedBatchDataset):
        return sum(dataset.dataset.is_padding(index) for index in dataset.indices)
    return 0


def masked_mean(values: torch.Tensor, labels: torch.Tensor, ignore_label: int = IGNORE_LABEL) -> torch.Tensor:
    """Average the values whose label is not padding: a 0-d floating-point tensor.

    `values` has the shape of `labels`: one value for each label, as from a loss with `reduction="none"`; another
    shape is a ValueError. Values at the padding do not matter, not even NaN. With no real label the mean is NaN:
    0 would look like a result.

    >>> float(masked_mean(torch.tensor([2.0, 9.0, 4.0]), torch.tensor([0, -100, 1])))
    3.0
    """
    if values.shape != labels.shape:
        raise ValueError(f"values of shape {tuple(values.shape)} for labels of shape {tuple(labels.shape)}")
    real = labels != ignore_label
    return torch.where(real, values, torch.zeros_like(values, device=values.device)).sum() / real.sum()


def masked_accuracy(output: torch.Tensor, labels: torch.Tensor, ignore_label: int = IGNORE_LABEL) -> torch.Tensor:
    """Compute the share of real labels that the output gives the highest score: a 0-d float32 tensor in [0, 1].

    `output` is (N, C, ...): scores of C classes; `labels` is (N, ...); other shapes are a ValueError. With no real
    label the accuracy is NaN, as for `masked_mean`.

    >>> float(masked_accuracy(torch.eye(3), torch.tensor([0, 2, -100])))
    0.5
    """
    if output.dim() < 2 or output.shape[:1] + output.shape[2:] != labels.shape:
        raise ValueError(
            f"output of shape {tuple(output.shape)} for labels of shape {tuple(labels.shape)}:"
            " expected (N, C, ...) and (N, ...)"
        )
    real = labels != ignore_label
    return ((output.argmax(dim=1) == labels) & real).sum() / real.sum()
