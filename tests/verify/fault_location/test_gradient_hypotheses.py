"""What makes of one gradient another is told from the numbers."""

from __future__ import annotations

import pytest
import torch

from porting.verify.fault_location.gradient_hypotheses import GradientCase, explain_gradients


def make_case(weights, *, replicas=1):
    generator = torch.Generator().manual_seed(0)
    own = [{"weight": torch.randn(4, 3, generator=generator)} for _ in weights]
    plain = {"weight": sum(part["weight"] for part in own) / len(own)}
    ported = {"weight": sum(weight * part["weight"] for weight, part in zip(weights, own)) / len(own)}
    return GradientCase(plain, ported, own, replicas)


@pytest.mark.parametrize(
    ("weights", "replicas", "words"),
    [
        ((4, 4, 4, 4), 1, "4 times plain PyTorch's, which is the number of micro-batches"),
        ((2, 2, 2, 2), 2, "2 times plain PyTorch's, which is the number of replicas"),
        ((0.5, 0.5), 2, "1 / the number"),
        ((1, 0, 1, 0), 2, "replica 1 are lost"),
        ((1, 1, 1, 0), 1, "micro-batch 4 of 4 are lost"),
        ((1, 2, 1, 1), 1, "micro-batch 2 of 4 2 times"),
        ((0, 0), 1, "every gradient is zero"),
        ((1.25, 1.25), 1, "1.25 times"),
    ],
)
def test_a_changed_sum_is_explained(weights, replicas, words):
    found = explain_gradients(make_case(weights, replicas=replicas))

    assert words in found.text
    assert len(found.shares) == len(weights)


def test_clipped_gradients_are_recognised_by_their_norm():
    case = make_case((1.0, 1.0))
    clipped = {"weight": case.plain["weight"] / case.plain["weight"].norm() * 0.5}

    assert "norm is 0.5" in explain_gradients(GradientCase(case.plain, clipped, case.own)).text


def test_gradients_of_something_else_are_left_open():
    case = make_case((1.0, 1.0))

    assert explain_gradients(GradientCase(case.plain, {"weight": torch.arange(12.0).reshape(4, 3)}, case.own)) is None
