"""Values that the device's 32 bits cannot hold are refused at the call that brings them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting import to_ipu
from porting.api.value_ranges import refuse_lost_values
from porting.diagnostics import BatchError


class Scaled(nn.Linear):
    def forward(self, x, ids):
        return super().forward(x) + (ids % 1000).unsqueeze(1)


def make_ported():
    return to_ipu(Scaled(4, 3), nn.CrossEntropyLoss(), device="sim")


def batch_with(value, dtype=torch.int64):
    ids = torch.arange(6).to(dtype)
    ids[4] = value
    return torch.ones(6, 4), ids, torch.zeros(6, dtype=torch.int64)


@pytest.mark.parametrize("value", [2**31, 2**32 + 1, -(2**31) - 1])
def test_an_integer_beyond_int32_is_refused_with_its_argument_and_position(value):
    with pytest.raises(BatchError) as raised:
        make_ported()(*batch_with(value))

    assert raised.value.code == "B011"
    assert f"argument 1 has the value {value} at [4], which is beyond int32" in str(raised.value)


@pytest.mark.parametrize("value", [2**31 - 1, -(2**31)])
def test_the_largest_and_smallest_integers_of_the_device_pass(value):
    make_ported()(*batch_with(value))


def test_a_later_call_is_looked_at_as_the_first_is():
    ported = make_ported()
    ported(*batch_with(3))
    before = {name: value.clone() for name, value in ported.state_dict().items()}

    with pytest.raises(BatchError, match="beyond int32"):
        ported(*batch_with(2**40))

    assert all(torch.equal(value, before[name]) for name, value in ported.state_dict().items())


def test_inference_and_named_arguments_are_looked_at():
    x, ids, _y = batch_with(2**40)

    with pytest.raises(BatchError, match=r"`ids` has the value 1099511627776 at \[4\]"):
        make_ported().inference()(x=x, ids=ids)


def test_a_nested_argument_is_named():
    class Nested(nn.Linear):
        def forward(self, batch):
            return super().forward(batch["x"]) + batch["ids"][0].unsqueeze(1)

    x, ids, _y = batch_with(2**40)

    with pytest.raises(BatchError, match=r"argument 0\['ids'\]\[0\] has the value"):
        to_ipu(Nested(4, 3), nn.CrossEntropyLoss(), device="sim").inference()({"x": x, "ids": (ids,)})


def test_a_float_that_would_become_infinite_is_refused():
    with pytest.raises(BatchError, match=r"argument 1 has the value 1e\+300 at \[4\], which is beyond float32"):
        make_ported()(*batch_with(1e300, torch.float64))


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 3.4e38])
def test_floats_that_arrive_as_they_are_pass(value):
    x, ids, _y = batch_with(value, torch.float64)

    refuse_lost_values((x, [ids]), {"ids": ids})
