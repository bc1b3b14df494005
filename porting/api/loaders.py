"""The backend's loader of a port: batches as its options ask, and padding checked against its loss and model."""

from __future__ import annotations

from typing import Any, Optional

import torch

from ..adapters import check_ignore_label, note_batchnorm, notify, to_ipu_dataloader
from ..adapters.fixed_batch import FixedBatchDataset, find_dataset
from .parts import Parts

__all__ = ["make_dataloader"]


def make_dataloader(parts: Parts, source: Any, *, training: bool, batch_size: Optional[int], **settings: Any) -> Any:
    """Make the loader of `PortedModel.dataloader`; `settings` are those of `to_ipu_dataloader`."""
    if batch_size is None and (parts.options.micro_batch > 1 or not hasattr(source, "batch_size")):
        batch_size = parts.options.micro_batch
    dataset = source.dataset if isinstance(source, torch.utils.data.DataLoader) else source
    padded = find_dataset(dataset, FixedBatchDataset)
    if padded is not None and padded.num_padding and training:
        for finding in (check_ignore_label(parts.loss, padded.ignore_label), note_batchnorm(parts.model)):
            if finding is not None:
                notify(finding)
    options = parts.vendor_options[training].clone()
    return to_ipu_dataloader(source, options, backend=parts.backend.module, batch_size=batch_size, **settings)
