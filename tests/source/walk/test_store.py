"""Cells that branches write, part and join."""

from __future__ import annotations

from porting.source.walk.store import Store
from porting.source.walk.values import Constant, Scope, Value

ONE: Value = (Constant.of(1),)
TWO: Value = (Constant.of(2),)


def test_a_branch_is_put_back():
    store, scope = Store(), {"a": ONE}
    store.begin_branch()
    store.write(scope, "a", TWO)
    store.write(scope, "b", TWO)
    writes = store.end_branch()

    assert scope == {"a": ONE}
    assert {name: last for _scope, name, last in writes.values()} == {"a": TWO, "b": TWO}


def test_after_two_branches_a_cell_is_either():
    store = Store()
    scope: Scope = {"a": ONE}
    store.begin_branch()
    store.write(scope, "a", TWO)
    store.merge([store.end_branch(), {}])

    assert set(scope["a"]) == {*ONE, *TWO}


def test_after_the_only_branch_a_cell_is_what_it_left():
    store = Store()
    scope: Scope = {"a": ONE}
    store.begin_branch()
    store.write(scope, "a", TWO)
    store.merge([store.end_branch()])

    assert scope["a"] == TWO


def test_a_cell_that_all_branches_take_away_is_gone():
    store = Store()
    scope: Scope = {"a": ONE}
    store.begin_branch()
    store.write(scope, "a", None)
    store.merge([store.end_branch()])

    assert scope == {}


def test_branches_in_branches_reach_the_outer_one():
    store = Store()
    scope: Scope = {}
    store.begin_branch()
    store.begin_branch()
    store.write(scope, "a", ONE)
    store.merge([store.end_branch()])
    outer = store.end_branch()

    assert scope == {}
    assert [name for _scope, name, _last in outer.values()] == ["a"]


def run_round(store: Store, scope: Scope, *, reads_first: bool) -> bool:
    store.begin_loop()
    store.begin_branch()
    if reads_first:
        store.read(scope, "a")
    store.write(scope, "a", TWO)
    return store.end_loop(store.end_branch())


def test_a_round_that_reads_what_it_then_writes_has_to_come_again():
    assert run_round(Store(), {"a": ONE}, reads_first=True)


def test_a_round_that_only_writes_has_not():
    assert not run_round(Store(), {"a": ONE}, reads_first=False)


def test_what_is_written_without_branches_stays():
    store = Store()
    scope: Scope = {}
    store.begin_branch()
    with store.without_branches():
        store.write(scope, "a", ONE)
    store.end_branch()

    assert scope == {"a": ONE}
