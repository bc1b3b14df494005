"""Settings of a torch DataLoader or a dataset, read as arguments for the backend's loader."""

from __future__ import annotations

from typing import Any, Dict, Optional

import torch
import torch.utils.data
from torch.utils.data import BatchSampler, IterableDataset, RandomSampler, SequentialSampler

from porting.diagnostics import OptionError

__all__ = ["override_settings", "read_source"]


def read_source(source: Any, backend: Any) -> Dict[str, Any]:
    """Return the arguments of a torch DataLoader that mean the same as `source`."""
    if isinstance(source, torch.utils.data.DataLoader):
        _refuse_special_loader(source, backend)
        settings = {"dataset": source.dataset, "drop_last": source.drop_last, "pin_memory": source.pin_memory}
        settings.update(**_read_order(source), **_read_loading(source))
        _unwrap_batch_sampler(settings)
        return settings
    if isinstance(source, IterableDataset) or hasattr(source, "__getitem__"):
        return {"dataset": source, "drop_last": False}
    raise OptionError.at_caller(
        "P002",
        message=f"a `{type(source).__name__}` is neither a DataLoader, nor a dataset, nor a sequence",
        help="pass a list of its samples, or give its class the base `torch.utils.data.IterableDataset`",
    )


def _refuse_special_loader(loader: Any, backend: Any) -> None:
    """Refuse loaders that do more, or other things, than their settings say."""
    name = type(loader).__name__
    if isinstance(loader, backend.DataLoader):
        message, advice = "the loader is the backend's already", "give it to the model as it is"
    elif type(loader).__iter__ is not torch.utils.data.DataLoader.__iter__:
        message = f"`{name}` has an `__iter__` of its own, which the backend's loader would not run"
        advice = "pass its dataset instead: `loader.dataset`"
    elif loader.batch_size is None and loader.batch_sampler is None:
        message = "the loader does not batch (`batch_size=None`), so there is nothing to combine"
        advice = "pass its dataset and a `batch_size`, or give the model batches that fill a whole call"
    else:
        return
    raise OptionError.at_caller("P002", message=message, help=advice)


def _read_order(loader: Any) -> Dict[str, Any]:
    """Read how a torch DataLoader groups and orders its samples, as the plainest arguments that mean the same."""
    if isinstance(loader.dataset, IterableDataset):
        return {"batch_size": loader.batch_size}
    if loader.batch_size is None:
        return {"batch_sampler": loader.batch_sampler}
    settings, sampler = {"batch_size": loader.batch_size}, loader.sampler
    is_own = getattr(sampler, "data_source", None) is loader.dataset
    if type(sampler) is RandomSampler and is_own and not sampler.replacement:
        is_plain = sampler.num_samples == len(loader.dataset) and sampler.generator is loader.generator
        settings.update({"shuffle": True} if is_plain else {"sampler": sampler})
    elif type(sampler) is not SequentialSampler or not is_own:
        settings["sampler"] = sampler
    return settings


# The settings of a torch DataLoader that matter only to worker processes.
_WORKER_SETTINGS = ("prefetch_factor", "timeout", "multiprocessing_context", "persistent_workers")


def _read_loading(loader: Any) -> Dict[str, Any]:
    """Read how a torch DataLoader reads and joins its samples; torch's own defaults are left out."""
    settings = {
        "num_workers": loader.num_workers,
        "collate_fn": None if loader.collate_fn is torch.utils.data.default_collate else loader.collate_fn,
        "worker_init_fn": loader.worker_init_fn,
        "generator": loader.generator,
        "in_order": None if getattr(loader, "in_order", True) else False,
    }
    if loader.num_workers:
        settings.update({name: getattr(loader, name) for name in _WORKER_SETTINGS})
    return {name: value for name, value in settings.items() if value is not None}


def override_settings(settings: Dict[str, Any], given: Dict[str, Any], *, seed: Optional[int]) -> None:
    """Put the caller's arguments in the place of the source's, together with those that depend on them.

    A `seed` gives the loader a random generator of its own.
    """
    if "shuffle" in given and ("sampler" in settings or "batch_sampler" in settings):
        raise OptionError.at_caller(
            "P002",
            message=f"`shuffle={given['shuffle']}` was given, but the loader has a sampler of its own",
            help="leave `shuffle` out to keep the sampler's order, or pass the dataset instead: `loader.dataset`",
        )
    if "sampler" in given or "batch_sampler" in given:
        for name in ("shuffle", "sampler", "batch_sampler"):
            settings.pop(name, None)
    if "batch_sampler" in given and "batch_size" not in given:
        settings.pop("batch_size", None)
    if given.get("num_workers") == 0:
        for name in _WORKER_SETTINGS:
            settings.pop(name, None)
    settings.update(given)
    _unwrap_batch_sampler(settings)
    if seed is not None:
        if settings.get("generator") is not None:
            raise OptionError.at_caller(
                "P002", message="both `seed` and a `generator` decide the order", help="leave one of them out"
            )
        settings["generator"] = torch.Generator().manual_seed(seed)


def _unwrap_batch_sampler(settings: Dict[str, Any]) -> None:
    """Replace one of torch's own batch samplers by its `sampler` and `batch_size`."""
    if type(settings.get("batch_sampler")) is BatchSampler:
        plain = settings.pop("batch_sampler")
        settings.setdefault("batch_size", plain.batch_size)
        settings.update(sampler=plain.sampler, drop_last=plain.drop_last)
