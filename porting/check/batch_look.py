"""A look at the batches of a preflight: values that do not fit, and the micro-batch of a step."""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, Iterable, List, Mapping, Optional, Set, Tuple

import torch

from ..api.batch import BatchSignature, refuse_lost_values
from ..diagnostics import Finding, PortingError
from ..options import PortOptions
from ..structure import flatten_tensors, is_record, make_call_arguments, map_tensors
from ..torch_insides.trees import tree_leaves, tree_map
from .index_ranges import IndexTensors, list_index_tensors
from .step_capture import Arguments

__all__ = ["BatchLook", "cut_micro_batch", "is_loader", "list_lost_values", "zero_labels"]

_MOST_KEPT = 3
_MOST_BYTES = 2**26


class BatchLook:
    """What is seen of a loader's batches as they come: values that are lost, and the first few for further captures."""

    def __init__(self) -> None:
        """Begin before the first batch."""
        self.kept: List[Arguments] = []
        self.indices: List[IndexTensors] = []
        """The whole numbers of each batch, as far as they need little memory."""
        self._num_batches = 0
        self._num_bytes = 0
        self._shapes: Set[str] = set()
        self._findings: Dict[str, Finding] = {}

    def add(self, batch: object) -> None:
        """Take in one batch."""
        args, kwargs = make_call_arguments(batch)
        shape = str(BatchSignature(args, kwargs))
        if len(self.kept) < _MOST_KEPT:
            self.kept.insert(0 if shape not in self._shapes else len(self.kept), (args, kwargs))
        self._shapes.add(shape)
        indices = list_index_tensors((args, kwargs))
        self._num_batches += 1
        self._num_bytes += sum(tensor.numel() * tensor.element_size() for tensor in indices if tensor is not None)
        if self._num_bytes <= _MOST_BYTES:
            self.indices.append(indices)
        for finding in list_lost_values((args, kwargs)):
            self._findings.setdefault(finding.code, finding)

    @property
    def findings(self) -> List[Finding]:
        """What is wrong with values of the batches: each kind of fault once."""
        return list(self._findings.values())

    @property
    def facts(self) -> List[str]:
        """Which batches' whole numbers were not kept, and so not looked at."""
        first, last = len(self.indices) + 1, self._num_batches
        named = f"batch {first}" if first == last else f"batches {first} to {last}"
        limit = f"the whole numbers of those before need {_MOST_BYTES >> 20} MiB"
        return [f"labels and indices of {named} of the loader were not looked at: {limit}"] if first <= last else []


def is_loader(value: object) -> bool:
    """Tell batches that come one after the other from one batch: tensors, or a tuple, list, dictionary or record."""
    is_batch = isinstance(value, (torch.Tensor, torch.nn.Module, tuple, list, Mapping, str)) or is_record(value)
    return isinstance(value, Iterable) and not is_batch and not flatten_tensors(value)


def zero_labels(arguments: Arguments) -> Arguments:
    """Put the first class in the place of labels, the last argument or those called so, which may be out of range."""
    args, kwargs = arguments
    zero = partial(map_tensors, torch.zeros_like)
    named = {name: zero(value) if "label" in name or "target" in name else value for name, value in kwargs.items()}
    return (*args[:-1], *map(zero, args[-1:])), named


def list_lost_values(arguments: Arguments) -> List[Finding]:
    """List values of a batch that the device's 32 bits cannot hold (B011), and tensors on other devices (B009)."""
    args, kwargs = arguments
    found: List[Finding] = []
    tensors = flatten_tensors((args, kwargs))
    try:
        if not any(tensor.is_meta for tensor in tensors):
            refuse_lost_values(args, kwargs)
    except PortingError as error:
        found.append(error.finding)
    foreign = next((tensor.device for tensor in tensors if tensor.device.type not in ("cpu", "meta")), None)
    if foreign is not None:
        message = f"a tensor of the batch is on `{foreign}`"
        help = "leave batches on the CPU: the call moves them to the device itself"
        found.append(Finding("B009", message=message, help=help))
    return found


def cut_micro_batch(arguments: Arguments, options: PortOptions) -> Tuple[Arguments, Optional[Finding]]:
    """Return the arguments of one run of `forward`, and B004 where a batch cannot be cut as the options ask."""
    parts = options.micro_batches_per_call
    tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor) and leaf.dim()]
    rows = tensors[0].shape[0] if tensors else 1
    if parts == 1:
        return arguments, None
    if rows % parts:
        return arguments, Finding(
            "B004",
            message=f"{rows} rows cannot be cut into {parts} micro-batches",
            notes=f"{options.accumulation} accumulation x {options.replicas} replicas x "
            f"{options.device_iterations} device iterations",
            help="take batches from `ported.dataloader(...)`: it makes them of `options.samples_per_call` rows",
        )

    def cut(item: Any) -> Any:
        is_cut = isinstance(item, torch.Tensor) and item.dim() and item.shape[0] == rows
        return item[: rows // parts].detach() if is_cut else item

    args, kwargs = tree_map(cut, (list(arguments[0]), arguments[1]))
    return (tuple(args), kwargs), None
