"""Slices that begin where a tensor says at run time, and what a device refuses of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def sliced(poptorch, dim, size, step=1):
    module = nn.Module()
    module.forward = lambda x, start: poptorch.dynamic_slice(x, dim, start, size, step)
    return module


def updated(poptorch, dim, size):
    module = nn.Module()
    module.forward = lambda x, src, start: poptorch.dynamic_update(x, src, dim, start, size)
    return module


X = torch.arange(24.0).reshape(2, 12)


@pytest.mark.parametrize(("size", "step"), [(4, 1), (4, 2), (6, 3), (12, 1), (1, 1)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_a_slice_begins_where_the_tensor_says(poptorch, size, step, dtype):
    model = poptorch.inferenceModel(sliced(poptorch, 1, size, step))

    for start in (0, 12 - size):
        result = model(X, torch.tensor([start], dtype=dtype))
        assert torch.equal(result, X[:, start : start + size : step])


def test_the_cpu_takes_the_same_slice(poptorch):
    assert torch.equal(poptorch.dynamic_slice(X, -1, torch.tensor(3), 4, 2), X[:, 3:7:2])


def test_compilation_does_not_depend_on_the_start(poptorch):
    model = poptorch.inferenceModel(sliced(poptorch, 1, 4))
    model.compile(torch.randn(2, 12), torch.tensor([25]))

    assert torch.equal(model(X, torch.tensor([5])), X[:, 5:9])


def test_a_slice_over_the_end_continues_at_the_beginning(poptorch):
    model = poptorch.inferenceModel(sliced(poptorch, 1, 4))

    assert model(X, torch.tensor([10]))[0].tolist() == [10, 11, 0, 1]
    assert model(X, torch.tensor([25]))[0].tolist() == [1, 2, 3, 4]


def test_the_start_may_be_computed(poptorch):
    module = nn.Module()
    module.forward = lambda x: poptorch.dynamic_slice(x, 0, x.argmax().reshape(1), 1, 1)

    assert poptorch.inferenceModel(module)(torch.tensor([1.0, 9.0, 3.0])).item() == 9


def test_each_micro_batch_has_its_own_start(poptorch):
    model = poptorch.inferenceModel(sliced(poptorch, 1, 3), poptorch.Options().deviceIterations(2))

    result = model(X, torch.tensor([1, 7]))

    assert result.tolist() == [[1, 2, 3], [19, 20, 21]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.bool])
def test_slices_of_every_type(poptorch, dtype):
    x = (X % 2).to(dtype)

    assert torch.equal(poptorch.inferenceModel(sliced(poptorch, 0, 1))(x, torch.tensor([1])), x[1:])


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, r"The start and end of a slice must be different\."),
        (-1, r"Taking a slice of a tensor with the end less than the start is not supported\."),
        (7, r"The size of the slice \(7\) must be a factor of the slicing dimension \(8\)\."),
    ],
)
def test_sizes_are_checked_at_compilation_only(poptorch, size, message):
    module, x, start = sliced(poptorch, 0, size), torch.randn(8, 5), torch.tensor([1])
    module(x, start)  # the CPU refuses nothing

    with pytest.raises(poptorch.Error, match=message):
        poptorch.inferenceModel(module).compile(x, start)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_an_update_replaces_a_slice(poptorch, size):
    module, src = updated(poptorch, 1, size), -torch.ones(2, size)
    x = X.clone()
    expected = X.clone()
    expected[:, 3 : 3 + size] = -1

    on_device = poptorch.inferenceModel(module)(x, src, torch.tensor([3]))

    assert torch.equal(on_device, expected)
    assert torch.equal(module(x, src, torch.tensor([3])), expected)
    assert torch.equal(x, X)


def test_an_update_over_the_end_continues_at_the_beginning(poptorch):
    model = poptorch.inferenceModel(updated(poptorch, 0, 3))
    model.compile(torch.zeros(5), torch.ones(3), torch.tensor([27]))

    assert model(torch.zeros(5), torch.tensor([1.0, 2.0, 3.0]), torch.tensor([4])).tolist() == [2, 3, 0, 0, 1]


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (0, "The start and end of a slice must be different"),
        (-1, "end less than the start is not supported."),
    ],
)
def test_sizes_of_updates_are_checked_at_compilation_only(poptorch, size, message):
    module, args = updated(poptorch, 0, size), (torch.randn(8, 5), torch.randn(2, 5), torch.tensor([1]))
    module(*args)

    with pytest.raises(poptorch.Error, match=message):
        poptorch.inferenceModel(module).compile(*args)


@pytest.mark.parametrize(
    ("src", "message"),
    [
        (torch.ones(3), r"input and src tensors must have same dimensionality. \(2\) vs \(1\)"),
        (torch.ones(2, 5, dtype=torch.int32), r"must have same dtype. \(torch.float32 vs torch.int32\)"),
    ],
)
def test_what_is_written_must_be_of_the_same_kind_everywhere(poptorch, src, message):
    args = (torch.ones(8, 5), src, torch.tensor([1]))
    module = updated(poptorch, 0, 2)

    for run in (module, poptorch.inferenceModel(module).compile):
        with pytest.raises(poptorch.Error, match=message):
            run(*args)


def test_what_is_written_must_fit(poptorch):
    module, args = updated(poptorch, 0, 2), (torch.ones(8, 5), torch.ones(3, 5), torch.tensor([1]))
    module(*args)

    with pytest.raises(poptorch.Error, match=r"expected \[2, 5\] but got \[3, 5\]"):
        poptorch.inferenceModel(module).compile(*args)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], 0, torch.tensor(0), 1, 1), "dynamic_slice must take a torch.tensor input"),
        ((X, 0.5, torch.tensor(0), 1, 1), "Dimension must be an integer."),
        ((X, 0, 0, 1, 1), "Slice start argument to dynamic_slice must be a torch.tensor"),
        ((X, 0, torch.tensor(0), 1.5, 1), "Size must be an integer."),
        ((X, 0, torch.tensor(0), 1, 1.5), "Step must be an integer."),
        ((X, 0, torch.tensor(0.5), 1, 1), "Expected integer typed start tensor"),
        ((X, 0, torch.tensor(0), 1, 0), "Slicing step must be at least 1"),
    ],
)
def test_arguments_of_a_slice_are_checked(poptorch, arguments, message):
    with pytest.raises(poptorch.Error, match=message):
        poptorch.dynamic_slice(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1], X, 0, torch.tensor(0), 1), "dynamic_update must take a torch.tensor input"),
        ((X, [1], 0, torch.tensor(0), 1), "Src argument to dynamic_update must be a torch.tensor"),
        ((X, X, "0", torch.tensor(0), 1), "Dimension must be an integer."),
        ((X, X, 0, 0, 1), "Slice start argument to dynamic_update must be a torch.tensor"),
        ((X, X, 0, torch.tensor(0), None), "Size must be an integer."),
        ((X, X, 0, torch.tensor(0.5), 1), "Expected integer typed start tensor"),
        ((X, X[0, :1], 0, torch.tensor(0.5), 1), "input and src tensors must have same dimensionality."),
        ((X, X.int(), 0, torch.tensor(0.5), 1), r"must have same dtype. \(torch.float32 vs torch.int32\)"),
    ],
)
def test_arguments_of_an_update_are_checked(poptorch, arguments, message):
    with pytest.raises(poptorch.Error, match=message):
        poptorch.dynamic_update(*arguments)


def test_a_source_of_another_type_is_refused_before_an_index_of_the_host(poptorch):
    host = torch.tensor([1])
    module = nn.Module()
    module.forward = lambda x: poptorch.dynamic_update(x, x[:1].int(), 0, host, 1)

    with pytest.raises(poptorch.Error, match=r"must have same dtype. \(torch.float32 vs torch.int32\)") as caught:
        poptorch.inferenceModel(module)(torch.ones(3))

    assert caught.value.type == "poptorch_py_error"


def test_a_dimension_out_of_range_is_torch_s_error(poptorch):
    with pytest.raises(IndexError, match=r"Dimension out of range \(expected to be in range of \[-2, 1\], but got 2\)"):
        poptorch.inferenceModel(sliced(poptorch, 2, 1))(X, torch.tensor([0]))


def test_a_start_has_one_element(poptorch):
    with pytest.raises(poptorch.Error, match="Expected a start tensor of one element"):
        poptorch.inferenceModel(sliced(poptorch, 0, 1))(X, torch.tensor([0, 1]))
