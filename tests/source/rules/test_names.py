"""Names tell what a call does: change what it is called on, or join processes."""

from __future__ import annotations

import ast
from types import SimpleNamespace

import pytest

from porting.source.rules.names import is_in_place, joins_processes, write_dotted


def called(name, *others):
    return SimpleNamespace(name=name, other_names=others)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (".clip_grad_norm_", False),
        (".add_", True),
        (".clamp_", True),
        (".add", False),
        (".__init__", False),
        (".requires_grad_", False),
    ],
)
def test_a_method_whose_name_ends_so_changes_what_it_is_called_on(name, changes):
    assert is_in_place(called(name)) is changes


@pytest.mark.parametrize("name", ["torch.distributed.init_process_group", "popdist.getInstanceIndex", ".Get_rank"])
def test_processes_are_joined_under_any_of_a_calls_names(name):
    assert joins_processes(called(name))
    assert joins_processes(called("helper", name))
    assert not joins_processes(called("helper"))


def test_subscripts_and_calls_are_left_out_of_a_dotted_name():
    assert write_dotted(ast.parse("self.parts[0].make(3).step", mode="eval").body) == "self.parts.make.step"
    assert write_dotted(ast.parse("x + 1", mode="eval").body) == ""
