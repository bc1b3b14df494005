"""Choose the faster library for each matrix product of a program, by measuring where it is compiled.

ATen multiplies matrices of single precision by its BLAS, torch's builds for x86 by MKL. oneDNN, which torch has too, is
faster by a fifth for many shapes on processors of AMD and slower for others, and multiplying only small ones never
matters. The sums are rounded in another order, no more.
"""

from __future__ import annotations

import statistics
import timeit
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import torch

from .....support.host_state import use_threads
from .....torch_insides.inductor import (
    PRODUCTS,
    FixedLayout,
    LinearUnary,
    TensorBox,
    begin_fusion,
    create_output_node,
    lowerings,
)
from .....torch_insides.operators import LINEAR_BY_ONEDNN

__all__ = ["Product", "choose_matmul_kernels", "collect_products", "is_faster_by_onednn", "use_faster_products"]

aten = torch.ops.aten

# Products of fewer multiplications take microseconds, of which the call is a good part.
_MIN_MULTIPLICATIONS = 1 << 20
_MIN_GAIN = 1.04
# so many rounds, or fewer that take so long
_ROUNDS, _MOST_SECONDS = (3, 9), 0.01


class Product(NamedTuple):
    """The shapes and strides of the factors of a matrix product, and whether a bias is added to each row."""

    left_shape: Tuple[int, ...]
    left_stride: Tuple[int, ...]
    right_shape: Tuple[int, ...]
    right_stride: Tuple[int, ...]
    has_bias: bool


def use_faster_products(module: torch.fx.GraphModule, *, num_threads: int) -> None:
    """Choose the kernels of all products of `module`, in a process that compiles it for `num_threads` and then ends.

    Its nodes need values (`meta["val"]`).
    """
    if not torch.backends.mkldnn.is_available():
        return
    PRODUCTS.require()
    with use_threads(num_threads):
        chosen = choose_matmul_kernels(module.graph)
    if any(chosen.values()):
        _install_lowering()
        module.recompile()


def collect_products(graph: torch.fx.Graph) -> Dict[Product, List[torch.fx.Node]]:
    """Return the nodes of each product of two float32 matrices that is large enough to be worth a choice."""
    found: Dict[Product, List[torch.fx.Node]] = {}
    for node in graph.nodes:
        product = _read_product(node)
        if product is not None:
            found.setdefault(product, []).append(node)
    return found


def _read_product(node: torch.fx.Node) -> Optional[Product]:
    if node.target is aten.mm.default:
        left, right, bias = node.args[0], node.args[1], None
    # with a factor of the bias or of the product oneDNN's operator would compute something else
    elif node.target is aten.addmm.default and not node.kwargs:
        bias, left, right = node.args[:3]
    else:
        return None
    one, other = _get_value(left), _get_value(right)
    if any(value is None or value.dtype != torch.float32 or value.device.type != "cpu" for value in (one, other)):
        return None
    (rows, inner), columns = one.shape, other.shape[1]
    if rows * inner * columns < _MIN_MULTIPLICATIONS or (bias is not None and _get_value(bias).dim() != 1):
        return None
    return Product(tuple(one.shape), one.stride(), tuple(other.shape), other.stride(), bias is not None)


def _get_value(argument: object) -> Any:
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else None


def choose_matmul_kernels(
    graph: torch.fx.Graph, *, is_faster: Optional[Callable[[Product], bool]] = None
) -> Dict[Product, bool]:
    """Let oneDNN multiply, in place, where it is the faster one; return for each product whether it is.

    The nodes of `graph` need values (`meta["val"]`). Torch must have as many threads as the program will.
    """
    measure = is_faster_by_onednn if is_faster is None else is_faster
    chosen = {}
    for product, nodes in collect_products(graph).items():
        chosen[product] = measure(product)
        if chosen[product]:
            for node in nodes:
                _multiply_by_onednn(graph, node)
    return chosen


def _multiply_by_onednn(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    bias, left, right = node.args if node.target is aten.addmm.default else (None, *node.args)
    with graph.inserting_before(node):
        # oneDNN multiplies by the transpose, as a linear layer does; the view costs nothing.
        transposed = graph.call_function(aten.t.default, (right,))
        transposed.meta["val"] = _get_value(right).t()
        arguments: Tuple[Any, ...] = (left, transposed, bias, "none", [], "")
        replaced = graph.call_function(LINEAR_BY_ONEDNN.default, arguments)
    replaced.meta.update(node.meta)
    node.replace_all_uses_with(replaced)
    graph.erase_node(node)


def is_faster_by_onednn(product: Product) -> bool:
    """Measure both libraries in turns on random numbers: oneDNN has to win by the median and by the shortest times.

    On a busy machine either one alone may be luck; a tie stays with ATen.
    """
    left = torch.empty_strided(product.left_shape, product.left_stride).normal_()
    right = torch.empty_strided(product.right_shape, product.right_stride).normal_()
    bias = torch.randn(product.right_shape[1]) if product.has_bias else None
    # As Inductor's lowering below will see it: either order of a dense matrix, else a copy.
    is_dense = right.is_contiguous() or right.t().is_contiguous()
    transposed = right.t() if is_dense else right.t().contiguous()

    def multiply_by_blas() -> torch.Tensor:
        return torch.mm(left, right) if bias is None else torch.addmm(bias, left, right)

    def multiply_by_onednn() -> torch.Tensor:
        result: torch.Tensor = LINEAR_BY_ONEDNN(left.contiguous(), transposed, bias, "none", [], "")
        return result

    both = (multiply_by_blas, multiply_by_onednn)
    # The first round of each pays for caches and for oneDNN's choice of a kernel.
    first = sum(timeit.timeit(multiply, number=1) for multiply in both)
    num_rounds = int(min(max(_MOST_SECONDS / max(first, 1e-9), _ROUNDS[0]), _ROUNDS[1]))
    rounds = [[timeit.timeit(multiply, number=1) for multiply in both] for _round in range(num_rounds)]
    shortest = min(blas for blas, _ in rounds) / min(onednn for _, onednn in rounds)
    return min(shortest, statistics.median(blas / onednn for blas, onednn in rounds)) >= _MIN_GAIN


def _install_lowering() -> None:
    """Let Inductor, in this process, call oneDNN's product with weights that change; its own rule wants constants."""
    begin_fusion()
    kernel = LinearUnary

    def lower(left: Any, right: Any, bias: Any, attr: str, scalars: Any, algorithm: str) -> Any:
        """Do what `LinearUnary.create` does, but for the order of `right`, [column, inner]."""
        left, right = kernel.require_contiguous(kernel.realize_input(left)), kernel.realize_input(right)
        rows, (columns, inner) = left.get_size()[0], right.get_size()
        # A weight's gradient has the other order; oneDNN reads both without a copy.
        is_transposed = list(right.get_stride()) == [1, columns]
        inputs = [left, kernel.require_exact_strides(right, [1, columns] if is_transposed else [inner, 1])]
        constants: List[Any] = [attr, scalars or [-1], algorithm]
        if bias is None:
            constants.insert(0, None)
        else:
            inputs.append(kernel.require_contiguous(kernel.realize_input(bias)))
        layout = FixedLayout(device=left.get_device(), dtype=left.get_dtype(), size=[rows, columns])
        made = kernel(layout=layout, inputs=inputs, constant_args=constants)
        return TensorBox.create(create_output_node(made))

    def lower_sum(left: object, other: object, right: object, bias: object, attr: str) -> Any:
        """Leave the sum, or difference, of a product and another value to a fused loop."""
        joined = {"add": aten.add.Tensor, "sub": aten.sub.Tensor}[attr]
        return lowerings[joined](lower(left, right, bias, "none", [], ""), other)

    operator = LINEAR_BY_ONEDNN
    lowerings[operator] = lowerings[operator.default] = lower
    # Inductor joins a product and the sum with it to this one, which wants constants as well.
    lowerings[operator.binary] = lower_sum
