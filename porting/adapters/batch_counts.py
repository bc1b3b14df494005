"""Count on the host the batches that each BatchNorm has seen, since a device has no integer variables.

Runners bring the counts up to date whenever weights are fetched.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Dict, Iterator, List, Optional, Tuple

import torch
from torch import nn

from porting.host_tensors import host_tensors, walk_modules
from porting.torch_insides.modes import DisableTorchFunctionSubclass
from porting.torch_insides.modules import BATCH_NORMS

if TYPE_CHECKING:
    from porting.capture import StepGraph

__all__ = ["BatchCounts"]

_COUNT, _MEAN = "num_batches_tracked", "running_mean"


class BatchCounts:
    """Counts on the host what a device runs, and brings `num_batches_tracked` up to date when weights are fetched.

    As in plain PyTorch each run of a BatchNorm in train mode counts: a micro-batch, and each use within it. Those of
    one replica count, whose statistics the host gets. `num_unseen` are the runs of `forward` since the last fetch.
    """

    def __init__(self, model: nn.Module, graph: Optional[StepGraph]) -> None:
        """Count the runs in `graph`, a captured step of `model`; without one each BatchNorm in train mode runs once."""
        uses = _collect_uses(model) if graph is None else _count_uses(graph)
        self._uses: List[Tuple[torch.Tensor, int]] = [
            (host.tensor, uses[host.name])
            for host in (host_tensors(model) if uses else ())
            # the device counts itself what steers a cumulative average
            if host.name in uses and not host.tensor.is_floating_point()
        ]
        self.num_unseen = 0

    @contextmanager
    def survive_fetch(self) -> Iterator[None]:
        """Surround a fetch of the weights, which brings the counts of the compilation back."""
        with DisableTorchFunctionSubclass():
            # plain tensors of the same memory: a look at the tensors themselves would fetch again
            counts = [(torch.Tensor.detach(tensor), uses) for tensor, uses in self._uses]
        before = [count.clone() for count, _uses in counts]
        yield
        num_runs, self.num_unseen = self.num_unseen, 0
        for (count, uses), value in zip(counts, before):
            count.copy_(value + num_runs * uses)


def _collect_uses(model: nn.Module) -> Dict[str, int]:
    norms = [(prefix, module) for prefix, module in walk_modules(model) if isinstance(module, BATCH_NORMS)]
    return {prefix + _COUNT: 1 for prefix, module in norms if module.training and module.track_running_stats}


def _count_uses(graph: StepGraph) -> Dict[str, int]:
    """Count the operators that update the running statistics of each BatchNorm, by the name of its count."""
    names = {node: info.name for node, info in zip(graph.placeholders, graph.entering)}
    uses: Dict[str, int] = {}
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.batch_norm.default and node.args[5]:
            name = names.get(node.args[3], "")
            if name.endswith(_MEAN):
                count = name[: -len(_MEAN)] + _COUNT
                uses[count] = uses.get(count, 0) + 1
    return uses
