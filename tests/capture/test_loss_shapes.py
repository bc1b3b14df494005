"""Rules for losses, and trying those without a rule, say what torch says; what is unusual is left to it."""

from __future__ import annotations

import pytest
import torch

from porting.capture.loss_shapes import LOSSES
from porting.capture.shape_mode import UNKNOWN, ShapeMode

aten = torch.ops.aten


def T(*shape, dtype=torch.float32):  # noqa: N802 - a tensor without values
    return torch.empty(shape, dtype=dtype, device="meta")


def is_tensor(value):
    return isinstance(value, torch.Tensor)


def make_faces(mode, args):
    return [mode.make_face(arg) if is_tensor(arg) else arg for arg in args]


def indices(*shape):
    return T(*shape, dtype=torch.int64)


PAIR = T(2, 3), T(2, 3)
NONE, MEAN, SUM = 0, 1, 2

USUAL = [
    *[
        (operator.default, (*PAIR, reduction))
        for operator in (aten.mse_loss, aten.l1_loss, aten.smooth_l1_loss, aten.huber_loss, aten.soft_margin_loss)
        for reduction in (NONE, MEAN, SUM)
    ],
    (aten.mse_loss.default, (T(2, 3)[:, 0], T(2))),
    (aten.kl_div.default, (*PAIR, SUM)),
    (aten.binary_cross_entropy.default, (*PAIR, T(3), NONE)),
    (aten.binary_cross_entropy_with_logits.default, (*PAIR, None, T(3))),
    (aten.hinge_embedding_loss.default, (*PAIR, 1.0, NONE)),
    (aten.poisson_nll_loss.default, (*PAIR, True, False, 1e-8, NONE)),
    (aten.nll_loss_nd.default, (T(2, 3), indices(2), T(3))),
    (aten.cross_entropy_loss.default, (T(2, 3, 4), indices(2, 4), T(3), NONE)),
    (aten.cross_entropy_loss.default, (T(2, 3, 4), T(2, 3, 4), None, NONE)),
    (aten.cross_entropy_loss.default, (*PAIR, T(3), MEAN, -100, 0.1)),
    (aten.margin_ranking_loss.default, (T(2), T(2), T(2), 0.0, NONE)),
    (aten.cosine_embedding_loss.default, (*PAIR, T(2), 0.0, NONE)),
    (aten.triplet_margin_loss.default, (*PAIR, T(2, 3), 1.0, 2.0, 1e-6, False, NONE)),
    (aten.multi_margin_loss.default, (T(2, 3), indices(2), 1, 1.0, None, NONE)),
    (aten.multilabel_margin_loss.default, (T(2, 3), indices(2, 3), NONE)),
]


@pytest.mark.parametrize(("operator", "args"), USUAL, ids=lambda value: str(value)[:60])
def test_a_rule_or_a_run_says_what_torch_says(operator, args):
    mode, values = ShapeMode(), [torch.zeros(arg.shape, dtype=arg.dtype) if is_tensor(arg) else arg for arg in args]
    find = mode.result_of if operator in LOSSES else mode.try_result_of

    result, expected = find(operator, make_faces(mode, args), {}), operator(*values)

    assert (result.shape, result.dtype, result.stride()) == (expected.shape, expected.dtype, expected.stride())


UNUSUAL = [
    (aten.mse_loss.default, (T(2, 3), T(3))),
    (aten.mse_loss.default, (T(2, 3), T(2, 3, dtype=torch.float16))),
    (aten.mse_loss.default, (T(3, 2).t(), T(2, 3), NONE)),
    (aten.huber_loss.default, (*PAIR, MEAN, 0.0)),
    (aten.binary_cross_entropy.default, (*PAIR, T(2, 1))),
    (aten.cross_entropy_loss.default, (T(3), indices())),
    (aten.cross_entropy_loss.default, (T(2, 3), indices(2), T(2))),
    (aten.cosine_embedding_loss.default, (*PAIR, T(3))),
    (aten.triplet_margin_loss.default, (*PAIR, T(2, 1))),
    (aten.multi_margin_loss.default, (T(2, 3), indices(2), 3)),
    (aten.multilabel_margin_loss.default, (T(2, 3), indices(2))),
]


@pytest.mark.parametrize(("operator", "args"), UNUSUAL, ids=lambda value: str(value)[:60])
def test_what_is_unusual_or_wrong_is_left_to_torch(operator, args):
    mode = ShapeMode()

    assert mode.result_of(operator, make_faces(mode, args), {}) is UNKNOWN
