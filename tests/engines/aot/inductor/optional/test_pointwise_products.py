"""Convolutions of single pixels are written as products that give what torch gives."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from porting.engines.aot.inductor.optional import pointwise_products as products

aten = torch.ops.aten
REST = ([1, 1], [0, 0], [1, 1], False, [0, 0], 1)


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(0)
    images, filters, bias, gradients = (
        torch.randn(shape, generator=generator) for shape in ((3, 6, 5, 4), (8, 6, 1, 1), (8,), (3, 8, 5, 4))
    )
    last = torch.channels_last
    return images.contiguous(memory_format=last), filters, bias, gradients.contiguous(memory_format=last)


def run_written(write, *tensors):
    """Run the graph that `write` makes of nodes of the tensors."""
    graph = torch.fx.Graph()
    with FakeTensorMode() as mode:
        nodes = [graph.placeholder(f"argument_{index}") for index in range(len(tensors))]
        for node, tensor in zip(nodes, tensors):
            node.meta["val"] = mode.from_tensor(tensor)
        result = write(graph, *nodes)
    graph.output(result)
    found = torch.fx.GraphModule(torch.nn.Module(), graph)(*tensors)
    assert (found.shape, found.stride()) == (result.meta["val"].shape, result.meta["val"].stride())
    return found


def test_forward_with_a_bias_and_without(tensors):
    images, filters, bias, _ = tensors

    with_bias = run_written(products.write_forward, images, filters, bias)
    without = run_written(lambda *nodes: products.write_forward(*nodes, None), images, filters)

    torch.testing.assert_close(with_bias, aten.convolution(images, filters, bias, *REST))
    torch.testing.assert_close(without, aten.convolution(images, filters, None, *REST))
    assert with_bias.is_contiguous(memory_format=torch.channels_last)


def test_both_gradients(tensors):
    images, filters, _, gradients = tensors
    wanted = aten.convolution_backward(gradients, images, filters, None, *REST, [True, True, False])

    of_images = run_written(products.write_image_gradient, gradients, filters)
    of_filters = run_written(products.write_filter_gradient, gradients, images)

    torch.testing.assert_close(of_images, wanted[0])
    torch.testing.assert_close(of_filters, wanted[1])


@pytest.mark.parametrize("kind", ["forward", "image gradient", "filter gradient"])
def test_both_libraries_multiply_the_same(tensors, kind):
    by_blas, by_onednn = (multiply() for multiply in products.make_products(kind, *tensors))

    torch.testing.assert_close(by_blas, by_onednn)
