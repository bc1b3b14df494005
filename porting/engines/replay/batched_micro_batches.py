"""Several micro-batches of a call in one run of the graph, where the graph shows that this changes no result.

Micro-batches see the same weights and nothing of each other, unless an operator writes to a weight or buffer or draws
random numbers. Otherwise the graph may run on several of them at once, mapped over them by `torch.func.vmap`, whose
rules keep each to itself: a loss stays the mean of its own micro-batch, a normalisation sees its own rows. Only the
order in which sums are rounded is another. The few rules that find rows of a neighbour where an index is out of range
are known, and their operators run alone.
"""

from __future__ import annotations

import logging
import operator
from typing import AbstractSet, Any, Callable, List, Optional, Sequence, Tuple

import torch

from ...capture import StepGraph
from ...capture.device_operators import device_operator
from ...capture.graph_flow import is_half, output_nodes, tensor_memory
from ...torch_insides.autograd import only_mapped_operators
from ...torch_insides.operators import OpOverload, read_schema
from ..calls.call_plan import CallPlan, MicroBatch, prepare_rows
from ..calls.device_state import DeviceState

__all__ = [
    "BatchedMicroBatches",
    "choose_number_at_once",
    "count_value_bytes",
    "may_run_at_once",
    "only_mapped_operators",
]

_logger = logging.getLogger("porting")

# What the micro-batches of one run compute in between stays in the caches of a processor.
_MAX_BYTES = 4 << 20
_MAX_MICRO_BATCHES = 256


def choose_number_at_once(graph: StepGraph) -> int:
    """Return how many micro-batches of `graph` are worth running at once; 1 where that would change results.

    The more a single micro-batch computes, the less is to be gained: as many run at once as keep their intermediate
    results within 4 MiB.

    >>> from porting.capture import capture_step
    >>> choose_number_at_once(capture_step(torch.nn.Linear(4, 2), [torch.ones(8, 4)], mode="inference"))
    256
    >>> choose_number_at_once(capture_step(torch.nn.Dropout(), [torch.ones(8, 4)], mode="inference"))
    1
    """
    if not may_run_at_once(graph):
        return 1
    num_bytes = count_value_bytes([node for node in graph.graph.nodes if node.op == "call_function"]) or 1
    return max(1, min(_MAX_MICRO_BATCHES, _MAX_BYTES // num_bytes))


def may_run_at_once(graph: StepGraph) -> bool:
    """Tell whether running several micro-batches of `graph` at once changes no result, be it worth it or not."""
    if graph.is_random or graph.mutated_buffers or graph.mutated_parameters:
        return False
    if any(not graph.inputs[index].shape for index in graph.mutated_inputs):
        return False  # an input without rows keeps what is written to it from one micro-batch to the next
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    # the inputs, and all that is made of them
    varying = {node for node in graph.placeholders if node.meta["kind"] == "input"}
    for node in nodes:
        if not varying.isdisjoint(node.all_input_nodes):
            varying.add(node)
    # half precision is coarse enough for the order of summation to show
    return all(_keeps_to_itself(node, varying) and not is_half(node) for node in nodes)


class BatchedMicroBatches:
    """Runs `function`, which computes `graph`, on several micro-batches at once, and says which.

    An operator may have no rule for being mapped. The first run finds out: `give_up` makes everything run by itself.
    """

    def __init__(
        self, graph: StepGraph, function: Callable[..., Tuple[torch.Tensor, ...]], *, at_most: Optional[int] = None
    ) -> None:
        """Look at the operators of `graph`.

        `at_most` is how many run at once where they may, instead of as many as are worth it in general.
        """
        self.most = choose_number_at_once(graph) if at_most is None else at_most if may_run_at_once(graph) else 1
        self._trains = graph.has_loss and graph.loss_has_gradient
        self._function = function
        # made in the first run that succeeds, and kept: mapping a function anew in each call costs more than small
        # steps
        self._mapped: Optional[Callable[..., Tuple[torch.Tensor, ...]]] = None
        self._written_inputs = frozenset(graph.mutated_inputs)
        self._patterns = [node.meta["val"] for node in output_nodes(graph.graph)]
        self._reason = ""

    def prepare(self) -> None:
        """Let torch load what it needs for several at once: 2.6 and 2.7 load their compiler, and cannot in a run."""
        torch.func.vmap(self._function)

    def run(
        self, state: DeviceState, inputs: Sequence[torch.Tensor], micro_batches: Sequence[MicroBatch], plan: CallPlan
    ) -> Optional[Tuple[List[torch.Tensor], List[torch.Tensor]]]:
        """Return the results of `micro_batches` and the rows that they worked on, [micro-batch, ...].

        Returns None if it cannot be done, because of an operator or of a fault that these values cause.
        """
        rows = [self._stack_rows(index, tensor, micro_batches, plan) for index, tensor in enumerate(inputs)]
        arguments = state.list_arguments(micro_batches[0].replica)
        try:
            return self._run_mapped(arguments, rows, state), rows
        except Exception as error:  # whatever it is, the user sees it when the micro-batch runs by itself
            self._reason = str(error)
            return None

    def _run_mapped(
        self, arguments: Sequence[torch.Tensor], rows: Sequence[torch.Tensor], state: DeviceState
    ) -> List[torch.Tensor]:
        if self._mapped is not None:
            return list(self._mapped(*arguments, *rows, *state.constants))
        along_micro_batches = [0 if tensor.dim() else None for tensor in rows]
        in_dims = (*(None for _ in arguments), *along_micro_batches, *(None for _ in state.constants))
        mapped = torch.func.vmap(self._function, in_dims=in_dims)
        with only_mapped_operators():
            results = mapped(*arguments, *rows, *state.constants)
        if not self._are_as_captured(results):
            raise RuntimeError("a result differs in shape or type")
        self._mapped = mapped
        return list(results)

    def give_up(self) -> None:
        """Run each micro-batch by itself from now on: alone they do what they could not do at once."""
        self.most = 1
        _logger.debug("micro-batches run one by one: %s", self._reason)

    def _are_as_captured(self, results: Sequence[torch.Tensor]) -> bool:
        return len(results) == len(self._patterns) and all(
            result.shape[1:] == pattern.shape and result.dtype == pattern.dtype
            for result, pattern in zip(results, self._patterns)
        )

    def _stack_rows(
        self, index: int, tensor: torch.Tensor, micro_batches: Sequence[MicroBatch], plan: CallPlan
    ) -> torch.Tensor:
        """Cut out the rows of `micro_batches`, [micro-batch, row, ...]; a copy where the graph writes to them.

        An input without dimensions is the same for all of them.
        """
        if tensor.dim() == 0:
            return tensor
        slices = tensor.view(plan.num_slices, -1, *tensor.shape[1:])
        first = micro_batches[0].position
        if all(micro_batch.position == first + number for number, micro_batch in enumerate(micro_batches)):
            rows = slices.narrow(0, first, len(micro_batches))
            return prepare_rows(rows, is_written=index in self._written_inputs, trains=self._trains)
        # Positions with gaps, as replicas of one group have them: gathered, which makes a copy anyway.
        return slices[[micro_batch.position for micro_batch in micro_batches]]


# Mapped over micro-batches they take an index that is out of range for one of another, or for none.
_UNCHECKED = frozenset(["aten::index_fill", "aten::index_fill_", "aten::one_hot"])


def _keeps_to_itself(node: torch.fx.Node, varying: AbstractSet[torch.fx.Node]) -> bool:
    """Tell whether an operator only computes, within its micro-batch: others print, call the host, loop, or leak."""
    operator_of_node: Any = node.target
    if operator_of_node is operator.getitem:
        return True
    if not isinstance(operator_of_node, OpOverload):
        return False
    special = device_operator(operator_of_node)
    if special is not None:
        return special.is_pure
    # An embedding is mapped only if the batch is the index: with a table for each micro-batch torch looks up in one
    # long table, where an index out of range finds a row of the neighbour.
    name = read_schema(operator_of_node).name
    if name == "aten::embedding":
        return node.args[0] not in varying
    return name.startswith("aten::") and name not in _UNCHECKED


def count_value_bytes(nodes: Sequence[torch.fx.Node]) -> int:
    """Return the bytes of the values of `nodes`, apart from views of one another."""
    # The last value wins in a dictionary; reversed, that is the operator that made the memory, not a view of it.
    values = {tensor_memory(node): node.meta.get("val") for node in reversed(nodes)}
    return sum(value.numel() * value.element_size() for value in values.values() if isinstance(value, torch.Tensor))
