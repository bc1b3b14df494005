"""Equal steps have equal identities, wherever their lines stand; what cannot be written down equals nothing."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import porting.simulator as poptorch
from porting.capture import capture_step
from porting.capture.graph_identity import identify_graph


def identity_of(forward, *inputs, **options):
    class Net(nn.Module):
        def forward(self, *args):
            return forward(*args)

    graph = capture_step(Net(), list(inputs or [torch.ones(2, 3)]), mode="inference", **options)
    return identify_graph(graph, opaque_mark="mark")


def test_equal_steps_have_equal_identities():
    first = identity_of(lambda x: torch.cat([x, x * 2], dim=1))
    second = identity_of(lambda x: torch.cat([x, x * 2], dim=1))

    assert (first.graph, first.tensors, first.constants) == (second.graph, second.tensors, second.constants)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: torch.cat([x, x * 3], dim=1),
        lambda x: torch.cat([x, x * 2], dim=0),
        lambda x: torch.cat([x * 2, x], dim=1),
    ],
)
def test_another_step_has_another_identity(other):
    assert identity_of(other).graph != identity_of(lambda x: torch.cat([x, x * 2], dim=1)).graph


def test_an_identity_is_plain_and_the_same_after_a_file():
    identity = identity_of(lambda x: (x.to(torch.float16), x.clamp(max=float("inf"))))

    assert json.loads(json.dumps(identity.graph, allow_nan=False)) == identity.graph


def test_arguments_have_the_names_of_the_schema():
    ((name, arguments),) = identity_of(lambda x: x.softmax(1)).graph["operators"]

    assert (name, arguments["self"], arguments["dim"]) == ("aten.softmax.int", {"%": 0}, 1)


def test_places_explain_and_are_no_part_of_it():
    identity = identity_of(lambda x: x.relu())

    assert identity.places[0][0] == __file__
    assert __file__ not in json.dumps([identity.graph, identity.tensors])


def test_a_function_of_the_host_is_marked_as_known_here_only():
    identity = identity_of(poptorch.CPU(lambda x: x + 1, "plus_one"), host_features="ignored")

    assert identity.opaque != ()
    assert "mark>" in json.dumps(identity.graph)
