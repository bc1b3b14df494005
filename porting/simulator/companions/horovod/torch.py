"""Stand in for `horovod.torch`: torch.distributed exchanges tensors between the processes of a program."""

from __future__ import annotations

import enum
from types import SimpleNamespace
from typing import Any, Iterable, List, Mapping, NoReturn, Optional, Tuple, Union

import torch
from torch import distributed

from ....support.process import Instance, this_instance
from .. import popdist, refuse, refuse_unknown_names

__all__ = [
    "Average",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "Product",
    "ReduceOp",
    "Sum",
    "allgather",
    "allreduce",
    "allreduce_",
    "barrier",
    "broadcast",
    "broadcast_",
    "broadcast_object",
    "broadcast_parameters",
    "init",
    "is_initialized",
    "local_rank",
    "local_size",
    "rank",
    "shutdown",
    "size",
]


class ReduceOp(enum.Enum):
    """The reductions that make one tensor of those of several processes."""

    Average = "average"
    Sum = "sum"
    Min = "min"
    Max = "max"
    Product = "product"


Average, Sum, Min, Max, Product = ReduceOp
Compression = SimpleNamespace(none=None)
_state = SimpleNamespace(is_initialized=False)


def init(*_args: object, **_kwargs: object) -> None:
    """Connect this process with the others; waits for them. A single process needs none."""
    popdist.init()
    _state.is_initialized = True


def shutdown() -> None:
    """Require `init` again; the processes stay connected, since models exchange gradients."""
    _state.is_initialized = False


def is_initialized() -> bool:
    """Tell whether `init` was called."""
    return bool(_state.is_initialized)


def rank() -> int:
    """Return which process this is, from 0."""
    return _find_instance().index


def size() -> int:
    """Return how many processes there are."""
    return _find_instance().size


def local_rank() -> int:
    """Return which process of its machine this is, from 0."""
    return _find_instance().local_index


def local_size() -> int:
    """Return how many processes this machine has."""
    return _find_instance().local_size


def allreduce(
    tensor: torch.Tensor,
    average: Optional[bool] = None,
    name: Optional[str] = None,
    compression: object = None,
    op: Optional[ReduceOp] = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Return the average (or `op`) of the processes' tensors, which have one shape and type."""
    del name, compression
    if average is not None and op is not None:
        raise ValueError("The op parameter supersedes average. Please provide only one of them.")
    chosen = op if op is not None else (Sum if average is False else Average)
    # a copy: only the functions whose names end in `_` change their argument
    result = tensor.detach().clone()
    if prescale_factor != 1.0:
        result = result * prescale_factor
    if size() > 1:
        # an average is divided afterwards: gloo, which joins processes on CPUs, has none
        operation = "SUM" if chosen is Average else chosen.name.upper()
        distributed.all_reduce(result, op=getattr(distributed.ReduceOp, operation))
        if chosen is Average:
            result = (result / size()).to(result.dtype)
    return result * postscale_factor if postscale_factor != 1.0 else result


def allreduce_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Do what `allreduce` does, in place."""
    return _overwrite_tensor(tensor, allreduce(tensor, *args, **kwargs))


def allgather(tensor: torch.Tensor, name: Optional[str] = None) -> torch.Tensor:
    """Return the processes' tensors joined along dimension 0, which may differ in length."""
    del name
    if size() == 1:
        return tensor.detach().clone()
    # as objects, because tensors of different lengths cannot be gathered otherwise
    everything: List[Any] = [None] * size()
    distributed.all_gather_object(everything, tensor.detach().contiguous())
    return torch.cat(everything)


def broadcast(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> torch.Tensor:
    """Return the tensor of process `root_rank`."""
    del name
    result = tensor.detach().clone()
    if size() > 1:
        distributed.broadcast(result, src=root_rank)
    return result


def broadcast_(tensor: torch.Tensor, root_rank: int, name: Optional[str] = None) -> torch.Tensor:
    """Overwrite the tensor with that of process `root_rank`."""
    return _overwrite_tensor(tensor, broadcast(tensor, root_rank, name))


def broadcast_object(obj: object = None, root_rank: int = 0, name: Optional[str] = None) -> Any:
    """Return the object of process `root_rank`, which must be one that can be pickled."""
    del name
    objects = [obj]
    if size() > 1:
        distributed.broadcast_object_list(objects, src=root_rank)
    return objects[0]


def broadcast_parameters(params: Union[Mapping[str, Any], Iterable[Tuple[str, Any]]], root_rank: int) -> None:
    """Overwrite the tensors of a state dict, or of (name, tensor) pairs, with those of process `root_rank`."""
    for name, value in params.items() if isinstance(params, Mapping) else params:
        # an optimizer's state dict has plain numbers too
        if isinstance(value, torch.Tensor):
            broadcast_(value, root_rank, name)


def barrier() -> None:
    """Wait until all processes have called this."""
    if size() > 1:
        distributed.barrier()


def DistributedOptimizer(*_args: object, **_kwargs: object) -> NoReturn:
    """Refuse: the device's optimizer joins gradients itself."""
    refuse("horovod.torch.DistributedOptimizer")


def _find_instance() -> Instance:
    if not _state.is_initialized:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return this_instance()


def _overwrite_tensor(tensor: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return tensor.copy_(value)


__getattr__ = refuse_unknown_names("horovod.torch")
