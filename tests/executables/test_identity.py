"""A key is the hash of what programs depend on, and of nothing else."""

from __future__ import annotations

from porting.executables.identity import EXPLAINED, ExecutableKey, compute_digest, to_canonical_json


def test_what_explains_a_key_is_no_part_of_it(make_key):
    explained = make_key(**{EXPLAINED: {"model": "Other"}})

    assert explained.digest == make_key().digest
    assert (explained.model, make_key().model) == ("Other", "Net")


def test_every_other_section_is_a_part_of_the_key(make_key):
    key = make_key()

    others = {make_key(**{name: "another"}).digest for name in key.sections}

    assert len(others) == len(key.sections)
    assert key.digest not in others


def test_the_digest_is_that_of_the_sections(make_key):
    assert compute_digest(make_key().sections) == make_key().digest


def test_the_key_for_another_engine_is_as_if_it_had_been_made_for_it(make_key):
    settings = {**make_key().components["engine"], "name": "aot"}

    assert make_key().for_engine("aot").sections == make_key(engine=settings).sections


def test_the_order_of_dictionaries_does_not_matter():
    assert to_canonical_json({"a": 1, "b": {"c": 2, "d": 3}}) == to_canonical_json({"b": {"d": 3, "c": 2}, "a": 1})


def test_a_key_without_explanation_has_no_model():
    assert ExecutableKey({"threads": 1}).model == ""
