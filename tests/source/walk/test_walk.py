"""The state of a walk: ways of calls that exclude each other are one, and where a walk stands is put back."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Iterator

import pytest

from porting.source import Kind, read_programs
from porting.source.facts import Where
from porting.source.walk.expressions import EVALUATORS
from porting.source.walk.statements import EXECUTORS
from porting.source.walk.walk import Frame, Walk


@pytest.fixture
def walk(tmp_path: Path) -> Iterator[Walk]:
    (tmp_path / "train.py").write_text("x = 1\n")
    project = read_programs([tmp_path / "train.py"])
    (module,) = project.modules.values()
    walk = Walk(project, EVALUATORS, EXECUTORS, most_steps=1000, most_walks=3)
    with walk.inside(Frame(unit=module.units[0], module=module, variables={})):
        yield walk


def test_calls_that_exclude_each_other_are_one_way(walk):
    body, test = ast.Lambda(), ast.Name("a")
    with walk.standing(guards=(test,)):
        one = walk.extend_key(ast.Call(), body)
    with walk.standing(guards=(walk.negate(test),)):
        other = walk.extend_key(ast.Call(), body)

    assert one == other


def test_calls_one_after_the_other_are_two_ways(walk):
    body = ast.Lambda()

    assert walk.extend_key(ast.Call(), body) != walk.extend_key(ast.Call(), body)


def test_where_it_stands_is_put_back(walk):
    with pytest.raises(KeyError), walk.standing(in_forward=True):
        raise KeyError

    assert not walk.in_forward


def test_a_program_that_is_too_deep_leaves_the_walk_as_it_was(walk):
    def go_down() -> None:
        with walk.inside(walk.frame):
            go_down()

    walk.attempt(go_down)

    assert len(walk.frames) == 1


def test_a_fact_that_stands_as_the_walk_does_needs_no_merging(walk):
    assert walk.stands_as(walk.where)
    assert not walk.stands_as(Where("train.py", in_forward=True))


def test_a_function_that_is_called_in_either_branch_makes_a_thing_once(facts_of):
    facts = facts_of(
        """
        import torch
        def main():
            torch.optim.SGD(torch.nn.Linear(3, 2).parameters(), 0.1)
        if args.distributed:
            spawn(main)
            main()
        else:
            main()
        """
    )

    assert len(facts.list_program_objects(Kind.OPTIMIZER)) == 1
