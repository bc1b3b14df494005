"""Group normalisation with strided groups of channels."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.replay.graph_function import GraphFunction
from porting.engines.replay.strided_group_norm import stride_group_norms


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 3, 4)])
@pytest.mark.parametrize("num_groups", [1, 2, 3, 6])
def test_channels_belong_to_the_group_of_their_number_modulo_the_groups(num_groups, shape, affine):
    torch.manual_seed(0)
    norm, x = nn.GroupNorm(num_groups, 6, affine=affine), torch.randn(shape)
    if affine:
        nn.init.uniform_(norm.weight)
        nn.init.uniform_(norm.bias)
    graph = capture_step(norm, [x], mode="inference")
    expected = norm(x).detach().clone()

    stride_group_norms(graph.graph)

    result = GraphFunction(graph.graph).call(*(p.detach() for p in norm.parameters()), x)[0]
    for group in range(num_groups):
        members = x[:, group::num_groups]
        plain = nn.functional.group_norm(members, 1)
        if affine:
            per_channel = (-1, *(1 for _ in shape[2:]))
            plain = plain * norm.weight[group::num_groups].view(per_channel)
            plain = plain + norm.bias[group::num_groups].view(per_channel)
        torch.testing.assert_close(result[:, group::num_groups], plain.detach(), rtol=1e-5, atol=1e-5)
    assert torch.allclose(result, expected, atol=1e-5) == (num_groups in (1, 6))
