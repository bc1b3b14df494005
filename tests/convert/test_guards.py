"""Statements are put under as few tests as they need, and what stands between them stays."""

from __future__ import annotations

import ast

from porting.convert.guards import guard_statements


class Recorder:
    def __init__(self):
        self.guards = []

    def guard(self, first, last, test, instead, kind, why):
        self.guards.append((first.lineno, last.lineno, instead))


def find_guards(text, **marked):
    tree = ast.parse(text)
    lines = {int(key[1:]): value for key, value in marked.items()}
    statements = [one for one in ast.walk(tree) if isinstance(one, ast.stmt)]
    recorder = Recorder()
    guard_statements(
        recorder, tree.body, {one: lines[one.lineno] for one in statements if one.lineno in lines}, "t", ""
    )
    return recorder.guards


def test_neighbours_share_a_test():
    assert find_guards("a()\nb()\nc()\nd()", L1="", L2="port()", L4="") == [(1, 2, "port()"), (4, 4, "")]


def test_branches_that_are_all_guarded_are_guarded_whole():
    text = "if mixed:\n    a()\nelse:\n    b()"
    assert find_guards(text, L2="", L4="") == [(1, 1, "")]
    assert find_guards(text, L2="") == [(2, 2, "")]


def test_autocast_goes_with_its_statements_and_another_block_stays():
    assert find_guards("with autocast():\n    a()", L2="") == [(1, 1, "")]
    assert find_guards("with timing('loss'):\n    a()", L2="") == [(2, 2, "")]
