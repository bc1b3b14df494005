"""What a captured graph calls besides operators: loops and branches."""

from __future__ import annotations

import pytest
import torch

from porting.capture.subgraphs import is_random, run_cond, run_for_loop


def test_a_body_is_run_on_what_it_returned_before():
    assert run_for_loop(3, lambda a, b, c: (a + c, b * 2), (0, 1), (10,)) == (30, 8)
    assert run_for_loop(0, lambda a: (a + 1,), (5,), ()) == (5,)


@pytest.mark.parametrize(("condition", "expected"), [(True, ("then", 1)), (False, ("else", 2))])
def test_one_of_two_bodies_is_run(condition, expected):
    result = run_cond(torch.tensor(condition), lambda x: ("then", x), (1,), lambda x: ("else", x), (2,))

    assert result == expected


X = torch.full((2, 3, 4), -1.0)
SWITCHED = {
    "dropout": (torch.ops.aten.dropout.default, (X, 0.5, True), (X, 0.0, True), (X, 0.5, False)),
    "feature dropout": (torch.ops.aten.feature_dropout.default, (X, 0.5, True), (X, 0.0, True), (X, 0.5, False)),
    "alpha dropout": (torch.ops.aten.alpha_dropout.default, (X, 0.5, True), (X, 0.0, True), (X, 0.5, False)),
    "rrelu": (torch.ops.aten.rrelu.default, (X, 0.1, 0.3, True), (X, 0.1, 0.3, False)),
    "attention": (torch.ops.aten.scaled_dot_product_attention.default, (X, X, X, None, 0.5), (X, X, X)),
    "native dropout": (torch.ops.aten.native_dropout.default, (X, 0.0, True), (X, 0.5, False)),
    "bernoulli": (torch.ops.aten.bernoulli.p, (X, 0.0)),
}


@pytest.mark.parametrize(("operator", "drawing", "others"), [(o, d, r) for o, d, *r in SWITCHED.values()], ids=SWITCHED)
def test_an_operator_is_random_where_torch_draws_numbers(operator, drawing, others):
    for arguments, is_drawing in ((drawing, True), *((each, False) for each in others)):
        graph = torch.fx.Graph()
        node = graph.call_function(operator, arguments)
        before = torch.get_rng_state()
        operator(*arguments)

        assert is_random(node) is is_drawing
        assert torch.equal(before, torch.get_rng_state()) is not is_drawing
