"""Estimate the memory that each IPU needs for a step, and list remedies where it does not fit: `memory_report`.

`porting memory` and compilations use it. A step that is compiled is examined as closely only where an upper bound does
not fit. The bound comes from the shapes in the graph alone, which costs almost no time, and is about twice what the
step will need.
"""

from __future__ import annotations

import math
import operator
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

import torch

from .. import planning, simulator
from ..capture import StepGraph
from ..capture.subgraphs import Body
from ..diagnostics import BatchError, Finding, OptionError, PortingError, align_columns
from ..machines import DEFAULT, Chip, find_chip
from ..module_attributes import materialise_lazy_modules
from ..options import PortOptions
from ..structure import Structure, make_call_arguments
from ..torch_insides.trees import tree_leaves, tree_map
from .memory_model import Layout, StageMemory, balance_bytes, count_program_bytes, measure_ipus
from .step_memory import PRODUCTS, StepMemory, count_device_bytes

if TYPE_CHECKING:
    from .remedies import Remedy

__all__ = ["MemoryReport", "bound_bytes", "count_bytes_per_weight", "memory_report", "note_memory"]

_FITS, _TIGHT = 0.85, 0.97
_UNCERTAINTY = 0.15
_MEBI = 1 << 20
_WITH_TWO_MOMENTS = ("Adam", "AdamW", "LAMB")
_NAMES = {
    "weight_bytes": "weights",
    "buffer_bytes": "buffers",
    "accumulator_bytes": "gradient accumulators",
    "optimizer_bytes": "optimizer state",
    "kept_bytes": "kept for the backward pass",
    "recomputed_bytes": "computed again at one time",
    "temporary_bytes": "temporaries",
    "input_bytes": "inputs and outputs",
    "code_bytes": "code",
    "exchange_bytes": "exchange and control",
    "imbalance_bytes": "gaps and imbalance of tiles",
}
# what is kept, its gradient, and a product's copies of its operands
_COPIES = 3
# gates and states of recurrent layers, for each value that comes out of them
_RECURRENT = frozenset(["lstm", "gru", "rnn_tanh", "rnn_relu"])
_RECURRENT_COPIES = 12
# operators that make and keep nothing besides their result and what they read, with the most that they keep, as so many
# times the result: views nothing, a mask or the places of maxima are as large, and statistics are smaller
_KEPT_RESULTS = {
    **dict.fromkeys(
        "chunk detach expand permute select slice split split_with_sizes squeeze t transpose unbind unsqueeze "
        "view".split(),
        0,
    ),
    # what is written over may be copied first
    **dict.fromkeys("add_ copy_ div_ mul_ relu_ sub_".split(), 1),
    **dict.fromkeys(
        "add bmm cat clone contiguous conv1d conv2d conv3d div elu embedding exp flatten gelu identity_loss leaky_relu "
        "linear log matmul mean mm mul neg pow relu reshape rsqrt sigmoid silu sqrt stack sub sum tanh to".split(),
        1,
    ),
    **dict.fromkeys("adaptive_avg_pool2d avg_pool2d dropout log_softmax softmax".split(), 2),
    **dict.fromkeys("batch_norm group_norm layer_norm max_pool1d max_pool2d".split(), 3),
}


@dataclass(frozen=True)
class MemoryReport:
    """An estimate of the memory that each IPU of a replica needs for a training step; as a string it is a table.

    `ipus` has the bytes by purpose. `remedies` would help, in the order to try them. The estimate is uncertain by about
    15 %, `low_bytes` to `high_bytes`; `not_counted` lists what it leaves out.
    """

    target: Chip
    micro_batch: int
    ipus: Tuple[StageMemory, ...]
    remedies: Tuple[Remedy, ...]
    options: PortOptions

    not_counted = (
        "gaps between variables and the unevenness of tiles: the fullest tile decides, not the sum",
        "buffers of host streams, and of the exchange between replicas",
        "what the compiler shares, rearranges or computes again by itself",
    )

    @property
    def bytes_per_ipu(self) -> int:
        """The bytes on the fullest IPU."""
        return max(memory.total_bytes for memory in self.ipus)

    @property
    def low_bytes(self) -> int:
        """The least bytes that the fullest IPU may need."""
        return int(self.bytes_per_ipu * (1 - _UNCERTAINTY))

    @property
    def high_bytes(self) -> int:
        """The most bytes that the fullest IPU may need."""
        return int(self.bytes_per_ipu * (1 + _UNCERTAINTY))

    @property
    def share(self) -> float:
        """The used share of the fullest IPU's memory: 1.0 is all of it."""
        return self.bytes_per_ipu / self.target.memory_bytes

    @property
    def verdict(self) -> str:
        """One of "fits" (below 85 % of the memory), "tight" (up to 97 %: only a trial decides) and "does not fit"."""
        if self.share < _FITS:
            return "fits"
        return "tight" if self.share <= _TIGHT else "does not fit"

    @property
    def fits(self) -> bool:
        """Whether the verdict is that it fits, or may."""
        return self.verdict != "does not fit"

    @property
    def finding(self) -> Optional[Finding]:
        """M001 with the remedies where it does not fit, else None."""
        if self.fits:
            return None
        fullest = max(self.ipus, key=lambda memory: memory.total_bytes)
        needed, present = _format_mb(fullest.total_bytes), _format_mb(self.target.memory_bytes)
        return Finding(
            "M001",
            message=f"IPU {fullest.ipu} would need {needed}, and has {present}",
            notes=f"an estimate, {_format_mb(self.low_bytes)} to {_format_mb(self.high_bytes)}",
            help=tuple(remedy.change for remedy in self.remedies),
        )

    def to_dict(self) -> Dict[str, Any]:
        """Return the report as plain values, fit for JSON."""
        return {
            "target": self.target.name,
            "memory_bytes": self.target.memory_bytes,
            "micro_batch": self.micro_batch,
            "verdict": self.verdict,
            "bytes_per_ipu": self.bytes_per_ipu,
            "low_bytes": self.low_bytes,
            "high_bytes": self.high_bytes,
            "ipus": [
                {"ipu": memory.ipu, "stages": list(memory.stages), "total_bytes": memory.total_bytes, **memory.parts}
                for memory in self.ipus
            ],
            "remedies": [dict(remedy.__dict__, options=dict(remedy.options)) for remedy in self.remedies],
            "not_counted": list(self.not_counted),
        }

    def __str__(self) -> str:
        present = _format_mb(self.target.memory_bytes)
        lines = [f"memory of {self.target.name}: {present} an IPU; micro-batch {self.micro_batch}"]
        header = ["MiB", *(f"IPU {memory.ipu}" for memory in self.ipus)]
        rows = [[_NAMES[name], *(_format_mebi(memory.parts[name]) for memory in self.ipus)] for name in _NAMES]
        rows = [row for row in rows if any(cell != "0.0" for cell in row[1:])]
        rows.append(["together", *(_format_mebi(memory.total_bytes) for memory in self.ipus)])
        lines += align_columns([header, *rows], right=range(1, len(header)))
        low, high = (size / self.target.memory_bytes for size in (self.low_bytes, self.high_bytes))
        lines.append(f"{self.verdict}: {self.share:.0%} of the fullest IPU's memory ({low:.0%} to {high:.0%})")
        if self.verdict != "fits":
            lines.append("what helps, in this order:      alone MiB  with those before")
            # names stay whole: what is between backquotes can be pasted
            wrapper = textwrap.TextWrapper(76, "    ", "      ", break_long_words=False, break_on_hyphens=False)
            for remedy in self.remedies:
                alone, together = _format_mebi(remedy.alone_bytes), _format_mebi(remedy.together_bytes)
                lines += [f"  {remedy.name:28} {alone:>10} {together:>14}", *wrapper.wrap(remedy.change)]
        return "\n".join(lines)


def memory_report(ported: Any, batch: Structure, *, target: str = DEFAULT, mode: str = "training") -> MemoryReport:
    """Estimate the memory that the training step of `ported` needs on each IPU, without computing or compiling it.

    `batch` is a combined batch, a tuple of positional arguments or a dictionary of named ones, as for a call; its
    values do not matter. With `mode="inference"` it is that of `ported.inference()`, without labels. `target` is one
    of the chips of `porting.machines`. The step is captured once, on tensors without values, and the terms are those of
    `porting.planning.memory_model`.

    Raises OptionError P002 for an unknown target, P007 for stages of unknown modules, BatchError B004 for a batch that
    cannot be cut, CaptureError for a model that no static graph can hold, PortingError M002 for one with a branch.

    >>> import porting
    >>> ported = porting.to_ipu(torch.nn.Linear(400, 2), torch.nn.CrossEntropyLoss(), device="sim")
    >>> report = porting.memory_report(ported, (torch.ones(8, 400), torch.zeros(8, dtype=torch.int64)))
    >>> report.verdict, report.ipus[0].weight_bytes
    ('fits', 3208)
    """
    found = find_chip(target)
    if mode not in ("training", "inference"):
        raise OptionError.of("P002", message=f"`mode` is {mode!r}", help="use 'training' or 'inference'")
    port, options = ported.port, ported.options
    is_training = mode == "training"
    rows = options.samples_per_call if is_training else options.samples_per_inference_call
    args, kwargs = _cut_micro_batch(batch, rows // options.micro_batch, options.micro_batch)
    # captured by the simulator's rules, whatever the backend of the port is
    wrapped = port.wrapped.for_backend(simulator)
    forward = wrapped if is_training else wrapped.for_inference()
    materialise_lazy_modules(forward, args, kwargs)
    step = planning.look_at_step(port.model, forward, args, kwargs, options, mode=mode)
    return _make_report(step, options, ported.port_optimizer.device, found, planning.list_remedies)


def _cut_micro_batch(batch: Structure, num_parts: int, micro_batch: int) -> Tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of one run of `forward`; a `micro_batch` of 1 leaves its rows to the batch, as in calls."""
    args, kwargs = make_call_arguments(batch)
    rows = next((t.shape[0] for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor) and t.dim()), 1)
    if rows % num_parts or (micro_batch > 1 and rows != num_parts * micro_batch):
        raise BatchError.at_caller(
            "B004",
            message=f"{rows} rows cannot be cut into {num_parts} micro-batches"
            + (f" of {micro_batch}" if micro_batch > 1 else ""),
            help="pass a combined batch, as a call takes it: micro-batch x accumulation x replicas x device iterations",
        )

    def cut(item: object) -> Any:
        if not isinstance(item, torch.Tensor) or not item.dim() or item.shape[0] != rows:
            return item
        return item[: rows // num_parts].detach()

    micro: Tuple[Sequence[Any], Mapping[str, Any]] = tree_map(cut, (list(args), kwargs))
    return micro


def _make_report(
    step: StepMemory,
    options: PortOptions,
    optimizer: Optional[torch.optim.Optimizer],
    target: Chip,
    list_remedies: Callable[..., Tuple[Remedy, ...]],
) -> MemoryReport:
    """Measure `step` as the options, the optimizer and the target lay it out, with the remedies of `list_remedies`."""
    begins: List[int] = []
    for number in range(len(options.stage_ipus)):
        default = begins[-1] if begins else 0
        found = (position for position, operation in enumerate(step.operations) if operation.stage == number)
        begins.append(next(found, default))
    is_pipeline = len(begins) > 1 and step.mode == "training"
    layout = Layout(
        begins=(0, *begins[1:]),
        ipus=options.stage_ipus,
        marks=step.ends_of(options.recompute),
        recomputes=is_pipeline or bool(options.recompute),
        accumulates=is_pipeline or options.accumulation > 1,
        state_bytes=_count_state_bytes(optimizer),
        accumulator_bytes=_find_width(optimizer, "accum_type"),
        capacity=target.memory_bytes,
        program_bytes=target.program_bytes,
    )
    return MemoryReport(
        target=target,
        micro_batch=step.micro_batch,
        ipus=measure_ipus(step, layout),
        remedies=list_remedies(step, layout, options, limit=int(_FITS * target.memory_bytes)),
        options=options,
    )


def count_bytes_per_weight(optimizer: Optional[torch.optim.Optimizer]) -> int:
    """Return the bytes of the accumulated gradient and of the optimizer's state of one weight."""
    return _find_width(optimizer, "accum_type") + _count_state_bytes(optimizer)


def _count_state_bytes(optimizer: Optional[torch.optim.Optimizer]) -> int:
    """Return the bytes that the optimizer keeps for each weight, apart from the accumulated gradient."""
    if optimizer is None:
        return 0
    name, settings = type(optimizer).__name__, [group.get for group in optimizer.param_groups]
    velocity = _find_width(optimizer, "velocity_accum_type") * any(float(get("momentum", 0.0)) for get in settings)
    second = _find_width(optimizer, "second_order_momentum_accum_type")
    if name in _WITH_TWO_MOMENTS:
        return _find_width(optimizer, "first_order_momentum_accum_type") + second
    return velocity + second * (1 + any(get("centered", False) for get in settings)) * (name == "RMSprop")


def _find_width(optimizer: Optional[torch.optim.Optimizer], name: str) -> int:
    return 2 if getattr(optimizer, name, None) == torch.float16 else 4


def _format_mebi(num_bytes: int) -> str:
    return f"{num_bytes / _MEBI:,.1f}"


def _format_mb(num_bytes: int) -> str:
    return f"{num_bytes / _MEBI:,.0f} MiB"


# -- a step that is compiled -------------------------------------------------------------------------------------------


def note_memory(
    graph: StepGraph, options: PortOptions, optimizer: Optional[torch.optim.Optimizer], *, target: str = DEFAULT
) -> Optional[Finding]:
    """Return M001 with the first remedy if the captured training step would not fit into an IPU of `target`, or None.

    None as well for a step whose memory cannot be predicted, such as one with a branch.
    """
    found = find_chip(target)
    bound = bound_bytes(graph, num_stages=len(options.stage_ipus), bytes_per_weight=count_bytes_per_weight(optimizer))
    if bound <= _FITS * found.memory_bytes:
        return None
    nodes = list(graph.graph.nodes)
    for node, number in zip(nodes, planning.number_stages(node.meta.get("ipu") for node in nodes)):
        node.meta["pipeline_stage"] = number
    try:
        step = planning.walk_step(graph, next((info.shape[0] for info in graph.inputs if info.shape), 1))
    except PortingError as error:
        if error.code != "M002":
            raise
        return None
    return _make_report(step, options, optimizer, found, planning.list_first_remedy).finding


def bound_bytes(graph: StepGraph, *, num_stages: int, bytes_per_weight: int) -> float:
    """Return a bound of the bytes on one IPU; infinite for loops and branches, whose shapes are not enough.

    `bytes_per_weight` are those of its gradient and of the optimizer's state. A stage of a pipeline keeps values of up
    to two micro-batches for each of the `num_stages`.
    """
    nodes = [node for node in graph.graph.nodes if node.op == "call_function"]
    if any(isinstance(argument, Body) for node in nodes for argument in node.args):
        return math.inf
    weights = sum(count_device_bytes(info.shape, info.dtype) for info in (*graph.parameters, *graph.buffers))
    num_weights = sum(math.prod(info.shape) for info in graph.parameters)
    code = count_program_bytes(sum(_name_operator(node) in PRODUCTS for node in nodes))
    if num_stages > 1:
        # a value may be read in several stages, and is counted for each of them
        values = 2 * num_stages * _COPIES * sum(map(_measure_operator, nodes))
    else:
        ends = sum(count_device_bytes(info.shape, info.dtype) for info in (*graph.inputs, *graph.outputs))
        temporary = max((_measure_operator(node) + _count_tensors(node.all_input_nodes) for node in nodes), default=0)
        values = 2 * ends + sum(map(_bound_kept, nodes)) + 2 * temporary
    return balance_bytes(2 * weights + num_weights * bytes_per_weight + values + code)


def _bound_kept(node: torch.fx.Node) -> int:
    """Return a bound of the bytes that an operator makes, or makes for itself and keeps for its gradient."""
    # each of several results is a node of its own, which takes it
    source = node.all_input_nodes[0] if node.target is operator.getitem else node
    factor = _KEPT_RESULTS.get(_name_operator(source))
    if factor is None:
        return _COPIES * _measure_operator(node)
    made = factor * _count_tensors([node])
    if _name_operator(node) in PRODUCTS:
        # they copy what lies in another order
        made += _count_tensors([used for used in node.all_input_nodes if not used.meta["val"].is_contiguous()])
    return made


def _count_tensors(nodes: Iterable[torch.fx.Node]) -> int:
    values = tree_leaves([node.meta.get("val") for node in nodes])
    return sum(count_device_bytes(value.shape, value.dtype) for value in values if isinstance(value, torch.Tensor))


def _name_operator(node: torch.fx.Node) -> str:
    return str(getattr(getattr(node.target, "overloadpacket", None), "__name__", ""))


def _measure_operator(node: torch.fx.Node) -> int:
    """Return the bytes that an operator reads, makes and may keep for its gradient."""
    operands = [used for used in node.all_input_nodes if used.meta.get("kind") not in ("parameter", "buffer")]
    num_bytes, name = _count_tensors((node, *operands)), _name_operator(node)
    if name in _RECURRENT:
        return _RECURRENT_COPIES * num_bytes
    if name == "scaled_dot_product_attention":
        query, key = (argument.meta["val"] for argument in node.args[:2])  # type: ignore[union-attr]
        # the matrix of scores, which a kernel of the CPU never has as a whole
        return num_bytes + 4 * count_device_bytes((*query.shape[:-1], key.shape[-2]), query.dtype)
    return num_bytes
