"""Shapes of results are torch's own, and so are the errors where there are none."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from porting.capture import capture_step


def test_a_repetition_of_known_length_has_a_static_shape(trace):
    graph = trace(lambda w, r: w.repeat_interleave(r, 0, output_size=6), torch.tensor([1, 2, 1, 1, 1]))

    assert graph.outputs[0].shape == (6, 4)


@pytest.mark.parametrize(
    "function",
    [
        lambda w: w @ w,
        lambda w: w.reshape(3, 3),
        lambda w: w + w[:3],
        lambda w: torch.cat([w, w[0]]),
        lambda w: F.linear(w, w[:, :3]),
        lambda w: w.sum(7),
    ],
)
def test_errors_of_shape_have_torch_s_own_words(body, function):
    with pytest.raises((RuntimeError, IndexError)) as eager:
        function(torch.ones(5, 4))

    with pytest.raises(type(eager.value)) as captured:
        capture_step(body(function), mode="inference")

    assert str(captured.value) == str(eager.value)
