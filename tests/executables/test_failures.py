"""What could not be compiled is remembered for its key and this compiler."""

from __future__ import annotations

import pytest


def test_failures_are_remembered_for_their_key_and_this_compiler(store, make_key, monkeypatch):
    store.failures.note(make_key(), "inductor", "the compiler crashed")
    store.failures.note(make_key(), "aot", "it took too long")

    assert store.failures.read(make_key().digest) == {"inductor": "the compiler crashed", "aot": "it took too long"}
    assert store.failures.read(make_key(threads=2).digest) == {}
    monkeypatch.setattr("porting.executables.failures.find_compiler", lambda: "/opt/another/g++")
    assert store.failures.read(make_key().digest) == {}


def test_failures_can_be_forgotten(store, make_key):
    store.failures.note(make_key(), "aot", "it took too long")

    assert store.failures.forget(make_key().digest)
    assert store.failures.read(make_key().digest) == {}
    assert not store.failures.forget(make_key().digest)


@pytest.mark.parametrize("text", ["", "[]", '{"format": "porting-failures", "failures": [1]}', "[" * 100_000])
def test_a_damaged_record_of_failures_is_no_record(text, store, make_key):
    store.failures.note(make_key(), "aot", "it took too long")
    path = store.programs / ".failures" / f"{make_key().digest}.json"
    path.write_text(text)

    assert store.failures.read(make_key().digest) == {}
    assert store.failures.read_all() == {}
    store.failures.note(make_key(), "aot", "again")
    assert store.failures.read(make_key().digest) == {"aot": "again"}
