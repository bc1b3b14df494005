"""A walk through a step for the planner: captured once, and run once on tensors without values, under autograd.

What autograd saves is what the backward pass will need. Attention is taken apart into its products, because an IPU has
the matrix of scores in memory, where kernels of a CPU compute it bit by bit.
"""

from __future__ import annotations

import bisect
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

import torch
from torch import nn
from torch.fx.node import map_arg
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..adapters.stage_calls import follow_stages, number_stages
from ..capture import StepGraph, capture_step
from ..capture.graph_flow import identify_memory
from ..capture.subgraphs import Body
from ..diagnostics import PortingError, take_first_line
from ..engines.recompute.flop_counts import count_flops
from ..engines.recompute.values_for_backward import keep_values_for_backward
from ..engines.replay.direct_calls import find_direct_call
from ..engines.replay.graph_function import GraphFunction
from ..module_attributes import keep_train_modes
from ..options import PortOptions
from ..simulator.tracing_state import tracing
from ..torch_insides.fake_tensors import FakeTensorMode
from ..torch_insides.modes import DisableTorchFunction
from ..torch_insides.trees import tree_leaves, tree_map
from .step_memory import PRODUCTS, Operation, StepMemory, Value, count_device_bytes

__all__ = ["look_at_step", "walk_step"]


def look_at_step(
    model: nn.Module,
    forward: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    options: PortOptions,
    *,
    mode: str = "training",
) -> StepMemory:
    """Capture the step of `forward`, which is `model` and in training its loss, and see what it leaves in memory.

    `args` and `kwargs` are one micro-batch. Nothing is computed and nothing changes. Raises what capturing raises, and
    PortingError M002 for a step with a branch, which reads a value.
    """
    calls: List[str] = []
    graph = _capture_with_notes(model, forward, (args, kwargs), options, calls, mode)
    classes = {name: type(module).__name__ for name, module in model.named_modules()}
    called = {name: classes[name] for name in dict.fromkeys(calls)}
    tensors = [item for item in tree_leaves((tuple(args), dict(kwargs))) if isinstance(item, torch.Tensor)]
    num_rows = next((tensor.shape[0] for tensor in tensors if tensor.dim()), 1)
    return replace(walk_step(graph, num_rows, list(_name_calls(calls))), called=called)


def walk_step(graph: StepGraph, micro_batch: int, calls: Sequence[str] = ()) -> StepMemory:
    """See what the captured step `graph` of `micro_batch` rows leaves in memory.

    `calls` name the calls of modules in their order, as candidates for the beginnings of stages. Raises PortingError
    M002.
    """
    try:
        return _Walk(keep_values_for_backward(graph)).run(micro_batch, calls)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as error:
        raise PortingError.at_caller(
            "M002",
            notes=f"an operator cannot run without values: {take_first_line(error)}",
            help="look at the step without its branches (`poptorch.cond`)",
        ) from error


# -- capture -----------------------------------------------------------------------------------------------------------


def _capture_with_notes(
    model: nn.Module,
    forward: nn.Module,
    micro_batch: Tuple[Sequence[Any], Mapping[str, Any]],
    options: PortOptions,
    calls: List[str],
    mode: str,
) -> StepGraph:
    """Capture the step, and note the stage of each operator, the modules that are called, and how many were by then."""
    place = {"pipeline_stage": 0, "num_calls": 0}
    stages = options.stages or {}
    numbers = dict(zip(stages, number_stages(stages.values())))

    def note(name: str) -> None:
        calls.append(name)
        place["num_calls"] = len(calls)

    with ExitStack() as undone:
        for name, module in model.named_modules():
            if name:
                hook = module.register_forward_pre_hook(lambda _module, _args, name=name: note(name))
                undone.callback(hook.remove)
        undone.enter_context(
            follow_stages(model, stages, lambda stage, _module, _args: place.update(pipeline_stage=numbers[stage]))
        )
        undone.enter_context(keep_train_modes((*model.modules(), *forward.modules())))
        # in training, those in eval mode stay so
        if mode == "inference" or not forward.training:
            forward.train(mode == "training")
        return capture_step(
            forward,
            *micro_batch,
            mode=mode,
            prints="unavailable",
            around_forward=tracing,
            host_features="ignored",
            node_facts=lambda: dict(place),
        )


def _name_calls(calls: Sequence[str]) -> Iterator[str]:
    """Name calls as stages do: by the module alone where it is called once, and else with the number of the call.

    >>> list(_name_calls(["cell", "head", "cell"]))
    ['cell#1', 'head', 'cell#2']
    """
    totals = Counter(calls)
    counts: Counter[str] = Counter()
    for name in calls:
        counts[name] += 1
        yield name if totals[name] == 1 else f"{name}#{counts[name]}"


# -- the walk ----------------------------------------------------------------------------------------------------------


class _Walk:
    """Runs the operators of a graph one by one on tensors without values and notes what becomes of their memory."""

    def __init__(self, graph: StepGraph) -> None:
        self._graph = graph
        self._position = -1
        self._state: Set[int] = set()
        self._values: List[Value] = []
        self._numbers: Dict[int, int] = {}  # of the values, by their memory
        self._first_kept: List[Value] = []
        self._results: Dict[torch.fx.Node, Any] = {}
        self._held: List[torch.Tensor] = []  # so that no two memories have the same name
        self._operations: List[Operation] = []
        self._uses: Dict[str, int] = {}
        self._counter = count_flops()
        self._counted = 0
        self._names: Set[str] = set()
        self._num_calls: List[int] = []  # that had begun, at each operator

    def run(self, micro_batch: int, calls: Sequence[str]) -> StepMemory:
        """Walk through the forward pass and return what was seen."""
        graph = self._graph
        # autograd calls the first for each tensor that it keeps
        saved = torch.autograd.graph.saved_tensors_hooks(self._note_kept, lambda tensor: tensor)
        with FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad(), DisableTorchFunction():
            with sdpa_kernel([SDPBackend.MATH]), saved, self._counter:
                self._place_entering()
                for node in graph.graph.nodes:
                    if node.op == "call_function":
                        self._run_operator(node)
        return StepMemory(
            mode=graph.mode,
            micro_batch=micro_batch,
            operations=tuple(self._operations),
            values=tuple(self._values),
            parameters=graph.parameters,
            buffers=graph.buffers,
            first_uses=dict(self._uses),
            input_bytes=sum(count_device_bytes(info.shape, info.dtype) for info in graph.inputs),
            output_bytes=sum(count_device_bytes(info.shape, info.dtype) for info in graph.outputs),
            called={},
            calls=dict(self._iter_calls(calls)),
            operators=frozenset(self._names),
        )

    def _iter_calls(self, calls: Sequence[str]) -> Iterator[Tuple[str, int]]:
        """Iterate over calls and their first operators, if these are the module's: in a loop's body it is the loop."""
        for number, name in enumerate(calls):
            # so many calls, and this one, had begun by then
            position = bisect.bisect_right(self._num_calls, number)
            path = "" if position == len(self._operations) else self._operations[position].module_path
            if f"{path}.".startswith(f"{name.partition('#')[0]}."):
                yield name, position

    def _place_entering(self) -> None:
        graph = self._graph
        trained = {info.name for info in graph.parameters if info.requires_grad and graph.mode == "training"}
        for node in graph.placeholders:
            pattern = node.meta["val"]
            tensor = torch.empty_strided(pattern.shape, pattern.stride(), dtype=pattern.dtype)
            is_trained = node.meta["kind"] == "parameter" and node.meta.get("state_name") in trained
            self._results[node] = tensor.requires_grad_(is_trained)
            self._held.append(tensor)
            if node.meta["kind"] == "input":
                self._note_new(tensor, is_of_batch=True)
            else:
                self._state.add(identify_memory(tensor))

    def _list_numbers(self, tensors: Sequence[torch.Tensor]) -> List[int]:
        """Return the numbers of the values of tensors that are no parameter, buffer or constant."""
        return [self._numbers[key] for key in map(identify_memory, tensors) if key in self._numbers]

    def _list_values(self, tensors: Sequence[torch.Tensor]) -> List[Value]:
        return [self._values[number] for number in self._list_numbers(tensors)]

    def _run_operator(self, node: torch.fx.Node) -> None:
        self._position, self._first_kept = len(self._operations), []
        operands = [self._results[used] for used in node.all_input_nodes]
        tensors = [item for item in tree_leaves(operands) if isinstance(item, torch.Tensor)]
        values = self._list_values(tensors)
        for value in values:
            value.read_at.append(self._position)
        call = find_direct_call(node)
        args, kwargs = map_arg((call.args, call.kwargs), self._results.__getitem__)
        args = tree_map(lambda item: GraphFunction(item.graph).call if isinstance(item, Body) else item, args)
        result = call.function(*args, **kwargs)
        self._results[node] = result
        made = [item for item in tree_leaves(result) if isinstance(item, torch.Tensor)]
        self._held.extend(made)
        is_of_batch = any(value.is_of_batch for value in values)
        fresh = sum(self._note_new(tensor, is_of_batch=is_of_batch) for tensor in made)
        if is_of_batch:
            for value in (*self._first_kept, *self._list_values(made)):
                value.is_of_batch = True
        self._note_operation(node, tensors, made, fresh)

    def _note_operation(
        self, node: torch.fx.Node, operands: List[torch.Tensor], made: List[torch.Tensor], fresh_bytes: int
    ) -> None:
        state = [used for used in node.all_input_nodes if used.meta.get("kind") in ("parameter", "buffer")]
        for used in state:
            self._uses.setdefault(str(used.meta["state_name"]), self._position)
        operator = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
        self._names.add(operator)
        # an operator that was put in knows of no call
        self._num_calls.append(max((*self._num_calls[-1:], node.meta.get("num_calls", 0))))
        before, self._counted = self._counted, self._counter.get_total_flops()
        self._operations.append(
            Operation(
                module_path=str(node.meta.get("module_path", "")),
                stage=node.meta.get("pipeline_stage", 0),
                result_bytes=fresh_bytes,
                operand_bytes=sum(count_device_bytes(item.shape, item.dtype) for item in operands),
                is_product=operator in PRODUCTS,
                is_float=any(tensor.is_floating_point() for tensor in made),
                ends=tuple(node.meta.get("ends", ())),
                parameters=tuple(used.meta["state_name"] for used in state if used.meta["kind"] == "parameter"),
                results=tuple(self._list_numbers(made)),
                flops=self._counted - before,
                is_half=any(tensor.dtype in (torch.float16, torch.bfloat16) for tensor in made),
                is_convolution="conv" in operator,
            )
        )

    def _note_new(self, tensor: torch.Tensor, *, is_of_batch: bool) -> int:
        """Note the memory of a value that was not there before, and return its bytes."""
        key = identify_memory(tensor)
        if key in self._state or key in self._numbers:
            return 0
        num_bytes = count_device_bytes([tensor.untyped_storage().nbytes() // tensor.dtype.itemsize], tensor.dtype)
        self._numbers[key] = len(self._values)
        self._values.append(Value(num_bytes, self._position, [], [], is_of_batch, tensor.is_floating_point()))
        return num_bytes

    def _note_kept(self, tensor: torch.Tensor) -> torch.Tensor:
        """Note that autograd keeps `tensor`, also one that an operator makes for itself."""
        if identify_memory(tensor) not in self._state:
            self._held.append(tensor.detach())
            self._note_new(tensor, is_of_batch=False)
            for value in self._list_values([tensor]):
                if not value.kept_at:
                    self._first_kept.append(value)
                value.kept_at.append(self._position)
        return tensor
