"""A `forward` that a device traces: nothing is printed, and libraries that ask torch are told of the trace."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting
from porting.adapters.tracing_guards import PrintGuard, announce_tracing, answer_autocast
from porting.diagnostics import CaptureError

# -- printing ----------------------------------------------------------------------------------------------------------


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


# -- is_tracing --------------------------------------------------------------------------------------------------------


class SkipsMasksOfOnes(nn.Module):
    """Leaves a mask out where its values allow it, unless a graph is made: as attention layers of libraries do."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x, mask):
        if not torch.jit.is_tracing() and mask.all():
            return self.linear(x)
        return self.linear(x * mask)


def test_who_asks_within_the_context_is_told_that_a_graph_is_made():
    with announce_tracing():
        assert torch.jit.is_tracing()


def test_torch_itself_gets_the_answer_of_always():
    torch_code = {"__name__": "torch.nn.functional", "torch": torch}
    with announce_tracing():
        assert not eval("torch.jit.is_tracing()", torch_code)


def test_models_of_transformers_do_too_which_would_take_sizes_for_tensors():
    model_code = {"__name__": "transformers.models.swin.modeling_swin", "torch": torch}
    mask_code = {"__name__": "transformers.modeling_attn_mask_utils", "torch": torch}
    with announce_tracing():
        assert not eval("torch.jit.is_tracing()", model_code)
        assert eval("torch.jit.is_tracing()", mask_code)


def test_an_error_ends_the_announcement():
    with pytest.raises(KeyError), announce_tracing():
        raise KeyError

    assert not torch.jit.is_tracing()


def test_a_model_that_asks_before_it_looks_at_values_trains_like_eager():
    torch.manual_seed(0)
    model, x, y = SkipsMasksOfOnes(), torch.randn(8, 4), torch.randint(2, (8,))
    mask = torch.ones(8, 4)
    mask[:, 3] = 0
    expected = nn.functional.cross_entropy(model(x, mask), y).item()

    _output, loss = porting.to_ipu(model, nn.CrossEntropyLoss(), device="sim")(x, mask, y)

    assert loss.item() == pytest.approx(expected, rel=1e-6)


def test_after_the_call_the_model_looks_at_values_again():
    model = SkipsMasksOfOnes()
    porting.to_ipu(model, nn.CrossEntropyLoss(), device="sim")(
        torch.ones(8, 4), torch.ones(8, 4), torch.zeros(8).long()
    )

    assert not torch.jit.is_tracing()


# -- autocast ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [{"enabled": False}, {"dtype": torch.bfloat16, "enabled": False}])
def test_a_model_may_keep_a_part_out_of_autocast(arguments):
    with answer_autocast(), torch.autocast(device_type="ipu", **arguments):
        assert not torch.is_autocast_enabled("cpu")


def test_autocast_for_the_device_is_refused_with_the_line():
    with pytest.raises(CaptureError) as caught, answer_autocast():
        torch.autocast("ipu")

    assert caught.value.code == "P001"
    assert caught.value.finding.place.file == __file__


def test_other_devices_get_what_they_ask_for_and_torch_is_as_before():
    before = torch.autocast.__init__

    with answer_autocast(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16

    assert torch.autocast.__init__ is before
