"""Parts of an update are the update, whatever is cut where."""

from __future__ import annotations

import pytest
import torch

from porting.bench.peaks import find_tensor_peak
from porting.engines.update.update_parts import cut_update
from porting.engines.update.updates import apply_update

PART = 1 << 18


def parts_of(weights, *, cuts_tensors=True, slots=None):
    slots = {"Accl1": [torch.zeros_like(w) for w in weights]} if slots is None else slots
    gradients = [torch.ones_like(w) for w in weights]
    return [
        [tensor.numel() for tensor in of_weights]
        for of_weights, _gradients, _state in cut_update(weights, gradients, slots, cuts_tensors=cuts_tensors)
    ]


def test_small_tensors_share_a_part():
    assert parts_of([torch.zeros(100), torch.zeros(50)]) == [[100, 50]]
    assert parts_of([torch.zeros(PART - 10), torch.zeros(10), torch.zeros(10)]) == [[PART - 10, 10], [10]]


def test_large_tensors_are_cut_if_they_may_be():
    weights = [torch.zeros(2 * PART + 5), torch.zeros(7)]

    assert parts_of(weights) == [[PART], [PART], [5, 7]]
    assert parts_of(weights, cuts_tensors=False) == [[2 * PART + 5], [7]]


def test_tensors_that_are_laid_out_otherwise_are_not_cut():
    weight = torch.zeros(1024, 1024)

    assert parts_of([weight], slots={"Accl1": [weight.t()]}) == [[PART * 4]]
    assert parts_of([weight[:, ::2]]) == [[PART * 2]]


def test_images_are_cut_in_the_order_of_their_memory():
    weight = torch.zeros(256, 512, 2, 2).contiguous(memory_format=torch.channels_last)
    moments, count = torch.zeros_like(weight), torch.tensor(3.0)

    for of_weight, _gradients, state in cut_update(
        [weight], [torch.ones_like(weight)], {"Accl1": [moments], "Step": [count]}, cuts_tensors=True
    ):
        of_weight[0].add_(1.0)
        state["Accl1"][0].add_(state["Step"][0])

    assert weight.eq(1.0).all()
    assert moments.eq(3.0).all()


@pytest.mark.parametrize("shape", [(3, PART // 2), (2 * PART + 13,)])
def test_an_update_in_parts_is_torchs_to_the_last_bit(settings, shape):
    torch.manual_seed(0)
    start, steps = torch.randn(shape), [torch.randn(shape) for _ in range(3)]
    plain, weight = (torch.nn.Parameter(start.clone()) for _ in range(2))
    optimizer = torch.optim.Adam([plain], lr=0.1, weight_decay=0.1, foreach=True)
    groups = [settings("ADAM", learning_rate=0.1, weight_decay=0.1)]
    slots = {}

    for step in steps:
        plain.grad = step.clone()
        optimizer.step()
        weight.grad = step.clone()
        apply_update(groups, [["weight"]], {"weight": weight}, slots)

    assert torch.equal(weight, plain)


def test_an_update_takes_little_more_than_its_parts(settings):
    weight = torch.nn.Parameter(torch.zeros(16 * PART))
    groups = [settings("ADAM", learning_rate=0.1)]
    slots = {}
    weight.grad = torch.ones(16 * PART)
    apply_update(groups, [["weight"]], {"weight": weight}, slots)
    weight.grad = torch.ones(16 * PART)

    peak = find_tensor_peak(
        lambda _prepared: apply_update(groups, [["weight"]], {"weight": weight}, slots), prepare=lambda: None
    )

    # the whole has 16 MiB
    assert peak.tensor_bytes < 1 << 20
