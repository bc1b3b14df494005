"""The replay of a call finds the first value that is not finite, and changes nothing of the port."""

from __future__ import annotations

from typing import Any, Callable, Optional

import pytest
import torch
from torch import nn

from porting import PortOptions, to_ipu
from porting.api.rehearsals import rehearse
from porting.engines.replay.nan_replay import find_not_finite


class Net(nn.Module):
    """A layer, statistics, and a function that may fail."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.norm, self.function = nn.Linear(4, 3), nn.BatchNorm1d(3), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.norm(self.layer(x)))


def find(function: Callable[[torch.Tensor], torch.Tensor], *, spoil: Optional[str] = None, **options: Any) -> Any:
    torch.manual_seed(0)
    model = Net(function)
    if spoil is not None:
        with torch.no_grad():
            dict([*model.named_parameters(), *model.named_buffers()])[spoil].fill_(float("nan"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ported = to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(**options), device="sim")
    batch = torch.randn(8, 4), torch.zeros(8, dtype=torch.int64)
    ported.compile(*batch)
    before = {name: value.clone() for name, value in ported.state_dict().items()}
    fault = find_not_finite(rehearse(ported.port, ported.device_executor, batch, {}))
    for name, value in ported.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0, equal_nan=True)
    return fault


def test_a_finite_call_has_no_fault() -> None:
    assert find(torch.tanh) is None


def test_an_operator_of_forward_is_named_with_its_line() -> None:
    fault = find(torch.log)

    assert (fault.phase, fault.operator.name) == ("forward", "aten.log.default")
    assert fault.place.file == __file__


def test_an_operator_of_the_backward_pass_is_named() -> None:
    fault = find(lambda x: torch.where(x > 9, x, (x - x).sqrt()))

    assert (fault.phase, fault.operator.name) == ("backward", "aten.sqrt.default")


def test_a_weight_that_was_so_before_is_no_operator_s_fault() -> None:
    fault = find(torch.tanh, spoil="layer.weight")

    assert (fault.phase, fault.name, fault.operator) == ("before", "layer.weight", None)


def test_a_buffer_that_was_so_before_is_no_fault_of_the_step() -> None:
    assert find(torch.tanh, spoil="norm.running_mean") is None


@pytest.mark.parametrize(
    "options", [{"accumulation": 2}, {"device_iterations": 2}, {"replicas": 2, "broadcast_buffers": False}]
)
def test_every_micro_batch_is_looked_at(options: Any) -> None:
    assert find(torch.log, **options).operator.name == "aten.log.default"
