"""The first value that is not finite is found where it was planted, and the search changes nothing."""

from __future__ import annotations

from typing import Any, Callable, Tuple

import pytest
import torch
from torch import nn

from porting import PortingError, PortOptions, to_ipu
from porting.nan_search import NotFiniteError

Batch = Tuple[torch.Tensor, torch.Tensor]


class Function(nn.Module):
    """A layer of one function."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def make_batch(rows: int = 8) -> Batch:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(rows, 4, generator=generator), torch.randint(3, (rows,), generator=generator)


def make_port(layer: Any = torch.relu, optimizer: Any = None, **options: Any) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), Function(layer), nn.Linear(4, 3))
    made = optimizer(model.parameters()) if optimizer is not None else torch.optim.SGD(model.parameters(), lr=0.1)
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=made, options=PortOptions(**options), device="sim")


# -- forward -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("layer", "operator"),
    [
        (torch.log, "aten.log.default"),
        (lambda x: (x - x) / (x - x), "aten.div.Tensor"),
        (lambda x: torch.exp(x * 1e4), "aten.exp.default"),
        (lambda x: (x * 1e30).square().square(), "aten.square.default"),
        (lambda x: x.clone().log_(), "aten.log_.default"),
        (lambda x: x.detach().clone()[:, :2].sqrt_().repeat(1, 2) + x, "aten.sqrt_.default"),
    ],
    ids=["log", "zero-by-zero", "exp", "overflow", "in-place", "in-place-view"],
)
def test_an_operator_of_layer_3_is_named_with_its_line(layer: Any, operator: str) -> None:
    fault = make_port(layer).find_nan(make_batch())

    assert (fault.phase, fault.module_path, fault.operator.name) == ("forward", "3", operator)
    assert fault.place.file == __file__
    assert all(value.is_finite for value in fault.inputs)
    assert not fault.result.is_finite


@pytest.mark.parametrize("precision", ["float16", "mixed"])
@pytest.mark.filterwarnings("ignore::porting.PortingWarning")
def test_an_overflow_of_half_precision_is_named_with_the_smallest_magnitude(precision: str) -> None:
    fault = make_port(lambda x: (x * 300).square().square(), precision=precision).find_nan(make_batch())

    assert (fault.phase, fault.module_path) == ("forward", "3")
    assert fault.inputs[0].dtype == "float16"
    assert fault.inputs[0].smallest > 0
    assert "65504" in fault.to_finding().help[0]


def test_bfloat16_has_the_range_of_single_precision() -> None:
    assert make_port(lambda x: (x * 300).square().square(), precision="bfloat16").find_nan(make_batch()) is None


def test_a_mask_of_minus_infinity_is_no_fault() -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.masked_fill(x < x.amax(1, keepdim=True), float("-inf")), dim=1)

    assert make_port(attend).find_nan(make_batch()) is None


def test_a_row_that_is_masked_altogether_is_found_in_softmax() -> None:
    def attend(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x.masked_fill(x < 10, float("-inf")), dim=1)

    fault = make_port(attend).find_nan(make_batch())

    assert fault.operator.name == "aten.softmax.int"
    assert "aten.masked_fill.Scalar" in fault.notes[0]
    assert "are meant there" in fault.notes[0]


def test_a_loop_of_the_device_is_looked_into() -> None:
    import porting.simulator as poptorch

    def repeat(x: torch.Tensor) -> torch.Tensor:
        return poptorch.for_loop(3, lambda y: [y.square() * 1e20], [x])[0]

    fault = make_port(repeat).eval().find_nan((make_batch()[0],))

    assert fault.phase == "forward"
    assert fault.operator.name in ("aten.square.default", "aten.mul.Tensor")


# -- what was there before the call ------------------------------------------------------------------------------------


def test_a_batch_with_nan_is_named() -> None:
    x, y = make_batch()
    x[2, 1] = float("nan")

    fault = make_port().find_nan((x, y))

    assert (fault.phase, fault.name) == ("before", "input_0")
    assert fault.result.num_nan == 1


def test_a_weight_that_is_nan_already_is_named() -> None:
    ported = make_port()
    with torch.no_grad():
        ported.port.model[2].weight[1, 1] = float("nan")

    fault = ported.find_nan(make_batch())

    assert (fault.phase, fault.name) == ("before", "2.weight")


# -- backward ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "layer",
    [
        lambda x: torch.where(x > 0, x.sqrt(), torch.zeros_like(x)),
        lambda x: (x * 0).sqrt(),
        lambda x: torch.sqrt((x - x.detach()).square()),
    ],
    ids=["where", "zero", "distance"],
)
def test_the_derivative_of_a_root_is_named_with_the_range_of_the_gradient(layer: Any) -> None:
    fault = make_port(layer).find_nan(make_batch())

    assert (fault.phase, fault.module_path, fault.operator.name) == ("backward", "3", "aten.sqrt.default")
    assert fault.inputs[0].name == "gradient of the result"
    assert fault.inputs[0].is_finite


@pytest.mark.filterwarnings("ignore::porting.PortingWarning")
def test_gradients_beyond_half_precision_are_found() -> None:
    fault = make_port(lambda x: (x * 3e4) * 1e-3, precision="float16").find_nan(
        (make_batch()[0] * 0.01, make_batch()[1])
    )
    assert fault is None

    fault = make_port(lambda x: (x * 6e4).clamp(-1, 1) * 6e4 * 1e-4, precision="float16").find_nan(
        (make_batch()[0] * 1e-4, make_batch()[1])
    )
    assert fault is None or fault.phase in ("forward", "backward")


# -- update ------------------------------------------------------------------------------------------------------------


def test_a_learning_rate_that_overflows_is_found_in_the_update() -> None:
    fault = make_port(lambda x: x * 1e3, lambda parameters: torch.optim.SGD(parameters, lr=3e38)).find_nan(make_batch())

    assert fault.phase == "update"
    assert fault.operator.name.startswith("SGD")
    assert any("learning_rate 3e+38" in note for note in fault.notes)


def test_a_division_by_zero_in_adam_is_found_in_the_update() -> None:
    fault = make_port(lambda x: x * 0, lambda parameters: torch.optim.Adam(parameters, eps=0.0)).find_nan(make_batch())

    assert (fault.phase, fault.name, fault.module_path) == ("update", "0.weight", "0")
    assert any(value.name == "Accl2 of 0.weight" and value.highest == 0 for value in fault.inputs)


def test_the_step_and_the_micro_batch_are_counted() -> None:
    x, y = make_batch(rows=12)
    x[8] = float("inf")
    ported = make_port(micro_batch=2, accumulation=3, device_iterations=2)

    fault = ported.find_nan((x, y))

    assert (fault.step, fault.micro_batch) == (2, 2)


# -- nothing changes ---------------------------------------------------------------------------------------------------


def test_a_search_changes_nothing() -> None:
    def train(*, searches: bool) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))
        optimizer = torch.optim.Adam(model.parameters())
        ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(seed=1), device="sim")
        losses = []
        for _ in range(3):
            before = torch.get_rng_state()
            assert not searches or ported.find_nan(make_batch()) is None
            assert torch.equal(before, torch.get_rng_state())
            losses.append(ported(*make_batch())[1].item())
        return losses, ported.state_dict(), ported.report().num_training_calls

    losses, weights, calls = train(searches=True)
    others, plain, plain_calls = train(searches=False)

    assert (losses, calls) == (others, plain_calls)
    assert all(torch.equal(weights[name], plain[name]) for name in plain)


def test_a_finite_call_has_no_fault() -> None:
    assert make_port().find_nan(make_batch()) is None


# -- debug_nan ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["float32", "mixed"])
def test_debug_nan_raises_with_the_weights_of_before(precision: str) -> None:
    ported = make_port(torch.log, debug_nan=True, precision=precision)
    before = ported.state_dict()

    with pytest.raises(PortingError) as caught:
        ported(*make_batch())

    assert isinstance(caught.value, NotFiniteError)
    assert caught.value.code == "L009"
    assert caught.value.fault.operator.name == "aten.log.default"
    after = ported.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_debug_nan_finds_the_call_in_which_an_update_fails() -> None:
    ported = make_port(lambda x: x * 1e3, lambda parameters: torch.optim.SGD(parameters, lr=3e38), debug_nan=True)

    with pytest.raises(NotFiniteError, match="the update of"):
        ported(*make_batch())


def test_debug_nan_lets_a_training_go_on_as_without_it() -> None:
    def train(**options: Any) -> Any:
        ported = make_port(torch.tanh, torch.optim.Adam, **options)
        return [ported(*make_batch())[1].item() for _ in range(4)]

    assert train(debug_nan=True) == train()


def test_debug_nan_looks_at_inference() -> None:
    ported = make_port(torch.log, debug_nan=True)

    with pytest.raises(NotFiniteError, match="aten.log.default"):
        ported.inference()(make_batch()[0])


def test_training_goes_on_after_a_bad_batch() -> None:
    ported, plain = make_port(torch.tanh, torch.optim.Adam, debug_nan=True), make_port(torch.tanh, torch.optim.Adam)
    x, y = make_batch()
    losses = [ported(x, y)[1].item()]
    with pytest.raises(NotFiniteError, match="the batch `input_0`"):
        ported(x * float("inf"), y)
    losses.append(ported(x, y)[1].item())

    assert losses == [plain(x, y)[1].item() for _ in range(2)]


def test_evaluation_is_searched_after_eval() -> None:
    ported = make_port(torch.log).eval()

    assert ported.find_nan((make_batch()[0],)).operator.name == "aten.log.default"
    assert ported.find_nan(make_batch()).phase == "forward"
