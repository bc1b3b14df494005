"""What changed is named in plain words, section by section of the key, most telling first."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import pytest

from porting.diagnostics import render
from porting.executables.entry import EXPLANATION, MANIFEST, FileFacts, Manifest, compute_checksum, pack_explanation
from porting.executables.explanations import explain_miss
from porting.executables.machine import collect_versions, describe_processor
from tests.executables.key_changes import CONFIG, changed, program, texts, with_dropout


def test_nothing_changed_is_no_change(components):
    assert texts(components, components) == []


def test_the_batch_is_one_change_and_sizes_that_follow_are_none(components):
    components["graph"]["operators"].insert(0, ["aten.view.default", {"self": {"%": 2}, "size": [16, 4]}])
    new = changed(components, "tensors", "inputs", 0, 1, to=[32, 4])
    new["graph"]["operators"][0][1]["size"] = [32, 4]

    assert texts(components, new) == ["batch 16 -> 32"]


def test_another_shape_of_an_input_is_shown(components):
    new = changed(components, "tensors", "inputs", 0, 1, to=[16, 6])

    assert texts(components, new) == ["input `x` shape [16, 4] -> [16, 6]"]


def test_a_type_is_a_change(components):
    new = changed(components, "tensors", "inputs", 0, 3, to="float16")

    assert texts(components, new) == ["input `x` dtype float32 -> float16"]


def test_parameters_of_another_type_are_one_change(components):
    new = copy.deepcopy(components)
    for parameter in new["tensors"]["parameters"]:
        parameter[3] = "bfloat16"

    assert texts(components, new) == ["dtype of parameters float32 -> bfloat16 (fc.weight, fc.bias)"]


def test_a_constant_with_another_value_shows_it_where_it_is_small(components):
    old = changed(components, "constants", to=[["a" * 32, [], "float32"]])
    new = changed(components, "constants", to=[["b" * 32, [], "float32"]])
    old["explained"]["shown_constants"], new["explained"]["shown_constants"] = [2.0], [3.0]

    assert texts(old, new) == ["constant 0 2.0 -> 3.0"]
    new["explained"]["shown_constants"] = [None]
    assert texts(old, new) == ["constant 0 has other values, float32 []"]


@pytest.mark.parametrize(
    ("name", "shown"), [("accumulation", "accumulation"), ("replicas", "replicas"), ("iterations", "device iterations")]
)
def test_the_plan_of_a_call_is_named(name, shown, components):
    assert texts(components, changed(components, "plan", name, to=4)) == [f"{shown} 1 -> 4"]


def test_momentum_that_was_turned_on_is_named_with_its_value(components):
    new = changed(components, "optimizer", 0, "momentum", to=True)
    new["explained"]["numbers"] = [{"momentum": 0.9}]

    assert texts(components, new, after=program(CONFIG.replace("momentum = 0.0", "momentum = 0.9"))) == [
        "optimizer momentum 0.0 -> 0.9 at config.py:5"
    ]


def test_another_optimizer_is_named_and_its_settings_are_not(components):
    new = changed(components, "optimizer", to=[{"family": "ADAM", "momentum": False, "parameters": []}])

    assert texts(components, new) == ["optimizer SGD -> ADAM"]


def test_a_parameter_that_is_no_longer_trained_is_named(components):
    new = changed(components, "tensors", "parameters", 0, 4, to=False)

    assert texts(components, new) == ["parameters now frozen (fc.weight)"]


@pytest.mark.parametrize("name", sorted(collect_versions()))
def test_versions_are_named(name, components):
    old = changed(components, "versions", name, to="0.0")

    assert texts(old, components) == [f"{name} 0.0 -> {collect_versions()[name]}"]


def test_a_processor_is_named_with_what_it_lacks(components):
    old = changed(
        components, "processor", to={"name": "6502", "instructions": ["bcd", *describe_processor()["instructions"]]}
    )

    assert texts(old, components) == [f"processor 6502 -> {describe_processor()['name']}", "the processor lacks bcd"]


def test_the_engine_is_named(components):
    assert texts(components, changed(components, "engine", "name", to="aot")) == ["engine auto -> aot"]


def test_what_else_a_key_holds_is_named(components):
    assert texts(components, changed(components, "extra", to={"limit": 3})) == ["limit none -> 3"]


def test_several_changes_are_all_listed_those_of_known_lines_first(components):
    new = changed(with_dropout(components, 0.2), "threads", to=4)
    new = changed(new, "versions", "torch", to="9.9")
    after = program(CONFIG.replace("dropout = 0.1", "dropout = 0.2"))

    first, second, third = texts(components, new, after=after)

    assert first == "dropout p 0.1 -> 0.2 at config.py:3"
    assert second.startswith("torch ")
    assert third == "threads 1 -> 4"


# -- the nearest earlier executable ------------------------------------------------------------------------------------


def sources(config, path="config.py"):
    return {"program": "train.py", "folder": "", "arguments": ["train.py"], "files": {str(path): config}}


@pytest.fixture
def key_with_dropout(make_key):
    def make(p, **changes):
        graph = json.loads(json.dumps(make_key().components["graph"]))
        graph["operators"][1][1]["p"] = p
        return make_key(graph=graph, **changes)

    return make


BEFORE = "\n" * 13 + "dropout = 0.1\n"
AFTER = "\n" * 13 + "dropout = 0.2\n"


def test_what_changed_is_told_with_the_line(store, key_with_dropout, files):
    store.keep(key_with_dropout(0.1), files, {}, sources=sources(BEFORE))

    report = explain_miss(store, key_with_dropout(0.2), sources=sources(AFTER))

    assert report.message == "recompiled: dropout p 0.1 -> 0.2 at config.py:14"
    assert report.digest == key_with_dropout(0.1).digest
    assert report.to_dicts()[0]["text"] == "dropout p 0.1 -> 0.2 at config.py:14"


def test_the_finding_shows_the_line(store, key_with_dropout, files, tmp_path):
    (tmp_path / "config.py").write_text(AFTER)
    store.keep(key_with_dropout(0.1), files, {}, sources=sources(BEFORE, tmp_path / "config.py"))

    finding = explain_miss(store, key_with_dropout(0.2), sources=sources(AFTER, tmp_path / "config.py")).to_finding()

    assert (finding.code, finding.place.line) == ("E006", 14)
    assert "14 | dropout = 0.2" in render(finding)


def test_the_nearest_of_several_explains(store, key_with_dropout, files):
    store.keep(key_with_dropout(0.1, threads=3, precision={"matmul": "high"}), files, {}, sources=sources(BEFORE))
    store.keep(key_with_dropout(0.1), files, {}, sources=sources(BEFORE))
    store.keep(key_with_dropout(0.3, threads=4), files, {}, sources=sources(BEFORE))

    report = explain_miss(store, key_with_dropout(0.2), sources=sources(AFTER))

    assert report.digest == key_with_dropout(0.1).digest
    assert len(report.changes) == 1


def test_several_changes_are_counted_in_the_message_and_listed_in_the_notes(store, key_with_dropout, files):
    store.keep(key_with_dropout(0.1), files, {}, sources=sources(BEFORE))

    report = explain_miss(store, key_with_dropout(0.2, threads=4), sources=sources(AFTER))

    assert report.message == "recompiled: dropout p 0.1 -> 0.2 at config.py:14 and 1 more change"
    assert report.to_finding().notes[0] == "also: threads 1 -> 4"


def test_an_empty_store_explains_nothing(store, make_key):
    assert explain_miss(store, make_key(), sources=sources(AFTER)) is None


def test_another_model_explains_nothing(store, make_key, files):
    tensors = {**make_key().components["tensors"], "parameters": [["conv.weight", [3, 3, 3, 3], [1], "float32", True]]}
    graph = {"mode": "training", "operators": [["aten.conv2d.default", {}], ["aten.relu.default", {}]], "results": []}
    store.keep(make_key(graph=graph, tensors=tensors, explained={"model": "Other"}), files, {}, sources=sources(BEFORE))

    assert explain_miss(store, make_key(), sources=sources(AFTER)) is None


def test_inference_does_not_explain_training(store, make_key, files):
    graph = {**make_key().components["graph"], "mode": "inference"}
    store.keep(make_key(graph=graph), files, {}, sources=sources(BEFORE))

    assert explain_miss(store, make_key(), sources=sources(AFTER)) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"graph": {"mode": "training"}},
        {"graph": {"mode": "training", "operators": 3}, "tensors": []},
        {"graph": {"mode": "training", "operators": [["x"]]}, "tensors": {"parameters": [1]}},
    ],
)
def test_records_that_somebody_else_wrote_explain_nothing(wrong, store, key_with_dropout, files):
    key = key_with_dropout(0.1)
    explanation = pack_explanation({"components": {**wrong, "explained": {"places": 3}}, "sources": {"files": 3}})
    store.keep(key, files, {}, sources={})
    folder = store.programs / key.digest
    (folder / EXPLANATION).write_bytes(explanation)
    manifest = Manifest.from_json((folder / MANIFEST).read_bytes())
    facts = FileFacts(len(explanation), compute_checksum(folder / EXPLANATION))
    manifest = replace(manifest, files={**manifest.files, EXPLANATION: facts})
    (folder / MANIFEST).write_bytes(manifest.to_json())

    assert explain_miss(store, key_with_dropout(0.2), sources=sources(AFTER)) is None


def test_a_lost_explanation_explains_nothing(store, key_with_dropout, files):
    store.keep(key_with_dropout(0.1), files, {}, sources=sources(BEFORE))
    path = store.programs / key_with_dropout(0.1).digest / EXPLANATION
    path.write_bytes(b"x" * path.stat().st_size)

    assert explain_miss(store, key_with_dropout(0.2), sources=sources(AFTER)) is None
