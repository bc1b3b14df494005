"""Convolutions go to other kernels where that pays, and give what torch's give."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from porting.engines.aot.inductor.optional.convolution_kernels import (
    Convolution,
    choose_convolution_kernels,
    collect_convolutions,
    find_algorithm,
)
from porting.engines.compiled.call_layout import TensorSpec
from porting.engines.compiled.programs import Program

aten = torch.ops.aten
# of the kernels that run here; `make widths` runs them with others
LANES = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
last = torch.channels_last


def _tensors(
    images: Any, filters: Any, *, stride: Any = (1, 1), padding: int = 1, dilation: int = 1, bias: bool = True
) -> Any:
    """Return images, filters, bias and the gradient of the result, and what else the operator is told."""
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(shape, generator=generator).contiguous(memory_format=last) for shape in (images, filters))
    b = torch.randn(filters[0], generator=generator) if bias else None
    rest = (list(stride), [padding, padding], [dilation, dilation], False, [0, 0], images[1] // filters[1])
    result = aten.convolution(x, w, b, *rest)
    return x, w, b, torch.randn(result.shape, generator=generator).contiguous(memory_format=last), rest


def _trace(tensors: Any) -> Any:
    """Return a function that convolves and finds all gradients, as a graph."""
    x, w, b, g, rest = tensors

    def convolve(x: Any, w: Any, b: Any, g: Any) -> Any:
        wanted = [True, True, b is not None]
        backward = aten.convolution_backward(g, x, w, [len(w)], *rest, wanted)
        return (aten.convolution(x, w, b, *rest), *(value for value in backward if value is not None))

    return make_fx(convolve, tracing_mode="fake")(x, w, b, g)


@pytest.fixture(params=[8, 16])
def lanes(request: pytest.FixtureRequest) -> Any:
    """Choose for vectors of each width, whatever this machine has."""
    return request.param


def _exchange(module: Any, *, kinds: Any = ("forward", "image gradient", "filter gradient"), lanes: int = LANES) -> Any:
    chosen = choose_convolution_kernels(
        module.graph, lanes=lanes, is_faster=lambda convolution: convolution.kind in kinds
    )
    module.recompile()
    return chosen


def _assert_same(found: Any, expected: Any) -> None:
    for value, wanted in zip(found, expected):
        assert value.shape == wanted.shape
        error = (value.double() - wanted).norm() / wanted.norm()
        assert error < 5e-6


_SHAPES = [
    ((2, 32, 17, 14), (64, 32, 3, 3), dict()),
    ((3, 64, 16, 15), (32, 64, 3, 3), dict(padding=0, bias=False)),
    ((1, 32, 24, 33), (32, 32, 3, 3), dict(padding=2)),
    ((9, 96, 7, 5), (32, 96, 3, 3), dict()),
    ((3, 48, 12, 13), (80, 48, 3, 3), dict()),
    ((8, 64, 9, 9), (16, 64, 3, 3), dict(padding=0)),
    ((2, 8 * LANES, 19, 12), (5 * LANES, 8 * LANES, 3, 3), dict()),
    ((2, LANES, 21, 30), (3 * LANES, LANES, 3, 3), dict(padding=2)),
    ((3, 8, 30, 37), (8, 8, 3, 3), dict()),
    ((2, 24, 40, 41), (8, 24, 3, 3), dict(padding=2, bias=False)),
    ((4, LANES, 33, 30), (LANES, 1, 3, 3), dict()),
    ((2, 32, 40, 41), (32, 1, 5, 5), dict(padding=2)),
    ((3, 16, 70, 31), (16, 1, 3, 7), dict(padding=0, bias=False)),
    ((3, 48, 33, 30), (48, 1, 3, 3), dict(padding=2, dilation=2)),
    ((2, 48, 60, 9), (48, 1, 7, 7), dict(padding=6)),
    ((5, 58, 7, 9), (58, 1, 3, 3), dict()),
    ((3, 20, 9, 7), (24, 20, 1, 1), dict(padding=0)),
    ((5, 18, 1, 1), (64, 18, 1, 1), dict(padding=0, bias=False)),
]


@pytest.mark.vectors
@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize(("images", "filters", "how"), _SHAPES)
def test_the_other_kernels_give_what_torch_gives_in_double_precision(images, filters, how, num_threads):
    tensors = _tensors(images, filters, **how)
    module = _trace(tensors)
    x, w, b, g, rest = tensors
    x, w, b, g = (None if value is None else value.double() for value in (x, w, b, g))
    backward = aten.convolution_backward(g, x, w, [len(w)], *rest, [True, True, b is not None])
    expected = [aten.convolution(x, w, b, *rest), *(value for value in backward if value is not None)]

    assert len(_exchange(module)) == 3
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    found = module(*tensors[:4])
    torch.set_num_threads(before)

    assert "aten.convolution" not in module.code
    _assert_same(found, expected)


@pytest.mark.vectors
@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize(
    ("images", "filters", "how"),
    [
        ((5, 58, 7, 9), (58, 1, 3, 3), dict(stride=(2, 2))),
        ((2, 16, 40, 33), (16, 1, 5, 3), dict(stride=(3, 2), padding=2)),
        ((2, 17, 20, 21), (17, 1, 3, 5), dict(stride=(1, 2), padding=4, dilation=2, bias=False)),
    ],
)
def test_a_stride_leaves_the_gradient_of_the_images_to_torch(images, filters, how):
    tensors = _tensors(images, filters, **how)
    module = _trace(tensors)
    expected = module(*(None if value is None else value.double() for value in tensors[:4]))

    assert sorted(convolution.kind for convolution in _exchange(module)) == ["filter gradient", "forward"]
    _assert_same(module(*tensors[:4]), expected)


@pytest.mark.vectors
@needs_compiler
@pytest.mark.slow
def test_gradients_that_stay_are_still_torchs():
    tensors = _tensors((2, 32, 16, 16), (32, 32, 3, 3))
    module = _trace(tensors)
    expected = module(*tensors[:4])

    _exchange(module, kinds=["filter gradient"])

    assert "[True, False, False]" in module.code
    _assert_same(module(*tensors[:4]), [value.double() for value in expected])


def test_a_convolution_that_is_not_faster_stays(lanes):
    module = _trace(_tensors((2, 32, 16, 16), (32, 32, 3, 3), bias=False))
    before = module.code

    assert not any(_exchange(module, kinds=[], lanes=lanes).values())
    assert module.code == before


@pytest.mark.parametrize(
    ("images", "filters", "how"),
    [
        ((2, 20, 32, 32), (64, 20, 3, 3), dict()),
        ((2, 32, 64, 64), (32, 32, 5, 5), dict(padding=2)),
        ((2, 32, 64, 64), (32, 32, 3, 3), dict(dilation=2, padding=2)),
        ((2, 32, 64, 64), (32, 16, 3, 3), dict()),
        ((2, 32, 64, 64), (32, 32, 3, 3), dict(stride=(2, 1))),
        ((2, 6, 64, 64), (6, 1, 3, 3), dict()),
        ((2, 32, 4, 4), (32, 32, 3, 3), dict()),
    ],
    ids=[
        "no whole vectors",
        "a large window",
        "dilated",
        "two groups",
        "with a stride",
        "fewer channels than a vector",
        "small",
    ],
)
def test_what_the_kernels_cannot_do_or_what_is_small_is_left_alone(lanes, images, filters, how):
    assert collect_convolutions(_trace(_tensors(images, filters, **how)).graph, lanes=lanes) == {}


@pytest.mark.parametrize(
    ("images", "filters", "how", "algorithm"),
    [
        ((1, 8, 32, 32), (8, 8, 3, 3), dict(), "planar"),
        ((1, 8, 32, 32), (24, 8, 5, 7), dict(padding=(2, 3)), "planar"),
        ((1, 16, 32, 32), (16, 16, 3, 3), dict(), "winograd"),
        ((1, 8, 32, 12), (8, 8, 3, 3), dict(), ""),
        ((1, 8, 32, 32), (12, 8, 3, 3), dict(), ""),
        ((1, 8, 32, 32), (8, 8, 3, 3), dict(padding=(3, 0)), ""),
        ((1, 8, 32, 32), (8, 8, 3, 3), dict(dilation=(2, 1)), ""),
        ((1, 8, 32, 32), (8, 8, 3, 3), dict(stride=(2, 1)), ""),
    ],
)
def test_vectors_of_columns_are_for_few_channels_and_wide_vectors(monkeypatch, images, filters, how, algorithm):
    whole = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), **how, "groups": 1, "lanes": 16}
    monkeypatch.setattr("porting.engines.aot.inductor.optional.convolution_kernels.has_wide_vectors", lambda: True)
    assert find_algorithm(images, filters, **whole) == algorithm

    monkeypatch.setattr("porting.engines.aot.inductor.optional.convolution_kernels.has_wide_vectors", lambda: False)
    assert find_algorithm(images, filters, **whole) != "planar"


def test_other_memory_formats_are_left_alone(lanes):
    x, w, b, g, rest = _tensors((2, 32, 16, 16), (32, 32, 3, 3))

    assert collect_convolutions(_trace((x.contiguous(), w, b, g, rest)).graph, lanes=lanes) == {}


def _trace_with_a_gradient_in_another_order() -> Any:
    x, w, b, g, rest = _tensors((2, 32, 12, 12), (16, 32, 3, 3))
    tensors = x, w, b, g.contiguous(), rest
    return tensors, _trace(tensors)


def test_a_gradient_in_another_order_is_brought_into_that_of_the_images(lanes):
    _given, module = _trace_with_a_gradient_in_another_order()

    chosen = _exchange(module, lanes=lanes)

    assert {convolution.kind for convolution in chosen} == {"forward", "image gradient", "filter gradient"}


@pytest.mark.vectors
@needs_compiler
@pytest.mark.slow
def test_a_gradient_in_another_order_is_as_near_to_double_precision():
    tensors, module = _trace_with_a_gradient_in_another_order()

    _exchange(module)

    _assert_same(module(*tensors[:4]), _trace(tensors)(*(value.double() for value in tensors[:4])))


def test_equal_convolutions_are_measured_once(lanes):
    graph = _trace(_tensors((2, 32, 16, 16), (32, 32, 3, 3))).graph
    measured = []

    choose_convolution_kernels(graph, lanes=lanes, is_faster=lambda convolution: bool(measured.append(convolution)))

    shape = ("winograd", (2, 32, 16, 16), (32, 32, 3, 3), (1, 1), (1, 1), (1, 1))
    assert measured == [
        Convolution("image gradient", *shape),
        Convolution("filter gradient", *shape),
        Convolution("forward", *shape, has_bias=True),
    ]


def test_the_gradient_of_a_bias_is_a_sum_that_can_be_fused():
    tensors = _tensors((2, 32, 16, 16), (32, 32, 3, 3))
    module = _trace(tensors)

    _exchange(module, kinds=[])

    (backward,) = module.graph.find_nodes(op="call_function", target=aten.convolution_backward.default)
    assert backward.args[-1] == [True, True, False]
    assert len(module.graph.find_nodes(op="call_function", target=aten.sum.dim_IntList)) == 1
    _assert_same(module(*tensors[:4]), _trace(tensors)(*(value.double() for value in tensors[:4])))


def test_without_a_compiler_that_can_do_it_convolutions_stay(caplog, lanes):
    module = _trace(_tensors((2, 32, 16, 16), (32, 32, 3, 3)))
    before = module.code

    def fail(convolution: Convolution) -> bool:
        raise RuntimeError("unknown pragma")

    with caplog.at_level("INFO", logger="porting"):
        chosen = choose_convolution_kernels(module.graph, lanes=lanes, is_faster=fail)

    assert not any(chosen.values())
    assert module.code == before
    assert "unknown pragma" in caplog.text


@needs_compiler
@pytest.mark.slow
def test_a_compiled_program_convolves_as_torch_does(compile_into, tmp_path):
    arguments, rests = [], []
    for channels in (32, 24, 8):
        *tensors, rest = _tensors((4, channels, 40, 40), (channels, 1, 5, 5), padding=2)
        arguments += [*tensors, _tensors((4, channels, 40, 40), (channels, channels, 3, 3))[1]]
        rests.append(rest)

    def step(*arguments: Any) -> Any:
        results = []
        for number, rest in enumerate(rests):
            x, w, b, g, dense = arguments[5 * number : 5 * number + 5]
            hidden = aten.relu(aten.convolution(x, w, b, *rest))
            how = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False])
            results += aten.convolution_backward(g, hidden, dense, None, *how)[:2]
        return tuple(results)

    module = make_fx(step, tracing_mode="fake")(*arguments)
    specs = tuple(TensorSpec.of(value, name=f"argument_{index}") for index, value in enumerate(arguments))

    found = compile_into(Program("step", module, specs, num_results=6), tmp_path)(arguments)

    _assert_same(found, step(*(value.double() for value in arguments)))


@needs_compiler
@pytest.mark.slow
def test_compiled_convolutions_of_single_pixels_multiply_results_of_fused_operators(compile_into, tmp_path):
    x, w, b, g, rest = _tensors((4, 96, 12, 12), (48, 96, 1, 1), padding=0)

    def step(x: Any, w: Any, b: Any, g: Any) -> Any:
        hidden = aten.relu(x) * 2
        result = aten.convolution(hidden, w, b, *rest)
        found = aten.convolution_backward(aten.tanh(g), hidden, w, [48], *rest, [True, True, True])
        return (result, *found)

    module = make_fx(step, tracing_mode="fake")(x, w, b, g)
    names = ("images", "filters", "bias", "gradient")
    specs = tuple(TensorSpec.of(value, name=name) for name, value in zip(names, (x, w, b, g)))

    found = compile_into(Program("step", module, specs, num_results=4), tmp_path)([x, w, b, g])

    _assert_same(found, step(*(value.double() for value in (x, w, b, g))))
