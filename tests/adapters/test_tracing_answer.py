"""While a device traces, libraries that ask are told so, and torch itself is not."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import porting
from porting.adapters.tracing_answer import tracing_announced


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
    with tracing_announced():
        assert torch.jit.is_tracing()


def test_torch_itself_gets_the_answer_of_always():
    torch_code = {"__name__": "torch.nn.functional", "torch": torch}
    with tracing_announced():
        assert not eval("torch.jit.is_tracing()", torch_code)


def test_models_of_transformers_do_too_which_would_take_sizes_for_tensors():
    model_code = {"__name__": "transformers.models.swin.modeling_swin", "torch": torch}
    mask_code = {"__name__": "transformers.modeling_attn_mask_utils", "torch": torch}
    with tracing_announced():
        assert not eval("torch.jit.is_tracing()", model_code)
        assert eval("torch.jit.is_tracing()", mask_code)


def test_an_error_ends_the_announcement():
    with pytest.raises(KeyError), tracing_announced():
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
