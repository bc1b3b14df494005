"""Folders appear and disappear as a whole, and what dead processes left is cleared away."""

from __future__ import annotations

import os
import shutil
import time

from porting.executables import store as store_module


def hidden_in(store):
    return [path.name for path in store.programs.iterdir() if path.name.startswith((".new-", ".removing-"))]


def test_what_a_dead_process_left_is_cleared_away_and_what_a_living_one_writes_is_not(store, make_key, files):
    store.keep(make_key(), files, {})
    long_ago = time.time() - 3600
    for name in (".new-1-dead", ".removing-2-dead"):
        shutil.copytree(files, store.programs / name)
        os.utime(store.programs / name, (long_ago, long_ago))

    with store_module.new_folder(store.programs) as living:
        os.utime(living, (long_ago, long_ago))
        assert store.sweep() == 2
        assert hidden_in(store) == [living.name]

    assert len(store.list_entries()) == 1


def test_a_folder_that_was_made_just_now_may_not_be_locked_yet(store):
    (store.programs / ".new-3-young").mkdir(parents=True)

    assert store.sweep() == 0
