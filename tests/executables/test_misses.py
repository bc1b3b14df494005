"""A miss is explained by the executable from which least has changed, and by none of another model."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from porting.diagnostics import render
from porting.executables.entry import EXPLANATION, MANIFEST, FileFacts, Manifest, compute_checksum, pack_explanation
from porting.executables.misses import explain_miss


def sources(config, path="config.py"):
    return {"program": "train.py", "folder": "", "arguments": ["train.py"], "files": {str(path): config}}


@pytest.fixture
def with_dropout(make_key):
    def make(p, **changes):
        graph = json.loads(json.dumps(make_key().components["graph"]))
        graph["operators"][1][1]["p"] = p
        return make_key(graph=graph, **changes)

    return make


BEFORE = "\n" * 13 + "dropout = 0.1\n"
AFTER = "\n" * 13 + "dropout = 0.2\n"


def test_what_changed_is_told_with_the_line(store, with_dropout, files):
    store.keep(with_dropout(0.1), files, {}, sources=sources(BEFORE))

    report = explain_miss(store, with_dropout(0.2), sources=sources(AFTER))

    assert report.message == "recompiled: dropout p 0.1 -> 0.2 at config.py:14"
    assert report.digest == with_dropout(0.1).digest
    assert report.to_dicts()[0]["text"] == "dropout p 0.1 -> 0.2 at config.py:14"


def test_the_finding_shows_the_line(store, with_dropout, files, tmp_path):
    (tmp_path / "config.py").write_text(AFTER)
    store.keep(with_dropout(0.1), files, {}, sources=sources(BEFORE, tmp_path / "config.py"))

    finding = explain_miss(store, with_dropout(0.2), sources=sources(AFTER, tmp_path / "config.py")).to_finding()

    assert (finding.code, finding.place.line) == ("E006", 14)
    assert "14 | dropout = 0.2" in render(finding)


def test_the_nearest_of_several_explains(store, with_dropout, files):
    store.keep(with_dropout(0.1, threads=3, precision={"matmul": "high"}), files, {}, sources=sources(BEFORE))
    store.keep(with_dropout(0.1), files, {}, sources=sources(BEFORE))
    store.keep(with_dropout(0.3, threads=4), files, {}, sources=sources(BEFORE))

    report = explain_miss(store, with_dropout(0.2), sources=sources(AFTER))

    assert report.digest == with_dropout(0.1).digest
    assert len(report.changes) == 1


def test_several_changes_are_counted_in_the_message_and_listed_in_the_notes(store, with_dropout, files):
    store.keep(with_dropout(0.1), files, {}, sources=sources(BEFORE))

    report = explain_miss(store, with_dropout(0.2, threads=4), sources=sources(AFTER))

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
def test_records_that_somebody_else_wrote_explain_nothing(wrong, store, with_dropout, files):
    key = with_dropout(0.1)
    explanation = pack_explanation({"components": {**wrong, "explained": {"places": 3}}, "sources": {"files": 3}})
    store.keep(key, files, {}, sources={})
    folder = store.programs / key.digest
    (folder / EXPLANATION).write_bytes(explanation)
    manifest = Manifest.from_json((folder / MANIFEST).read_bytes())
    facts = FileFacts(len(explanation), compute_checksum(folder / EXPLANATION))
    manifest = replace(manifest, files={**manifest.files, EXPLANATION: facts})
    (folder / MANIFEST).write_bytes(manifest.to_json())

    assert explain_miss(store, with_dropout(0.2), sources=sources(AFTER)) is None


def test_a_lost_explanation_explains_nothing(store, with_dropout, files):
    store.keep(with_dropout(0.1), files, {}, sources=sources(BEFORE))
    path = store.programs / with_dropout(0.1).digest / EXPLANATION
    path.write_bytes(b"x" * path.stat().st_size)

    assert explain_miss(store, with_dropout(0.2), sources=sources(AFTER)) is None
