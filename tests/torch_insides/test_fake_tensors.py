"""Tensors without values, as this package names them."""

from __future__ import annotations

import pytest
import torch

from porting.torch_insides.fake_tensors import DataDependentOutputException, FakeTensor, FakeTensorMode, probe


def test_this_torch_has_all_parts():
    assert probe() == ""


def test_a_fake_tensor_has_a_shape_and_no_value():
    with FakeTensorMode():
        product = torch.ones(2, 3) @ torch.ones(3, 4)

    assert isinstance(product, FakeTensor)
    assert product.shape == (2, 4)


def test_a_value_that_a_result_depends_on_is_refused():
    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        torch.ones(2).sum().item()
