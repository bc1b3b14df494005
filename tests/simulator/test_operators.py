"""Every operator that PopTorch lists computes on the device what it computes in plain PyTorch, and trains like it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, List, Tuple

import pytest
import torch
from torch import nn

from porting.capture.dtypes import device_dtype

from .operator_cases import Case
from .operator_cases.layers import ACTIVATIONS, LOSSES, POOLING, WEIGHTED, Layer
from .operator_cases.pointwise import IN_PLACE, POINTWISE
from .operator_cases.reductions import MATRICES, REDUCTIONS
from .operator_cases.shapes import SHAPES

CASES = {**POINTWISE, **IN_PLACE, **REDUCTIONS, **MATRICES, **SHAPES, **ACTIVATIONS, **POOLING, **WEIGHTED, **LOSSES}
DIFFERENTIABLE = {name: case for name, case in CASES.items() if case.has_gradient}
IN_HALF = {name: case for name, case in CASES.items() if case.in_half}

OF_INTEGERS = (
    "torch.abs torch.neg torch.square torch.add torch.mul torch.maximum torch.minimum torch.remainder torch.fmod "
    "torch.floor_divide torch.div torch.true_divide torch.eq torch.ne torch.lt torch.le torch.gt torch.ge torch.where "
    "torch.sum torch.prod torch.amax torch.amin torch.cumsum torch.cumprod torch.argmax torch.argmin "
    "torch.any torch.all torch.count_nonzero torch.gather torch.scatter torch.scatter_add torch.index_select torch.cat "
    "torch.stack torch.flip torch.roll torch.reshape torch.permute torch.Tensor.masked_fill torch.Tensor.repeat "
    "torch.Tensor.__getitem__ torch.Tensor.__setitem__ torch.exp torch.sqrt torch.sin torch.sigmoid torch.sign "
    "torch.clone torch.chunk torch.unbind torch.Tensor.float torch.Tensor.half torch.Tensor.bool add_ mul_ copy_"
).split()

# Names of the list that other tests cover, or that stand for something else than a call in `forward`.
ELSEWHERE = set(
    # random numbers: test_random_operators.py
    "torch.rand torch.randn torch.randint torch.randperm torch.normal torch.bernoulli torch.uniform torch.exponential "
    "torch.Tensor.bernoulli_ torch.Tensor.exponential_ torch.Tensor.normal_ torch.Tensor.uniform_ torch.Tensor.random_ "
    "torch.distributions.Bernoulli torch.distributions.Exponential torch.distributions.Normal "
    "torch.distributions.Uniform "
    # gradients that are kept back, and containers: test_tracing.py, test_training.py
    "torch.no_grad torch.inference_mode torch.Tensor.requires_grad_ torch.nn.Module torch.nn.ModuleDict "
    "torch.nn.ModuleList torch.nn.ParameterList".split()
)

COVERAGE = Path(__file__).parents[3] / "shared" / "spec" / "op-coverage.json"


class Model(nn.Module):
    """The call of a case on its inputs, of which the first is a parameter."""

    def __init__(self, case: Case, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.weight = nn.Parameter(case.floats(dtype)[0])
        self.call = case.call
        if isinstance(case.call, Layer):
            self.layer = case.call.module(dtype)
            self.call = lambda *inputs: case.call.select(self.layer(*inputs))
        elif isinstance(case.call, nn.Module):
            self.call = copy.deepcopy(case.call)

    def forward(self, *others: torch.Tensor) -> Any:
        return self.call(self.weight, *others)


class Trained(nn.Module):
    """A model with a loss that weighs all elements of its results differently."""

    def __init__(self, model: nn.Module, poptorch: Any):
        super().__init__()
        self.model = model
        self.poptorch = poptorch

    def forward(self, *others: torch.Tensor) -> torch.Tensor:
        total = 0.0
        for result in take_tensors(self.model(*others)):
            if result.dtype.is_floating_point:
                weights = torch.linspace(0.5, 1.5, result.numel(), device=result.device).reshape(result.shape)
                total = total + (result.float() * weights).sum()
        return self.poptorch.identity_loss(total, "none")


def take_tensors(results: Any) -> List[torch.Tensor]:
    return [results] if isinstance(results, torch.Tensor) else list(results)


def others_of(case: Case, dtype: torch.dtype = torch.float32) -> Tuple[torch.Tensor, ...]:
    return (*case.floats(dtype)[1:], *case.integers)


def plain(case: Case, dtype: torch.dtype = torch.float32) -> List[torch.Tensor]:
    with torch.no_grad():
        return take_tensors(Model(case, dtype)(*others_of(case, dtype)))


class OfIntegers(nn.Module):
    """The call of a case on integers."""

    def __init__(self, case: Case):
        super().__init__()
        self.call = case.call

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.call(*inputs)


@pytest.mark.sampled(120)
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_plain_pytorch(poptorch, name):
    case = CASES[name]

    results = take_tensors(poptorch.inferenceModel(Model(case))(*others_of(case)))

    for result, expected in zip(results, plain(case)):
        assert result.dtype == device_dtype(expected.dtype)
        torch.testing.assert_close(result, expected.to(result.dtype), rtol=1e-5, atol=1e-6)


@pytest.mark.sampled(80)
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_step_of_training_is_that_of_plain_pytorch(poptorch, name):
    case = DIFFERENTIABLE[name]
    eager, model = Model(case), Model(case)
    Trained(eager, poptorch)(*others_of(case)).backward()
    torch.optim.SGD(eager.parameters(), lr=0.1).step()

    executor = poptorch.trainingModel(
        Trained(model, poptorch), optimizer=poptorch.optim.SGD(model.parameters(), lr=0.1)
    )
    executor(*others_of(case))
    executor.copyWeightsToHost()

    for parameter, expected in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(parameter.detach(), expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", IN_HALF)
def test_results_in_half_precision_are_those_of_single_precision_rounded(poptorch, name):
    case = IN_HALF[name]
    rounded = Case(case.call, case.shapes, case.low, case.high, case.integers)
    rounded_floats = [tensor.float() for tensor in rounded.floats(torch.float16)]
    with torch.no_grad():
        model = Model(case)
        model.weight.copy_(rounded_floats[0])
        expected = take_tensors(model.half().float()(*rounded_floats[1:], *case.integers))

    results = take_tensors(poptorch.inferenceModel(Model(case, torch.float16))(*others_of(case, torch.float16)))

    for result, wanted in zip(results, expected):
        if wanted.dtype == torch.float32:
            tolerance = 16 * torch.finfo(torch.float16).eps * max(1.0, wanted.abs().max().item())
            assert (result.float() - wanted).abs().max() <= tolerance
        else:
            assert result.shape == wanted.shape


@pytest.mark.sampled(40)
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16], ids=str)
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_results_of_integers_are_those_of_plain_pytorch_in_at_most_32_bits(poptorch, name, dtype):
    case = CASES[name]
    inputs = [(4 * tensor + 3).to(dtype) for tensor in case.floats()]
    model = OfIntegers(case)

    results = take_tensors(poptorch.inferenceModel(model)(*inputs, *case.integers))

    for result, expected in zip(results, take_tensors(model(*inputs, *case.integers))):
        assert result.dtype == device_dtype(expected.dtype)
        torch.testing.assert_close(result, expected.to(result.dtype), rtol=1e-5, atol=1e-6)


def test_the_table_covers_what_is_known_to_be_supported():
    if not COVERAGE.is_file():
        pytest.skip(f"no list of operators: {COVERAGE} does not exist")
    listed = json.loads(COVERAGE.read_text("utf-8"))
    supported = {name for name, entry in listed.items() if entry.get("status") == "supported"}

    assert {name for name in supported if name.startswith("torch.")} - set(CASES) - ELSEWHERE == set()
