"""One run of micro-batches as a flat graph of ATen operators: forward, and the gradients of the trained parameters."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ...capture import StepGraph
from ...capture.graph_flow import identify_memory, output_nodes
from ...capture.subgraphs import Body, bodies_of, run_cond
from ...torch_insides.autograd import only_mapped_operators
from ...torch_insides.fake_tensors import FakeTensorMode
from ...torch_insides.modes import DisableTorchFunctionSubclass
from ...torch_insides.operators import NORMALISE_BATCH
from ...torch_insides.tensors import is_zero_tensor
from ..calls.guards import shut_out_host_modes
from ..contract.failures import NotCompilable, failure_reason
from ..replay.graph_function import GraphFunction
from .ctc_losses import WRITTEN_OUT_CTC
from .joined_products import join_products
from .random_order import declare_random_order
from .recurrent_cells import MOST_CELLS, count_cells
from .why_replay import CHANGES_SHAPE, MAKES_VALUES_ON_HOST
from .written_out import WRITTEN_OUT

__all__ = ["TracedRun", "make_fake_tensors", "remove_branches", "trace", "trace_run"]

aten = torch.ops.aten


@dataclass(frozen=True)
class TracedRun:
    """The graph of `num_micro_batches` micro-batches at once.

    It takes the parameters and buffers of one replica, the rows of the inputs, the constants, and if it trains the seed
    of the gradient. It returns the results, as the call would, then a gradient for each of `with_gradient`, indices of
    parameters. Results of several micro-batches are stacked. `patterns` are tensors like the results of one, without
    values.
    """

    graph: torch.fx.Graph
    num_micro_batches: int
    num_results: int
    takes_seed: bool
    with_gradient: Tuple[int, ...]
    patterns: Tuple[torch.Tensor, ...]


def remove_branches(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Return `graph`, or a copy in which both branches of a condition run and its value selects the results."""
    if not any(node.target is run_cond or bodies_of(node) for node in graph.nodes):
        return graph
    copied = torch.fx.Graph()
    copied.output(copied.graph_copy(graph, {}))
    for node in copied.nodes:
        if node.target is run_cond:
            # No program can choose between two graphs, but one that runs both can choose between their results.
            node.target = _run_both
        if bodies_of(node):
            node.args = tuple(
                Body(remove_branches(argument.graph)) if isinstance(argument, Body) else argument
                for argument in node.args
            )
    return copied


def _run_both(
    condition: torch.Tensor,
    then_body: Callable[..., Sequence[Any]],
    then_captured: Sequence[Any],
    else_body: Callable[..., Sequence[Any]],
    else_captured: Sequence[Any],
) -> List[torch.Tensor]:
    """Do what `run_cond` does where both bodies may run: select the results of one of them."""
    is_then = condition.reshape(()).to(torch.bool)
    pairs = zip(then_body(*then_captured), else_body(*else_captured))
    return [torch.where(is_then, then, other) for then, other in pairs]


# -- tracing -----------------------------------------------------------------------------------------------------------


@contextmanager
def make_fake_tensors() -> Iterator[FakeTensorMode]:
    """Make tensors without values while the context lasts; torch's own modes of the caller are shut out."""
    # Tracing has modes of its own, in which those of the caller would take part.
    with shut_out_host_modes(), DisableTorchFunctionSubclass(), FakeTensorMode() as mode:
        yield mode


def trace(function: Callable[..., Any], arguments: Sequence[torch.Tensor]) -> torch.fx.Graph:
    """Return the operators of `function` on tensors without values, made in the `make_fake_tensors` of the caller.

    Raises NotCompilable for whatever cannot be traced.
    """
    try:
        traced = make_fx(function, decomposition_table={**WRITTEN_OUT, **WRITTEN_OUT_CTC}, tracing_mode="real")(
            *arguments
        )
    except NotCompilable:
        raise
    except Exception as error:
        raise NotCompilable(f"the step cannot be traced: {failure_reason(error)}") from error
    graph: torch.fx.Graph = traced.graph
    # A tensor that was made while tracing, and not by an operator, holds values that nobody will compute again.
    if any(node.op == "get_attr" for node in graph.nodes):
        raise NotCompilable(MAKES_VALUES_ON_HOST)
    for node in graph.nodes:
        # A normalisation that writes to its running statistics has a form that says so in its schema.
        if node.target is aten.native_batch_norm.default and node.args[5] and node.args[3] is not None:
            node.target = NORMALISE_BATCH
    declare_random_order(graph)
    return graph


def trace_run(
    graph: StepGraph,
    function: GraphFunction,
    arguments: Sequence[torch.Tensor],
    *,
    trained: Sequence[int] = (),
    num_micro_batches: int = 1,
    owns_gradients: bool = False,
) -> TracedRun:
    """Trace `function`, which computes `graph`, on `arguments` without values, and its backward pass.

    `arguments` are the parameters, buffers, rows and constants; with several micro-batches the rows have them as their
    first dimension. `trained` are the indices of the parameters to differentiate by. With `owns_gradients` each
    gradient has the memory format of its parameter and shares memory with nothing. Raises NotCompilable.
    """
    run = _Run(graph, function.call, trained, num_micro_batches, owns_gradients)
    seed = [torch.empty((), dtype=torch.float32)] if trained else []
    with _write_out_recurrence(graph.graph):
        traced = trace(run, [*arguments, *seed])
    if trained and not torch.are_deterministic_algorithms_enabled():
        join_products(traced)
    firsts = run.results if num_micro_batches == 1 else [value[0] for value in run.results]
    patterns = tuple(torch.empty_strided(first.shape, first.stride(), dtype=first.dtype) for first in firsts)
    return TracedRun(traced, num_micro_batches, len(run.results), bool(trained), tuple(run.with_gradient), patterns)


@contextmanager
def _write_out_recurrence(graph: torch.fx.Graph) -> Iterator[None]:
    """Let short LSTMs consist of the operators of their cells, which a compiler fuses."""
    # Otherwise torch takes oneDNN's kernel for a layer, and code compiled ahead of time cannot call its backward pass.
    backend: Any = torch.backends.mkldnn
    before = backend.enabled
    if not 0 < count_cells(graph) <= MOST_CELLS:
        yield
        return
    backend.enabled = False
    try:
        yield
    finally:
        backend.enabled = before


@dataclass
class _Run:
    """The function that is traced: as the replay engine's micro-batch, on other tensors."""

    graph: StepGraph
    function: Callable[..., Sequence[torch.Tensor]]
    trained: Sequence[int]
    num_micro_batches: int
    owns_gradients: bool
    results: Sequence[torch.Tensor] = ()
    with_gradient: Sequence[int] = ()

    def __call__(self, *arguments: torch.Tensor) -> Tuple[torch.Tensor, ...]:
        graph = self.graph
        # The gradient of the loss is an argument, so that a loss scaling is not compiled in.
        seed: Optional[torch.Tensor] = arguments[-1] if self.trained else None
        given = arguments[:-1] if self.trained else arguments
        first_input = len(graph.parameters) + len(graph.buffers)
        end_of_inputs = first_input + len(graph.inputs)
        with torch.set_grad_enabled(bool(self.trained)):
            # Detached, so that autograd sees leaves, and the writes of `forward` still reach the caller's memory.
            values = [value.detach() for value in given[:first_input]]
            for index in self.trained:
                values[index].requires_grad_()
            rows = list(given[first_input:end_of_inputs])
            for index in graph.mutated_inputs:
                # the rows are the host's, who has to see none of the writes but through the results
                rows[index] = rows[index].clone()
            outputs = self._run_forward([*values, *rows, *given[end_of_inputs:]])
            gradients = self._run_backward(outputs, [values[index] for index in self.trained], seed)
        results = [*outputs[: len(graph.outputs)], *(rows[index] for index in sorted(graph.mutated_inputs))]
        shared = {identify_memory(value) for value in given}
        copied = (result.clone() if identify_memory(result) in shared else result for result in results)
        self.results = [result.detach() for result in copied]
        if self.owns_gradients:
            trained = [values[index] for index in self.with_gradient]
            gradients = _detach_gradients(gradients, trained, shared | set(map(identify_memory, self.results)))
        return (*self.results, *gradients)

    def _run_forward(self, values: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        function, micro_batches = self.function, torch.Size()
        if self.num_micro_batches > 1:
            first = len(self.graph.parameters) + len(self.graph.buffers)
            inputs = range(first, first + len(self.graph.inputs))
            in_dims = tuple(0 if index in inputs and value.dim() else None for index, value in enumerate(values))
            function = torch.func.vmap(self.function, in_dims=in_dims)
            micro_batches = torch.Size([self.num_micro_batches])
        # A program that loops over micro-batches inside would be larger and no faster than several runs.
        with only_mapped_operators() if micro_batches else nullcontext():
            outputs = function(*values)
        for output, node in zip(outputs, output_nodes(self.graph.graph)):
            pattern = node.meta["val"]
            if output.shape != (*micro_batches, *pattern.shape) or output.dtype != pattern.dtype:
                raise NotCompilable(CHANGES_SHAPE)
        return outputs

    def _run_backward(
        self, outputs: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor], seed: Optional[torch.Tensor]
    ) -> List[torch.Tensor]:
        if seed is None:
            return []
        loss = outputs[-1]  # the step ends in it
        start = seed.to(loss.dtype).expand(loss.shape)
        # `grad`, not `backward`: gradients come back as values of the graph instead of into `.grad`.
        found = torch.autograd.grad([loss], parameters, [start], allow_unused=True)
        self.with_gradient = [index for index, gradient in zip(self.trained, found) if gradient is not None]
        gradients = (gradient for gradient in found if gradient is not None)
        # autograd has a shorthand for a gradient that is zero everywhere
        return [torch.zeros_like(gradient) if is_zero_tensor(gradient) else gradient for gradient in gradients]


def _detach_gradients(
    gradients: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor], shared: Set[int]
) -> List[torch.Tensor]:
    found: List[torch.Tensor] = []
    for gradient, parameter in zip(gradients, parameters):
        # Fused kernels walk through weight and gradient by address.
        if gradient.stride() != parameter.stride():
            gradient = torch.empty_like(parameter, requires_grad=False).copy_(gradient)
        elif identify_memory(gradient) in shared:
            gradient = gradient.clone()
        shared = shared | {identify_memory(gradient)}
        found.append(gradient.detach())
    return found
