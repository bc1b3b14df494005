"""Turning a device tensor into text while `forward` is traced."""

from __future__ import annotations

import pytest
import torch

from porting.adapters.print_guard import PrintGuard
from porting.diagnostics import CaptureError


class OnDevice(torch.Tensor):
    """What `forward` sees on a device: an ordinary tensor, save for where it lives."""

    device = torch.device("ipu:0")


@pytest.fixture
def tensor():
    return torch.ones(2, 3, dtype=torch.float16).as_subclass(OnDevice)


@pytest.mark.parametrize("text", [str, repr, print, "{}".format, lambda t: f"{t}", lambda t: f"{t.sum():.3f}"])
def test_text_of_a_device_tensor_is_an_error_with_the_users_line(tensor, text):
    with PrintGuard(), pytest.raises(CaptureError) as caught:
        text(tensor)

    assert caught.value.code == "C010"
    assert caught.value.finding.place.file == __file__


def test_the_error_tells_which_tensor_and_what_to_do_instead(tensor):
    with PrintGuard(), pytest.raises(CaptureError) as caught:
        str(tensor)

    assert caught.value.finding.notes == ("the tensor has shape (2, 3) and type torch.float16",)
    assert "ipu_print_tensor" in caught.value.finding.help[0]


def test_a_parameter_on_the_device_is_refused_too(tensor):
    class Parameter(torch.nn.Parameter):
        device = torch.device("ipu:0")

    with PrintGuard(), pytest.raises(CaptureError):
        repr(Parameter(torch.ones(1)))


def test_shapes_and_host_tensors_are_shown_as_always(tensor):
    with PrintGuard():
        shown = f"{tensor.shape} {tensor.dtype} {torch.ones(1)}"

    assert shown == "torch.Size([2, 3]) torch.float16 tensor([1.])"


def test_everything_else_is_computed_as_always(tensor):
    with PrintGuard():
        doubled = tensor * 2

    assert doubled.sum().item() == 12


def test_outside_the_guard_a_tensor_can_be_shown(tensor):
    with PrintGuard():
        pass

    assert "1." in str(tensor.as_subclass(torch.Tensor))
