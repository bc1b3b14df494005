"""What a captured graph calls besides operators: loops and branches."""

from __future__ import annotations

import pytest
import torch

from porting.capture.subgraphs import run_cond, run_for_loop


def test_a_body_is_run_on_what_it_returned_before():
    assert run_for_loop(3, lambda a, b, c: (a + c, b * 2), (0, 1), (10,)) == (30, 8)
    assert run_for_loop(0, lambda a: (a + 1,), (5,), ()) == (5,)


@pytest.mark.parametrize(("condition", "expected"), [(True, ("then", 1)), (False, ("else", 2))])
def test_one_of_two_bodies_is_run(condition, expected):
    result = run_cond(torch.tensor(condition), lambda x: ("then", x), (1,), lambda x: ("else", x), (2,))

    assert result == expected
