"""The share of operators is that of their own time, not of what calls them."""

from __future__ import annotations

import time

import torch

from porting.engines.replay.operator_share import find_operator_share


def test_waiting_between_operators_is_none_of_their_time():
    ones = torch.ones(4)

    def call():
        time.sleep(0.02)
        return ones + ones

    assert find_operator_share(call) < 0.5


def test_a_large_product_is_nearly_all():
    large = torch.ones(600, 600)

    assert find_operator_share(lambda: large @ large) > 0.5
