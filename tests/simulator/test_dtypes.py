"""Types on the device: 64 bits become 32, half and single precision may meet, some types do not exist."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

NATIVE = [torch.float32, torch.float16, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
NARROWED = {torch.int64: torch.int32, torch.float64: torch.float32, torch.bfloat16: torch.float32}


def run(poptorch, forward, *inputs):
    model = nn.Module()
    model.forward = forward
    return poptorch.inferenceModel(model)(*inputs)


def identity(x):
    return x.clone()


# -- narrowing


@pytest.mark.parametrize("dtype", NATIVE)
def test_native_types_pass_through(poptorch, dtype):
    x = torch.tensor([0, 1, 1]).to(dtype)

    result = run(poptorch, identity, x)

    assert result.dtype == dtype
    assert torch.equal(result, x)


@pytest.mark.parametrize("dtype", NARROWED)
def test_wide_types_come_back_narrowed(poptorch, dtype):
    x = torch.tensor([0, 1, 2]).to(dtype)

    result = run(poptorch, identity, x)

    assert result.dtype == NARROWED[dtype]
    assert result.tolist() == [0, 1, 2]


def test_forward_sees_the_narrowed_type(poptorch):
    seen = []

    run(poptorch, lambda x: seen.append(x.dtype), torch.tensor([1]))

    assert seen == [torch.int32]


def test_values_beyond_the_range_wrap(poptorch):
    assert run(poptorch, identity, torch.tensor([2**32 + 5])).item() == 5


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.argmax(0),
        lambda x: x.sort().indices,
        lambda x: x.topk(1).indices,
        lambda x: (x > 0).sum(),
        lambda x: torch.arange(3, device=x.device),
        lambda x: torch.randint(5, (3,), device=x.device),
        lambda x: x.to(torch.int64),
        lambda x: x.type(torch.int64),
        lambda x: x.long(),
        lambda x: nn.functional.one_hot(x.int() % 2, 2),
    ],
)
def test_integers_that_arise_are_narrowed(poptorch, forward):
    assert run(poptorch, forward, torch.tensor([3.0, 1.0, 2.0])).dtype == torch.int32


@pytest.mark.parametrize("convert", [lambda x: x.double(), lambda x: x.to(torch.float64), lambda x: x.bfloat16()])
def test_floats_that_arise_are_narrowed(poptorch, convert):
    assert run(poptorch, convert, torch.ones(1)).dtype == torch.float32


def test_narrowing_of_inputs_is_logged(poptorch, capsys):
    run(poptorch, identity, torch.tensor([1]))

    assert "type coerced from Long to Int" in capsys.readouterr().err


def test_narrowing_of_each_input_is_logged_with_its_address(poptorch, capsys):
    x, y = torch.tensor([1]), torch.tensor([2.0], dtype=torch.float64)

    run(poptorch, lambda x, y: x + y, x, y)

    logged = capsys.readouterr().err
    assert f"[DISPATCHER] Tensor (ptr {x.data_ptr():#x}) type coerced from Long to Int" in logged
    assert f"[DISPATCHER] Tensor (ptr {y.data_ptr():#x}) type coerced from Double to Float" in logged


@pytest.mark.parametrize(
    ("forward", "change"),
    [
        (lambda x: x.argmax(), "Long to Int"),
        (lambda x: x.double() * 2, "Double to Float"),
        (lambda x: x + torch.tensor([1, 2]), "Long to Int"),
        (lambda x: x + torch.zeros(2, dtype=torch.float64), "Double to Float"),
        (lambda x: x + torch.arange(2), "Long to Int"),
        (lambda x: x.to(torch.float64), "Double to Float"),
    ],
)
def test_narrowing_of_what_arises_is_logged(poptorch, capsys, forward, change):
    run(poptorch, forward, torch.ones(2))

    assert re.search(rf"\[DISPATCHER\] Type coerced from {change} for tensor id \d+", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("forward", "dtype"),
    [(lambda x: (x.argmax(), x.argmin()), "torch.int64"), (lambda x: x.double(), "torch.float64")],
)
def test_narrowed_outputs_are_logged_once_for_each_type(poptorch, capsys, forward, dtype):
    run(poptorch, forward, torch.ones(2))

    line = f"{dtype} is not supported natively on IPU, loss of range/precision may occur. We will only warn on"
    assert capsys.readouterr().err.count(f"{line} the first instance.") == 1


def test_a_returned_input_is_logged_as_an_output(poptorch, capsys):
    run(poptorch, lambda x: x, torch.tensor([1]))

    assert ": torch.int64 is not supported natively on IPU" in capsys.readouterr().err


def test_nothing_is_logged_where_nothing_is_narrowed(poptorch, capsys):
    run(poptorch, lambda x: (x * 2, x > 0, x.int()), torch.ones(2))

    assert "oerced" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.float32, "FloatTensor"),
        (torch.float16, "HalfTensor"),
        (torch.int32, "IntTensor"),
        (torch.bool, "BoolTensor"),
    ],
)
def test_the_name_of_a_type_is_that_of_the_device(poptorch, dtype, name):
    seen = []

    run(poptorch, lambda x: (seen.append(x.type()), x.float().type(x.type()))[1], torch.ones(2, dtype=dtype))

    assert seen == [f"torch.ipu.{name}"]


def test_the_type_of_later_calls_is_the_users(poptorch):
    model = nn.Module()
    model.forward = identity
    executor = poptorch.inferenceModel(model)
    executor(torch.tensor([1]))

    with pytest.raises(poptorch.Error, match="expected torch.int64 but got torch.int32"):
        executor(torch.tensor([1], dtype=torch.int32))


@pytest.mark.parametrize("x", [torch.ones(2, dtype=torch.complex64), torch.ones(2).to_sparse()])
def test_types_that_the_device_lacks_are_refused(poptorch, x):
    with pytest.raises(poptorch.Error, match=r"Unsupported input type torch\.\w+"):
        run(poptorch, identity, x)


def test_a_result_of_a_type_that_the_device_lacks_cannot_be_returned(poptorch):
    with pytest.raises(poptorch.Error, match=r"Returning a torch\.complex64 is not supported"):
        run(poptorch, lambda x: torch.complex(x, x), torch.ones(2))


def test_parameters_in_double_precision_are_trained(poptorch, regression, batch):
    regression.double()
    before = regression.linear.weight.detach().clone()

    _, loss = poptorch.trainingModel(regression)(*(part.double() for part in batch))

    assert loss.dtype == torch.float32
    assert regression.linear.weight.dtype == torch.float64
    assert not torch.equal(regression.linear.weight, before)


# -- half precision


def test_elementwise_operators_promote_to_single(poptorch):
    result = run(poptorch, lambda x, y: x + y, torch.ones(2).half(), torch.ones(2))

    assert result.dtype == torch.float32


def test_comparisons_promote_to_single(poptorch):
    x = torch.tensor([550.4])

    assert not run(poptorch, lambda a, b: a == b, x.half(), x).item()


@pytest.mark.parametrize("dtypes", [(torch.float16, torch.float32), (torch.float32, torch.float16)])
@pytest.mark.parametrize(
    "layer", [nn.Linear(3, 2), nn.Conv1d(3, 2, 1), nn.LayerNorm(3)], ids=["Linear", "Conv1d", "LayerNorm"]
)
def test_layers_follow_their_input(poptorch, layer, dtypes):
    input_dtype, weight_dtype = dtypes
    x = torch.ones(1, 3, 3).to(input_dtype)

    result = poptorch.inferenceModel(layer.to(weight_dtype))(x)

    assert result.dtype == input_dtype


def test_losses_keep_the_type_of_their_input(poptorch):
    x = torch.ones(2).half()

    assert run(poptorch, nn.functional.mse_loss, x, 2 * x).dtype == torch.float16


@pytest.mark.parametrize(
    "convert",
    [
        lambda x: x.half(),
        lambda x: x.to(torch.float16),
        lambda x: x.type(torch.HalfTensor),
        lambda x: x.type(torch.float16),
    ],
)
def test_conversions_in_forward_are_torchs(poptorch, convert):
    assert run(poptorch, convert, torch.ones(1)).dtype == torch.float16


def test_factories_honour_their_type(poptorch):
    x = torch.ones(2).half()

    assert run(poptorch, lambda x: torch.ones(2, dtype=x.dtype, device=x.device), x).dtype == torch.float16


# -- empty tensors


def test_empty_inputs_are_refused(poptorch):
    with pytest.raises(poptorch.Error, match=r"Zero-sized tensors are unsupported \(Got shape \[0, 2, 5, 5\]\)"):
        run(poptorch, identity, torch.ones(0, 2, 5, 5))
