"""What could not be compiled is remembered for its key and this compiler."""

from __future__ import annotations

import pytest


def test_failures_are_remembered_for_their_key_and_this_compiler(store, make_key, monkeypatch):
    store.note_failure(make_key(), "inductor", "the compiler crashed")
    store.note_failure(make_key(), "aot", "it took too long")

    assert store.list_failures(make_key()) == {"inductor": "the compiler crashed", "aot": "it took too long"}
    assert store.list_failures(make_key(threads=2)) == {}
    monkeypatch.setattr("porting.executables.failures.find_compiler", lambda: "/opt/another/g++")
    assert store.list_failures(make_key()) == {}


def test_failures_can_be_forgotten(store, make_key):
    store.note_failure(make_key(), "aot", "it took too long")

    assert store.forget_failures(make_key().digest)
    assert store.list_failures(make_key()) == {}
    assert not store.forget_failures(make_key().digest)


@pytest.mark.parametrize("text", ["", "[]", '{"format": "porting-failures", "failures": [1]}', "[" * 100_000])
def test_a_damaged_record_of_failures_is_no_record(text, store, make_key):
    store.note_failure(make_key(), "aot", "it took too long")
    path = store.programs / ".failures" / f"{make_key().digest}.json"
    path.write_text(text)

    assert store.list_failures(make_key()) == {}
    assert store.all_failures() == {}
    store.note_failure(make_key(), "aot", "again")
    assert store.list_failures(make_key()) == {"aot": "again"}
