"""Choose the faster kernel for each convolution of a program, by measuring where it is compiled.

oneDNN computes dense convolutions of single precision near the peak of a core, so that only fewer multiplications are
faster: Winograd's algorithm has 4 instead of 9 for windows of 3 x 3, and no weights to put into an order of oneDNN's.
Convolutions with a filter for each channel are far from any peak there, the gradient of the filters most of all; and
those of 8 channels are where vectors have 16 numbers, of which they would fill half. Those of single pixels are
products of matrices.

The sums are rounded in another order, no more: results are as near to double precision as oneDNN's, and gradients of
filters by Winograd's algorithm some three times as far.
"""

from __future__ import annotations

import functools
import logging
import math
import statistics
import time
import timeit
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch

from .....support.host_state import use_threads
from .....torch_insides.inductor import CONVOLUTIONS
from ..unwanted import is_wanted
from . import convolution_operators as operators
from . import pointwise_products as products
from .vector_width import has_wide_vectors

__all__ = [
    "Convolution",
    "choose_convolution_kernels",
    "collect_convolutions",
    "find_algorithm",
    "is_faster_than_onednn",
    "use_faster_convolutions",
]

aten = torch.ops.aten
_logger = logging.getLogger("porting")

# What is smaller takes microseconds. A product is called in less time than a convolution, and for the gradient of
# depthwise filters oneDNN may take five times as long, however small the images are.
_MIN_MULTIPLICATIONS = {"winograd": 1 << 20, "planar": 1 << 20, "depthwise": 1 << 12, "product": 1 << 12}
# A part of a large batch says as much as all of it, in some hundredths of a second.
_MOST_MULTIPLICATIONS = 1 << 31
_MIN_GAIN = 1.04
_NUM_ROUNDS = 7

_PRODUCT = "product"
# channels that half of a vector of 16 numbers holds
_FEW = 8
_FORWARD = "forward"
_GRADIENTS = ("image gradient", "filter gradient")


class Convolution(NamedTuple):
    """What is computed ("forward", "image gradient" or "filter gradient") of a convolution, and how.

    `images` is the shape of its images, [count, channels, rows, columns], `filters` that of its weights, and
    `algorithm` one of `convolution_operators.ALGORITHMS`, or "product".
    """

    kind: str
    algorithm: str
    images: Tuple[int, ...]
    filters: Tuple[int, ...]
    stride: Tuple[int, ...]
    padding: Tuple[int, ...]
    dilation: Tuple[int, ...]
    has_bias: bool = False

    @property
    def num_multiplications(self) -> int:
        """How many multiplications it takes without any algorithm, padding included."""
        result = (
            (size + 2 * padding - dilation * (window - 1) - 1) // stride + 1
            for size, stride, padding, dilation, window in zip(
                self.images[2:], self.stride, self.padding, self.dilation, self.filters[2:]
            )
        )
        return self.images[0] * math.prod(self.filters) * math.prod(result)


def use_faster_convolutions(module: torch.fx.GraphModule, *, num_threads: int, lanes: int) -> None:
    """Choose the kernels of all convolutions of `module`, in a process that compiles for `num_threads` and then ends.

    Its nodes need values (`meta["val"]`). `lanes` is how many numbers a vector has in what this process compiles.
    """
    CONVOLUTIONS.require()
    with use_threads(num_threads):
        chosen = choose_convolution_kernels(module.graph, lanes=lanes)
    if any(chosen.values()):
        operators.install_lowerings(num_threads)
    module.recompile()


def collect_convolutions(graph: torch.fx.Graph, *, lanes: int) -> Dict[Convolution, List[torch.fx.Node]]:
    """Return the nodes of each computation that an algorithm could do and that is large enough for a choice.

    The backward pass of a convolution is one node and up to two computations.
    """
    found: Dict[Convolution, List[torch.fx.Node]] = {}
    for node in graph.nodes:
        for convolution in _read_convolutions(node, lanes):
            found.setdefault(convolution, []).append(node)
    return found


def _read_convolutions(node: torch.fx.Node, lanes: int) -> List[Convolution]:
    rest: Any
    if node.target is aten.convolution.default:
        images, filters, bias, *rest = node.args
        kinds, tensors = [_FORWARD], [node, images, filters]
    elif node.target is aten.convolution_backward.default:
        gradients, images, filters, _bias_sizes, *rest = node.args
        wanted = rest.pop()
        kinds = [kind for kind, is_asked_for in zip(_GRADIENTS, wanted) if is_asked_for]
        bias, tensors = None, [gradients, images, filters]
    else:
        return []
    values = [_get_value(tensor) for tensor in tensors]
    stride, padding, dilation, is_transposed, _output_padding, groups = rest
    if is_transposed or len(padding) != 2 or not all(map(_has_order, values)):
        return []
    shape, of_filters = (tuple(value.shape) for value in values[1:])
    how: Any = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    algorithm = find_algorithm(shape, of_filters, lanes=lanes, **how)
    of_node = (algorithm, shape, of_filters, tuple(stride), tuple(padding), tuple(dilation), bias is not None)
    # oneDNN is twice as fast as gathering each pixel's gradient from the results that a stride lets it reach
    kinds = kinds if set(stride) == {1} else [kind for kind in kinds if kind != _GRADIENTS[0]]
    found = [Convolution(kind, *of_node) for kind in kinds] if algorithm and is_wanted(algorithm) else []
    return [one for one in found if one.num_multiplications >= _MIN_MULTIPLICATIONS[algorithm]]


def find_algorithm(
    images: Sequence[int],
    filters: Sequence[int],
    *,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    lanes: int,
) -> str:
    """Return the algorithm for a convolution of images with filters of these shapes; "" if there is none.

    `lanes` is how many channels a vector of the kernels has.
    """
    if groups == images[1] == filters[0] > 1:
        return "" if groups < lanes else "depthwise"
    if set(stride) != {1}:
        return ""
    if groups == 1 and set(filters[2:]) == {1} and not any(padding):
        return _PRODUCT
    if groups == 1 and _is_planar(images, filters, padding=padding, dilation=dilation):
        return "planar"
    is_small = tuple(filters[2:]) == (3, 3) and max(padding) <= 2 and set(dilation) == {1}
    return "" if groups > 1 or not is_small or any(size % lanes for size in filters[:2]) else "winograd"


def _is_planar(
    images: Sequence[int], filters: Sequence[int], *, padding: Sequence[int], dilation: Sequence[int]
) -> bool:
    """Tell whether there are so few channels that vectors of columns are fuller than vectors of channels."""
    channels = (images[1], filters[0])
    fits = all(size < window for size, window in zip(padding, filters[2:])) and set(dilation) == {1}
    # a row of fewer columns than a vector has would not fill it either
    is_few = min(channels) == _FEW and not any(size % _FEW for size in channels) and images[3] >= 2 * _FEW
    return fits and is_few and has_wide_vectors()


def _has_order(value: Any) -> bool:
    """Tell whether a value is a float32 tensor of the processor with its channels innermost."""
    is_float = isinstance(value, torch.Tensor) and value.dtype == torch.float32 and value.device.type == "cpu"
    return is_float and value.is_contiguous(memory_format=torch.channels_last)


def _get_value(argument: object) -> Any:
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None


def choose_convolution_kernels(
    graph: torch.fx.Graph, *, lanes: int, is_faster: Optional[Callable[[Convolution], bool]] = None
) -> Dict[Convolution, bool]:
    """Let an algorithm convolve, in place, where it is faster; return for each computation whether it is.

    The nodes of `graph` need values (`meta["val"]`), and `lanes` is how many numbers a vector has. Torch must have as
    many threads as the program will.
    """
    measure = is_faster_than_onednn if is_faster is None else is_faster
    _lay_out_gradients(graph)
    found = collect_convolutions(graph, lanes=lanes)
    try:
        chosen = {convolution: measure(convolution) for convolution in found}
    except RuntimeError as error:  # of the C++ compiler
        _logger.info("convolutions stay with oneDNN, because the other kernels cannot be compiled: %s", error)
        return dict.fromkeys(found, False)
    by_node: Dict[torch.fx.Node, List[Convolution]] = {}
    for convolution, nodes in found.items():
        for node in nodes if chosen[convolution] else []:
            by_node.setdefault(node, []).append(convolution)
    for node in graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        if _has_order(_get_value(node.args[0])):
            by_node.setdefault(node, [])
    for node, convolutions in by_node.items():
        if node.target is aten.convolution.default:
            _replace_forward(graph, node, convolutions[0].algorithm)
        else:
            _replace_gradients(graph, node, convolutions)
    return chosen


def _lay_out_gradients(graph: torch.fx.Graph) -> None:
    """Give gradients of results the order of the images, as torch would for each gradient that it finds by them."""
    for node in graph.find_nodes(op="call_function", target=aten.convolution_backward.default):
        gradients, images, filters, *_rest = node.args
        value = _get_value(gradients)
        if not _has_order(value) and _has_order(_get_value(images)) and _has_order(_get_value(filters)):
            with graph.inserting_before(node):
                laid_out = graph.call_function(aten.clone.default, (gradients,), {"memory_format": torch.channels_last})
            laid_out.meta["val"] = aten.clone.default(value, memory_format=torch.channels_last)
            node.replace_input_with(gradients, laid_out)


def _replace_forward(graph: torch.fx.Graph, node: torch.fx.Node, algorithm: str) -> None:
    inputs: Sequence[Any] = node.args[:6]
    images, filters, bias, stride, padding, dilation = inputs
    with graph.inserting_before(node):
        if algorithm == _PRODUCT:
            replaced = products.write_forward(graph, images, filters, bias)
        else:
            arguments = (images, filters, bias, stride, padding, dilation, algorithm)
            replaced = graph.call_function(operators.convolve, arguments)
    replaced.meta.update(node.meta)
    node.replace_all_uses_with(replaced)
    graph.erase_node(node)


def _replace_gradients(graph: torch.fx.Graph, node: torch.fx.Node, chosen: Sequence[Convolution]) -> None:
    """Take the gradients of `chosen`, and that of the bias, out of the backward pass of a convolution."""
    inputs: Sequence[Any] = node.args[:7]
    gradients, images, filters, _bias_sizes, stride, padding, dilation = inputs
    algorithm = chosen[0].algorithm if chosen else ""
    is_product, how = algorithm == _PRODUCT, (stride, padding, dilation, algorithm)
    kinds = [convolution.kind for convolution in chosen]
    writers: Dict[int, Callable[[], torch.fx.Node]] = {}
    left: Any = list(node.args[-1])  # type: ignore[arg-type]

    def call(target: Any, *arguments: Any) -> Callable[[], torch.fx.Node]:
        return functools.partial(graph.call_function, target, arguments)

    if _GRADIENTS[0] in kinds:
        size = list(chosen[0].images[2:])
        by_product = functools.partial(products.write_image_gradient, graph, gradients, filters)
        by_kernel = call(operators.find_image_gradient, gradients, filters, size, *how)
        writers[0], left[0] = by_product if is_product else by_kernel, False
    if _GRADIENTS[1] in kinds:
        window = list(chosen[0].filters[2:])
        by_product = functools.partial(products.write_filter_gradient, graph, gradients, images)
        by_kernel = call(operators.find_filter_gradient, gradients, images, window, *how)
        writers[1], left[1] = by_product if is_product else by_kernel, False
    # Torch adds it up in a pass of its own, and finds the gradient of the filters beside it, wanted or not.
    if left[2]:
        writers[2], left[2] = call(aten.sum.dim_IntList, gradients, [0, 2, 3]), False
    values = node.meta["val"]
    for user in list(node.users):
        index: Any = user.args[1]
        if index in writers:
            with graph.inserting_before(node):
                replaced = writers[index]()
            replaced.meta["val"] = values[index]
            user.replace_all_uses_with(replaced)
            graph.erase_node(user)
    node.args = (*node.args[:-1], left)
    if not any(left):
        for user in list(node.users):
            graph.erase_node(user)  # of a gradient that nobody wants, which is None
        graph.erase_node(node)


def is_faster_than_onednn(convolution: Convolution) -> bool:
    """Measure both kernels in turns on random numbers: the other has to win by the median and by the shortest times.

    On a busy machine either one alone may be luck; a tie stays with oneDNN.
    """
    contestants = _make_contestants(convolution)
    # The processor's time is steadier, but counts threads that wait for each other.
    timer = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    # The first round of each pays for caches and for oneDNN's choice of a kernel.
    rounds = [[timeit.timeit(run, number=1, timer=timer) for run in contestants] for _ in range(_NUM_ROUNDS + 1)][1:]
    first, *others = zip(*rounds)
    gains = (
        min(min(first) / min(other), statistics.median(one / another for one, another in zip(first, other)))
        for other in others
    )
    return max(gains) >= _MIN_GAIN


def _make_contestants(convolution: Convolution) -> Sequence[Callable[[], Any]]:
    """Return what computes `convolution` by torch's operator, and what does by its algorithm, in one way or two."""
    kind = convolution.kind
    stride, padding, dilation = map(list, (convolution.stride, convolution.padding, convolution.dilation))
    count, *of_image = convolution.images
    count = max(1, min(count, count * _MOST_MULTIPLICATIONS // convolution.num_multiplications))
    images, filters = (
        torch.randn(shape).contiguous(memory_format=torch.channels_last)
        for shape in ((count, *of_image), convolution.filters)
    )
    bias = torch.randn(len(filters)) if convolution.has_bias else None
    groups = images.shape[1] // filters.shape[1]
    rest = (stride, padding, dilation, False, [0, 0], groups)
    gradients = torch.randn_like(aten.convolution(images, filters, bias, *rest))
    wanted = [kind == one for one in (*_GRADIENTS, "")]
    how = (stride, padding, dilation, convolution.algorithm)

    def compute_by_torch() -> Any:
        if kind == _FORWARD:
            return aten.convolution(images, filters, bias, *rest)
        return aten.convolution_backward(gradients, images, filters, None, *rest, wanted)

    def compute_by_algorithm() -> Any:
        if kind == _FORWARD:
            return operators.convolve(images, filters, bias, *how)
        if kind == _GRADIENTS[0]:
            return operators.find_image_gradient(gradients, filters, images.shape[2:], *how)
        return operators.find_filter_gradient(gradients, images, filters.shape[2:], *how)

    if convolution.algorithm == _PRODUCT:
        return (compute_by_torch, *products.make_products(kind, images, filters, bias, gradients))
    return compute_by_torch, compute_by_algorithm
