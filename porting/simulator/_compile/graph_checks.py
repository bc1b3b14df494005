"""Checks of a captured graph: pipeline and IPUs, overlapped I/O, buffers that replicas share, and its operators.

Those are checked against the operators of the device, and what the device leaves out is applied.
"""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, Iterator, List, Mapping, NoReturn, Optional, Sequence

import torch
from torch import nn

from ...capture import StepGraph
from ...capture.graph_flow import ValueFlow, output_nodes, tensor_memories, written_nodes
from ...capture.operator_schema import change_arguments, declared_written_arguments, operator_name
from ...capture.subgraphs import bodies_of
from ...diagnostics import Finding, list_names
from .._device.device_target import count_reserved_ipus, counts_as_hardware
from .._logging import logger
from .._operators.operator_limits import LIMITS, OperatorCall, check_write
from .._options.executor_options import uses_pipeline
from .._scopes.executed_operators import is_convolution, label_operator, list_executed_operators
from .._scopes.execution_strategies import ParallelPhasedExecution
from .._scopes.graph_scopes import GraphScopes
from ..enums import OutputMode, OverlapMode
from ..errors import native_error
from ..options import Options
from .capture_errors import CaptureRefusal

__all__ = ["check_operators", "check_overlap", "check_pipeline", "refuse_written_buffers"]

_MAX_IPUS = 64
_MIN_IO_TILES = 32


def check_overlap(graph: StepGraph, options: Options) -> None:
    """Refuse `set_overlap_for_input` and `set_overlap_for_output` where they must not be, unless with `NoOverlap`."""
    marks = [node for node in graph.graph.nodes if _requests_overlap(node)]
    # PopTorch looks at the graph before the options, so a program with several faults gets the same message first
    for mark in marks:
        if label_operator(mark) == "set_overlap_for_input":
            _check_overlapped_input(mark)
    for mark in marks:
        if label_operator(mark) == "set_overlap_for_output":
            _check_overlapped_output(mark)
    if not marks:
        return
    if uses_pipeline(options):
        raise native_error(
            "Overlapped IO is not supported with poptorch.PipelinedExecution. If you are using only one IPU, please "
            "switch to poptorch.ShardedExecution."
        )
    if options.TensorLocations.toDict().get("numIOTiles", 0) < _MIN_IO_TILES:
        raise native_error(
            f"No IO tiles allocated. You must allocate at least {_MIN_IO_TILES} IO tiles using "
            "poptorch.Options().TensorLocations.numIOTiles."
        )
    if options.output_mode not in (OutputMode.All, OutputMode.Sum):
        raise native_error(
            "Unsupported output mode for overlapped IO. Please switch output mode to poptorch.OutputMode.All or "
            "poptorch.OutputMode.Sum."
        )


def _requests_overlap(node: torch.fx.Node) -> bool:
    if node.op != "call_function" or not label_operator(node).startswith("set_overlap_for_"):
        return False
    mode = node.args[1] if len(node.args) > 1 else node.kwargs.get("mode")
    return mode != OverlapMode.NoOverlap.value


def _check_overlapped_input(mark: torch.fx.Node) -> None:
    source = mark.all_input_nodes[0]
    inputs = [node for node in mark.graph.nodes if node.op == "placeholder" and node.meta.get("kind") == "input"]
    if source not in inputs:
        raise native_error("poptorch.set_overlap_for_input applied on a node which is not a tensor input to the model.")
    if len(source.users) > 1:
        # by its number: PopTorch's compiled part knows no names of inputs
        raise native_error(
            "poptorch.set_overlap_for_input must be the only op applied to an input. This is not the case for input "
            f"{inputs.index(source)} to the model."
        )


def _check_overlapped_output(mark: torch.fx.Node) -> None:
    num_times = output_nodes(mark.graph).count(mark)
    if num_times > 1:
        raise native_error(
            "poptorch.set_overlap_for_output cannot be used with a tensor that is returned twice. Please check all "
            "returned tensors including those nested in tuples/lists."
        )
    if num_times == 0:
        raise native_error(
            "poptorch.set_overlap_for_output applied on a node which is not a tensor output to the model."
        )


def check_pipeline(graph: StepGraph, scopes: GraphScopes, options: Options) -> int:
    """Return how many IPUs the model needs.

    Raises `poptorch.Error` for the first thing about blocks, `MultiConv`s and IPUs that a device would refuse. Whether
    so many IPUs are free is found out when a device is taken.
    """
    operators = list_executed_operators(graph.graph, with_bodies=True)
    if scopes.has_nested_multi_conv:
        raise native_error("Nested poptorch.MultiConv is not supported.")
    filled = {
        node.meta["multi_conv"]["number"] for node in operators if "multi_conv" in node.meta and is_convolution(node)
    }
    if any(multi_conv["number"] not in filled for multi_conv in scopes.multi_convs):
        raise native_error("Unexpected end_multi_conv, is the IR malformed?")
    for node in operators:
        # None means that blocks are in use and this operator is outside; a model without blocks has no entry
        if node.meta.get("block", "") is None:
            place = node.meta.get("place")
            where = f" ({node.target} at {place})" if place else ""
            raise native_error(f"No active Block, all the ops must belong to a Block{where}")
    # The compiler's own operators have no IPU: they follow those around them.
    placed = [node for node in operators if node.meta.get("ipu") is not None]
    if isinstance(options._execution_strategy, ParallelPhasedExecution):
        if any(node.meta["phase"] % 2 != node.meta["ipu"] % 2 for node in placed):
            raise native_error(
                "When phases are executed in parallel: even phases must run on even IPUs and odd phases on odd IPUs"
            )
    ipus = [node.meta["ipu"] for node in placed]
    # a replica has all up to the one with the largest number
    num_ipus: int = (1 + max(ipus, default=0)) * options.replication_factor
    if num_ipus > _MAX_IPUS:
        raise native_error(
            f"Too many IPUs requested ({num_ipus}). Experiments that need more than {_MAX_IPUS} IPUs require "
            "distributed execution."
        )
    if counts_as_hardware(options):
        count_reserved_ipus(num_ipus, may_round=options.auto_round_num_ipus)
    if uses_pipeline(options):
        _check_pipeline_size(ipus, options, is_training=graph.mode == "training")
    return num_ipus


def _check_pipeline_size(ipus: List[int], options: Options, *, is_training: bool) -> None:
    """Refuse a pipeline that a call cannot fill; `ipus` are those of the operators of the forward pass in order."""
    # A pipeline begins on IPU 0, where the inputs arrive, also if the first block is on another one. Operators that
    # follow each other on one IPU are one stage.
    num_stages = 1 + sum(before != after for before, after in zip([0, *ipus], ipus))
    if num_stages == 1:
        return
    if not is_training and options.device_iterations < num_stages:
        raise native_error(
            "poptorch.Options().deviceIterations must be greater than or equal to the number of pipeline stages "
            f"({num_stages}) when using poptorch.PipelinedExecution."
        )
    # the way back passes all stages but the last once more
    num_training_stages = 2 * num_stages - 1
    if is_training and options.Training.gradient_accumulation < num_training_stages:
        raise native_error(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to the number of pipeline "
            f"stages ({num_training_stages}) when using poptorch.PipelinedExecution. Please note that a model with "
            f"{num_stages} pipeline stages in PopTorch will have an additional {num_stages - 1} stages when training."
        )


def refuse_written_buffers(graph: StepGraph, options: Options) -> None:
    """Raise `poptorch.Error` if `forward` itself writes into a buffer that replicas are to share.

    Like PopTorch this goes by what the operators say of themselves. The schema of batch norm does not say that it
    writes: each replica updates running statistics of its own, and the host gets the first one's.
    """
    replicated = options.replication_factor > options.input_group_size
    if not replicated or not options.broadcast_buffers or not graph.mutated_buffers:
        return
    changed: List[torch.fx.Node] = []
    for node in graph.graph.nodes:
        if isinstance(node.target, torch._ops.OpOverload):
            arguments = declared_written_arguments(node.target, node.args, node.kwargs)
            changed += [argument for argument in arguments if isinstance(argument, torch.fx.Node)]
    # by memory: `forward` may write through a view of the buffer
    memory = tensor_memories(changed)
    named = zip(graph.buffers, graph.placeholders[len(graph.parameters) :])
    written = sorted(
        info.name for info, node in named if info.name in graph.mutated_buffers and tensor_memories([node]) & memory
    )
    if written:
        raise native_error(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate buffers becoming out of "
            "sync between replicas, you can disable buffer broadcasting using poptorch.Options.broadcastBuffers(False)."
            f" (modified: {list_names(written, most=3, quote='')})"  # each of a deep network's layers may have some
        )


# Operators that the device has no counterpart of, neither directly nor as a composition.
_UNSUPPORTED: FrozenSet[str] = frozenset(
    "adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d fractional_max_pool2d fractional_max_pool3d "
    "max_unpool1d max_unpool2d max_unpool3d channel_shuffle pixel_unshuffle unflatten affine_grid_generator "
    "grid_sampler grid_sampler_2d grid_sampler_3d huber_loss multi_margin_loss multilabel_margin_loss logical_xor "
    "angle digamma special_digamma special_psi erfinv special_erfinv heaviside hypot lgamma special_gammaln logaddexp "
    "mvlgamma special_multigammaln nan_to_num polygamma special_polygamma sgn sinc special_sinc xlogy special_xlogy "
    "aminmax dist kthvalue mode nanmean quantile nanquantile multinomial poisson diag diag_embed diagonal histc kron "
    "cummax cummin logcumsumexp isin pdist renorm repeat_interleave searchsorted trace tril as_strided cholesky "
    "linalg_cholesky linalg_cholesky_ex inverse linalg_inv linalg_inv_ex det linalg_det slogdet linalg_slogdet "
    "linalg_eigh linalg_eigvalsh linalg_eig linalg_eigvals linalg_qr qr linalg_solve linalg_lstsq linalg_svd "
    "linalg_svdvals svd pinverse linalg_pinv".split()
)

# The same computation in operators that the device has.
_INSTEAD: Mapping[str, str] = {
    "huber_loss": "`delta * smooth_l1_loss(x, y, beta=delta)` has the same value",
    "logical_xor": "compare: `(a != 0) != (b != 0)`",
    "bitwise_xor": "compare: `a != b`",
    "_convolution_mode": "give the padding as numbers: `padding=kernel_size // 2` keeps the size for odd kernels",
    "_pad_circular": "join the edges: `torch.cat([x[..., -n:], x, x[..., :n]], -1)`",
    "unflatten": "use `x.view(...)` or `x.reshape(...)`",
    "repeat_interleave": "`x.unsqueeze(d + 1).expand(...).flatten(d, d + 1)` repeats each element",
    "nan_to_num": "`torch.where(torch.isnan(x), 0, x)`",
    "diag": "multiply by a constant: `(x * torch.eye(n)).sum(-1)` reads a diagonal",
    "diagonal": "multiply by a constant: `(x * torch.eye(n)).sum(-1)` reads a diagonal",
    "trace": "multiply by a constant: `(x * torch.eye(n)).sum()`",
    "tril": "multiply by a constant mask: `x * torch.ones(n, n).tril()`",
    "multinomial": "draw with Gumbel noise: `(logits - torch.log(-torch.log(torch.rand_like(logits)))).argmax(-1)`",
    "adaptive_max_pool2d": "use `max_pool2d` with a kernel for the size of the input",
    "xlogy": "`x * torch.log(y)` where `x` is not zero",
    "dist": "`torch.norm(a - b)`",
    "isin": "compare: `(x.unsqueeze(-1) == values).any(-1)`",
    "logcumsumexp": "`torch.log(torch.cumsum(torch.exp(x - x.amax()), dim)) + x.amax()` where values are not far apart",
    "pdist": "`torch.cdist(x, x)` has each distance twice",
    "searchsorted": "`torch.bucketize(x, edges)` for one sequence; else compare, `(edges < x.unsqueeze(-1)).sum(-1)`",
}
# The same for calls of operators that the device has otherwise, by words of the refusal.
_INSTEAD_OF_REFUSED: Mapping[str, str] = {
    "with 1 layer": "use one layer after the other: `nn.LSTM(a, b)`, then `nn.LSTM(b, b)` on its output",
    "idirectional": "run a second layer on `x.flip(0)` (`flip(1)` if `batch_first`), flip its output, `torch.cat` both",
    "without biases": "leave `bias=True`, and set the biases to zero without a gradient",
    "dropout = 0.0": "put an `nn.Dropout` after the layer",
    "Matrix ": (
        "take the Frobenius norm, or, in inference, compute it on the host by `@porting.op(..., host=True)`; for "
        "one or two rows or columns `to_ipu` computes it"
    ),
    'Parameter "weight"': (
        "weigh the samples: `(F.cross_entropy(x, y, reduction='none') * w[y]).sum() / w[y].sum()`, `w` as a buffer, "
        "marked with `poptorch.identity_loss(value, 'none')`"
    ),
}
# What `to_ipu` exchanges while it compiles a model: operators that the device lacks, and words of other refusals. The
# package that does it is one above this, and a test holds the two together. A call in place is not exchanged.
_COMPUTED_IN_PORTS: FrozenSet[str] = frozenset(
    "heaviside hypot logaddexp nan_to_num sgn sinc special_sinc xlogy special_xlogy logical_xor bitwise_xor aminmax "
    "dist kthvalue nanmean diag diag_embed diagonal trace tril kron repeat_interleave huber_loss adaptive_max_pool1d "
    "adaptive_max_pool2d adaptive_max_pool3d channel_shuffle pixel_unshuffle unflatten _pad_circular reflection_pad3d "
    "_convolution_mode cummax cummin logcumsumexp isin pdist quantile nanquantile searchsorted histc "
    "affine_grid_generator grid_sampler grid_sampler_2d grid_sampler_3d".split()
)
_GRANTED_IN_PORTS = (
    *("with 1 layer", "idirectional", "without biases", "dropout = 0.0"),
    *('Parameter "weight"', "torch.triu", "sorted=False"),
)
_IN_PORTS = "or leave it as it is: `porting.to_ipu(model)` computes it by operators that the device has"
_OTHERWISE = "express it with other operators, or compute it on the host outside `forward`"
_SUPPORT = (
    "Not all operations are supported yet by Graphcore's PyTorch compiler. If you believe any of these should be, "
    "please report this message to support@graphcore.ai."
)


def check_operators(graph: StepGraph, model: nn.Module) -> None:
    """Refuse what the device lacks, or lacks in this form; leave label smoothing out as it does, with a warning."""
    # torch's own attention unflattens a projection, which the device compiles as a view
    attention = {name for name, module in model.named_modules() if isinstance(module, nn.MultiheadAttention)}
    # the mark of models that `to_ipu` wraps, for which there is nothing more to exchange
    is_port = getattr(model, "_porting_allowed", None) is not None
    flow = ValueFlow.of(graph)
    missing: Dict[str, torch.fx.Node] = {}
    for node in _list_nodes(graph.graph):
        flow.visit(node)
        if not isinstance(node.target, torch._ops.OpOverload):
            continue
        call = _make_call(node, node.target, flow)
        message = check_write(call) if written_nodes(node) else None
        message = message or _find_refusal(call)
        if message is not None:
            _refuse_call(message, node, is_port=is_port)
        lacking = _find_lacking(call)
        if lacking is not None and not (call.name == "unflatten" and node.meta.get("module_path") in attention):
            missing.setdefault(lacking, node)
        if call.arguments.get("label_smoothing"):
            # PopTorch compiles the loss without it and says nothing: do the same, and say it
            node.args, node.kwargs = change_arguments(
                node.target, node.args, node.kwargs, ["label_smoothing"], lambda _smoothing: 0.0
            )
            where = node.meta.get("place") or "forward"
            logger.warning("The device ignores the label_smoothing of aten::cross_entropy_loss (%s)", where)
    if missing:
        _refuse_missing(missing, is_port=is_port)


def _list_nodes(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yield the nodes of `graph` in their order, those in the bodies of a loop or branch after it."""
    for node in graph.nodes:
        yield node
        for body in bodies_of(node):
            yield from _list_nodes(body.graph)


def _make_call(node: torch.fx.Node, operator: torch._ops.OpOverload, flow: ValueFlow) -> OperatorCall:
    arguments = {argument.name: argument.default_value for argument in operator._schema.arguments}
    arguments.update({**dict(zip(list(arguments), node.args)), **node.kwargs})

    def is_constant(argument: Any) -> bool:
        return not isinstance(argument, torch.fx.Node) or flow.is_constant(argument)

    return OperatorCall(node, operator_name(operator), arguments, is_constant, flow.has_gradient(node))


def _find_refusal(call: OperatorCall) -> Optional[str]:
    """Return PopTorch's message if the device has the operator, but not in this form."""
    message = LIMITS[call.name](call) if call.name in LIMITS else None
    value = call.node.meta.get("val")
    if message is None and isinstance(value, torch.Tensor) and value.numel() == 0 and not call.is_constant(call.node):
        return f"Zero-sized tensors are unsupported (Got shape {list(value.shape)})"
    return message


def _find_lacking(call: OperatorCall) -> Optional[str]:
    """Return the name of the operator behind `call` that the device lacks; constants are folded on the host."""
    # an in-place operator is lacking where its other form is; `__xor__` is no in-place operator
    name = call.name.rstrip("_") if not call.name.startswith("__") else call.name
    if call.is_constant(call.node):
        return None
    if name in _UNSUPPORTED:
        return name
    if getattr(call.node.target, "_overloadname", "") == "padding" and name.startswith("conv"):
        return "_convolution_mode"
    if name == "pad" and call.arguments["mode"] == "circular":
        return "_pad_circular"
    if name == "pad" and call.arguments["mode"] == "reflect" and len(call.arguments["pad"]) > 4:
        return "reflection_pad3d"
    is_xor = name in ("bitwise_xor", "__xor__", "__ixor__")
    return "bitwise_xor" if is_xor and all(tensor.dtype == torch.bool for tensor in call.list_tensors()) else None


def _refuse_call(message: str, node: torch.fx.Node, *, is_port: bool) -> NoReturn:
    operator = operator_name(node.target)
    help = next((help for words, help in _INSTEAD_OF_REFUSED.items() if words in message), "")
    is_granted = not (is_port or operator.endswith("_")) and any(words in message for words in _GRANTED_IN_PORTS)
    raise _make_refusal(
        message,
        [node],
        fault=f"the device does not have `aten::{operator}` in this form",
        label="the device refuses this call",
        help=(help or _INSTEAD.get(operator, _OTHERWISE), *([_IN_PORTS] if is_granted else [])),
    )


def _refuse_missing(missing: Mapping[str, torch.fx.Node], *, is_port: bool) -> NoReturn:
    names = [f"aten::{name}" for name in missing]
    called = [(name, node.meta.get("place")) for name, node in missing.items()]
    places = [f"`aten::{name}` is called at {place}" for name, place in called if place]
    help = list(dict.fromkeys(_INSTEAD.get(name, _OTHERWISE) for name in missing))
    is_exchanged = all(
        name in _COMPUTED_IN_PORTS and operator_name(node.target) != f"{name}_" for name, node in missing.items()
    )
    if is_exchanged and not is_port:
        help.append(_IN_PORTS)
    raise _make_refusal(
        f"Unsupported ops found in compiled model: [{', '.join(names)}]. {_SUPPORT}",
        list(missing.values()),
        fault=f"the device has no {list_names(names)}",
        label="the device cannot compute this",
        notes=(*places[1:], "that a report is asked for above is PopTorch's text: there is nothing to report"),
        help=tuple(help),
    )


def _make_refusal(
    message: str, nodes: Sequence[torch.fx.Node], *, fault: str, notes: Sequence[str] = (), **rest: Any
) -> CaptureRefusal:
    paths = filter(None, dict.fromkeys(node.meta.get("module_path", "") for node in nodes))
    notes = (*(f"the module is `{path}`" for path in paths), *notes)
    return CaptureRefusal(
        message, Finding("C017", message=fault, place=nodes[0].meta.get("place"), notes=notes, **rest)
    )
