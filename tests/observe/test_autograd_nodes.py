"""autograd's nodes are told apart by the operator that made them."""

from __future__ import annotations

import torch

from porting.observe.autograd_nodes import NewNodes


def test_an_operator_s_nodes_are_new_once():
    nodes, x = NewNodes(), torch.ones(2, requires_grad=True)
    doubled = x * 2

    assert [node.name() for node in nodes.take([doubled])] == ["MulBackward0"]
    assert [node.name() for node in nodes.take([doubled.sum()])] == ["SumBackward0"]
    assert nodes.take([doubled]) == []


def test_an_operator_may_have_several_nodes():
    x = torch.ones(2, 2, requires_grad=True)

    found = NewNodes().take([(x.t() @ x).relu()])

    assert {node.name() for node in found} == {"ReluBackward0", "MmBackward0", "TBackward0"}


def test_a_leaf_is_found_by_its_parameter_and_belongs_to_no_operator():
    nodes, x, other = NewNodes(), torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)

    found = nodes.take([x * 2])

    leaf = nodes.find_leaf(x)
    assert leaf is not None
    assert leaf not in found
    assert nodes.find_leaf(other) is None


def test_what_needs_no_gradient_has_no_nodes():
    assert NewNodes().take([torch.ones(2) * 2]) == []
