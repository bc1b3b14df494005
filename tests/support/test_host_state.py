"""What runs leave behind of the host's random streams and threads: nothing."""

from __future__ import annotations

import random

import numpy
import pytest
import torch

from porting.support.host_state import keep_streams, seed_streams, use_threads


def test_streams_are_set_back_after_an_error():
    before = torch.get_rng_state()

    def draw():
        with keep_streams():
            torch.rand(3)
            raise KeyError

    with pytest.raises(KeyError):
        draw()

    assert torch.equal(before, torch.get_rng_state())


def draw_from_all():
    return float(torch.rand(1)), random.random(), float(numpy.random.rand())


def test_all_streams_begin_with_the_seed():
    drawn = []

    with keep_streams():
        for _run in range(2):
            seed_streams(3)
            drawn.append(draw_from_all())

    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("number", [1, None])
def test_threads_are_those_of_before(number):
    before = torch.get_num_threads()

    with use_threads(number):
        assert torch.get_num_threads() == (number or before)

    assert torch.get_num_threads() == before
