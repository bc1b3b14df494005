"""Operators on half precision, computed in single precision: the law of their rounding, and what is kept of them."""

from __future__ import annotations

import hypothesis
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest
from porting.engines.compiled.step_tracing import make_fake_tensors
from porting.engines.compiled.traced_step import TracedStep
from porting.engines.recompute.recomputation import order_computation
from porting.engines.replay.graph_function import GraphFunction
from porting.engines.replay.wide_operators import find_wide_call, is_widened
from porting.options import ComputationOrder

HALF = torch.float16
few_examples = hypothesis.settings(max_examples=8)
seeds, sizes = st.integers(0, 2**16), st.integers(1, 9)

# The operator, and the shapes of its operands by three sizes.
PRODUCTS = {
    "linear": (F.linear, lambda a, b, c: [(a, b), (c, b), (c,)]),
    "linear on sequences": (F.linear, lambda a, b, c: [(2, a, b), (c, b)]),
    "mm": (torch.mm, lambda a, b, c: [(a, b), (b, c)]),
    "transposed operands": (lambda x, y: x.t() @ y.t(), lambda a, b, c: [(b, a), (c, b)]),
    "matmul of broadcast operands": (torch.matmul, lambda a, b, c: [(2, 1, a, b), (3, b, c)]),
    "bmm": (torch.bmm, lambda a, b, c: [(2, a, b), (2, b, c)]),
    "mv": (torch.mv, lambda a, b, c: [(a, b), (b,)]),
    "dot": (torch.dot, lambda a, b, c: [(a,), (a,)]),
    "addmm": (lambda *x: torch.addmm(*x, beta=0.5, alpha=2.0), lambda a, b, c: [(a, c), (a, b), (b, c)]),
    "baddbmm": (torch.baddbmm, lambda a, b, c: [(2, a, c), (2, a, b), (2, b, c)]),
    "einsum": (lambda x, y: torch.einsum("ij,kj->ik", x, y), lambda a, b, c: [(a, b), (c, b)]),
    "bilinear": (F.bilinear, lambda a, b, c: [(4, a), (4, b), (c, a, b)]),
    "conv1d": (F.conv1d, lambda a, b, c: [(2, a, 8), (b, a, 3), (b,)]),
    "conv2d": (lambda x, w: F.conv2d(x, w, padding=1), lambda a, b, c: [(2, a, 5, 6), (b, a, 3, 3)]),
    "conv3d": (F.conv3d, lambda a, b, c: [(1, a, 4, 4, 4), (b, a, 2, 2, 2)]),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), lambda a, b, c: [(2, a, 3, 3), (a, b, 2, 2)]),
}
# These compute something else as well, or are not products at all.
OTHERS = {
    "attention": (F.scaled_dot_product_attention, lambda a, b, c: [(2, 3, a, 8), (2, 3, b, 8), (2, 3, b, 8)]),
    "causal attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        lambda a, b, c: [(2, 3, a, 8)] * 3,
    ),
    "attention with a mask": (
        lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m),
        lambda a, b, c: [(2, 3, a, 8), (2, 3, b, 8), (2, 3, b, 8), (a, b)],
    ),
    "square": (torch.square, lambda a, b, c: [(a, b)]),
    "pow": (lambda x: x.abs() ** 1.5, lambda a, b, c: [(a, b)]),
    "cube": (lambda x: x**3, lambda a, b, c: [(a, b)]),
    "norm": (lambda x: torch.linalg.vector_norm(x, dim=-1), lambda a, b, c: [(a, b)]),
    "logsumexp": (lambda x: x.logsumexp(-1), lambda a, b, c: [(a, b)]),
    "softmax of short rows": (lambda x: x.softmax(-1), lambda a, b, c: [(a, 16 + b)]),
    "prod": (lambda x: x.prod(-1), lambda a, b, c: [(a, b)]),
    "unfold": (lambda x: F.unfold(x, 2), lambda a, b, c: [(2, a, 4, 5)]),
    "fold": (lambda x: F.fold(x, (4, 4), 2, stride=2), lambda a, b, c: [(2, 4 * a, 4)]),
}
each_product = pytest.mark.parametrize(("function", "shapes"), PRODUCTS.values(), ids=PRODUCTS.keys())
each_operator = pytest.mark.parametrize(
    ("function", "shapes"), [*PRODUCTS.values(), *OTHERS.values()], ids=[*PRODUCTS, *OTHERS]
)


class Body(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def capture(function, *example):
    return capture_step(Body(function), example, mode="inference").graph


def widen(function, *example):
    return GraphFunction(capture(function, *example), find_call=find_wide_call).call


def draw(seed, shapes):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator).to(HALF) for shape in shapes]


def differentiate(function, operands, seed):
    """Return the result of `function`, then the gradient by each operand for a random one of the result."""
    leaves = [operand.detach().clone().requires_grad_() for operand in operands]
    result = function(*leaves)
    result = result[0] if isinstance(result, tuple) else result
    gradient = draw(seed + 1, [result.shape])[0].to(result.dtype)
    return [result.detach(), *torch.autograd.grad(result, leaves, gradient)]


def measure_errors(function, operands, seed):
    """Return, for the result and each gradient, the exact value and what the wide and the literal one are off by."""
    exact = differentiate(function, [operand.double() for operand in operands], seed)
    wide = differentiate(widen(function, *operands), operands, seed)
    literal = differentiate(function, operands, seed)
    assert all(value.dtype == HALF for value in wide)
    return [(e, (w - e).abs(), (n - e).abs()) for e, w, n in zip(exact, wide, literal)]


def bound_one_rounding(exact):
    """Return half a unit in the last place of each value in half precision, and what sums in single precision lose."""
    unit = torch.exp2(torch.floor(torch.log2(exact.abs().clamp(min=2.0**-14))) - 11)
    return unit + 1e-5 * exact.abs().max()


@each_product
@few_examples
@given(seed=seeds, a=sizes, b=sizes, c=sizes)
def test_a_product_and_its_gradients_are_rounded_once(function, shapes, seed, a, b, c):
    for exact, error, _literal in measure_errors(function, draw(seed, shapes(a, b, c)), seed):
        assert (error <= bound_one_rounding(exact)).all()


@pytest.mark.sampled(8)
@each_operator
@few_examples
@given(seed=seeds, a=sizes, b=sizes, c=sizes)
def test_no_operator_is_further_off_than_its_literal_kernel_and_one_rounding(function, shapes, seed, a, b, c):
    for exact, error, literal in measure_errors(function, draw(seed, shapes(a, b, c)), seed):
        # both round results that their backward pass uses again, and either one may be the luckier
        assert error.norm() <= bound_one_rounding(exact).norm() + 2 * literal.norm()


@each_product
def test_large_products_are_rounded_once_as_well(function, shapes):
    operands = draw(0, shapes(48, 200, 120) if function is not F.bilinear else shapes(20, 40, 30))

    for exact, error, _literal in measure_errors(function, operands, 0):
        assert (error <= bound_one_rounding(exact)).all()


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_no_further_off_than_the_literal_ones(make):
    torch.manual_seed(0)
    layer, x = make(6, 8, num_layers=2).half(), torch.randn(5, 3, 6).half()
    graph = capture_step(layer, [x], mode="inference")
    weights = [parameter.detach() for parameter in layer.parameters()]
    double = make(6, 8, num_layers=2).double()
    double.load_state_dict({name: value.double() for name, value in layer.state_dict().items()})

    wide = GraphFunction(graph.graph, find_call=find_wide_call).call(*weights, x)[0]

    exact = double(x.double())[0]
    assert (wide - exact).abs().max() <= (layer(x)[0] - exact).abs().max() + 2.0**-11


# -- what is widened ---------------------------------------------------------------------------------------------------


def find_operator(function, *example):
    return next(node for node in capture(function, *example).nodes if node.op == "call_function")


def test_a_product_of_halves_is_widened():
    assert is_widened(find_operator(torch.mm, *draw(0, [(2, 3), (3, 4)])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_a_product_of_another_type_is_left_as_it_is(dtype):
    assert not is_widened(find_operator(torch.mm, torch.ones(2, 3, dtype=dtype), torch.ones(3, 4, dtype=dtype)))


def test_a_result_that_is_wide_by_itself_stays_wide():
    x = draw(0, [(3, 4)])[0]

    (result,) = widen(lambda x: torch.linalg.vector_norm(x, dim=1, dtype=torch.float32), x)(x)

    assert result.dtype == torch.float32


IN_PLACE = {
    "addmm_": (lambda x, y, z: (x * 1).addmm_(y, z, alpha=2.0), [(6, 5), (6, 4), (4, 5)]),
    "baddbmm_": (lambda x, y, z: (x * 1).baddbmm_(y, z), [(2, 6, 5), (2, 6, 4), (2, 4, 5)]),
}


@pytest.mark.parametrize(("function", "shapes"), IN_PLACE.values(), ids=IN_PLACE.keys())
def test_a_product_that_is_added_in_place_is_rounded_once(function, shapes):
    operands = draw(0, shapes)
    assert any(map(is_widened, capture(function, *operands).nodes))

    for exact, error, _literal in measure_errors(function, operands, 0):
        assert (error <= bound_one_rounding(exact)).all()


def test_other_operators_that_write_in_place_are_left_as_they_are():
    assert not any(map(is_widened, capture(lambda x: (x * 1).square_(), *draw(0, [(6, 5)])).nodes))


def test_what_is_written_in_place_is_the_tensor_itself():
    def write(x, y, z):
        part = (x * 1)[:3]
        whole = part.addmm_(y, z)
        return part, whole

    operands = draw(0, [(6, 5), (3, 4), (4, 5)])

    part, whole = widen(write, *operands)(*operands)

    assert part.data_ptr() == whole.data_ptr()
    assert torch.equal(part, widen(torch.addmm, operands[0][:3], *operands[1:])(operands[0][:3], *operands[1:])[0])


def test_softmax_of_long_rows_is_left_to_its_kernel():
    assert not is_widened(find_operator(lambda x: x.softmax(-1), *draw(0, [(2, 128)])))


def test_a_number_beyond_the_range_is_infinite():
    x = torch.full((1, 4), 200.0, dtype=HALF)

    assert widen(torch.mm, x, x.t())(x, x.t())[0].isinf().all()


# -- what autograd keeps -----------------------------------------------------------------------------------------------


def list_kept(function, operands):
    """List what autograd hands over to be kept for the backward pass of a call, each memory once."""
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    leaves = [operand.detach().clone().requires_grad_() for operand in operands]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        results = function(*leaves)
    return leaves, results, list(kept.values())


LARGE = {
    "linear": (F.linear, [(300, 200), (150, 200), (150,)]),
    "matmul": (torch.matmul, [(2, 4, 90, 60), (2, 4, 60, 80)]),
    "heads": (lambda q, k: q.transpose(1, 2) @ k.permute(0, 2, 3, 1), [(2, 70, 4, 60), (2, 70, 4, 60)]),
    "conv2d": (F.conv2d, [(2, 8, 50, 50), (16, 8, 3, 3)]),
    "attention": (F.scaled_dot_product_attention, [(2, 4, 90, 16)] * 3),
    "cube": (lambda x: x**3, [(200, 200)]),
}
each_large = pytest.mark.parametrize(("function", "shapes"), LARGE.values(), ids=LARGE.keys())


@each_large
def test_what_is_kept_for_the_backward_pass_takes_no_more_memory_than_literally(function, shapes):
    operands = draw(0, shapes)

    # the results have to live: autograd keeps for them
    _leaves, _results, wide = list_kept(widen(function, *operands), operands)
    _leaves, _results, literal = list_kept(function, operands)

    def count_bytes(tensors):
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors)

    assert count_bytes(wide) <= count_bytes(literal)


def test_an_operand_that_was_written_to_is_an_error_of_the_backward_pass():
    x, weight = draw(0, [(300, 200), (150, 200)])
    result = widen(F.linear, x, weight)(x, weight.requires_grad_())[0]
    x.mul_(2)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def make_deep():
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Linear(160, 160), nn.Tanh())]
    return nn.Sequential(*layers, nn.Linear(160, 160)).half()


class Products(TorchDispatchMode):
    """Notes the types of what is multiplied."""

    def __init__(self):
        super().__init__()
        self.dtypes = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.dtypes |= {item.dtype for item in args if isinstance(item, torch.Tensor)}
        return func(*args, **(kwargs or {}))


def run_step(graph, model, batch):
    """Return loss and gradients of a step, how many of its activations are kept, and the types that it multiplies."""
    values = [parameter.detach().clone() for parameter in model.parameters()]
    function = GraphFunction(graph.graph, find_call=find_wide_call).call
    with Products() as products:
        leaves, results, kept = list_kept(lambda *weights: function(*weights, *batch), values)
        results[-1].backward()
    entering = {tensor.untyped_storage()._cdata for tensor in (*leaves, *batch)}
    num_kept = sum(tensor.untyped_storage()._cdata not in entering for tensor in kept)
    return [results[-1].detach(), *(leaf.grad for leaf in leaves)], num_kept, products.dtypes


def test_recomputation_gives_the_same_gradients_and_keeps_less():
    model, batch = make_deep(), draw(1, [(120, 160), (120, 160)])
    graph = capture_step(model, batch, loss=F.mse_loss)
    ordered = order_computation(graph, ComputationOrder.of("dummy2"))

    plain, num_kept, _dtypes = run_step(graph, model, batch)
    again, num_kept_again, dtypes = run_step(ordered, model, batch)

    assert all(map(torch.equal, again, plain))
    assert num_kept_again < num_kept
    assert dtypes == {torch.float32}


def test_attention_drops_what_its_literal_kernel_drops():
    def attend(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.5)

    operands = draw(0, [(2, 3, 20, 8)] * 3)

    torch.manual_seed(0)
    wide = widen(attend, *operands)(*operands)[0]
    torch.manual_seed(0)
    literal = attend(*operands)

    torch.testing.assert_close(wide, literal, rtol=1e-2, atol=1e-2)


# -- engines -----------------------------------------------------------------------------------------------------------


def test_the_replay_engine_multiplies_in_single_precision(device, settings):
    model, batch = make_deep(), draw(1, [(120, 160), (120, 160)])
    on_device = device(model, *batch, loss=F.mse_loss)

    with Products() as products:
        on_device.run(*batch, settings=settings())

    assert products.dtypes == {torch.float32}


def test_programs_of_compiled_engines_multiply_in_single_precision(settings):
    model, batch = make_deep(), draw(1, [(120, 160), (120, 160)])
    graph = capture_step(model, batch, loss=F.mse_loss)
    names = tuple(info.name for info in graph.parameters)

    with make_fake_tensors():
        step = TracedStep(graph, BuildRequest(CallPlan(), (settings(),), (names,)))
        step.trace()
        nodes = list(step.run(1).graph.nodes)

    products = [node for node in nodes if node.target in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)]
    dtypes = {used.meta["val"].dtype for node in products for used in node.all_input_nodes}
    assert dtypes == {torch.float32}
