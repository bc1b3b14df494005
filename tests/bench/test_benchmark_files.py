"""A file of benchmarks is checked as a whole, and every problem has its line."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from porting.bench.benchmark_files import read_benchmarks, read_document
from porting.bench.suite import SUITE
from porting.diagnostics import PortingError

ROOT = Path(__file__).parents[2]

needs_yaml = pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="PyYAML is not installed")


def problems_of(folder: Path, text: str, *, name: str = "benchmarks.yml"):
    (folder / name).write_text(text)
    _entries, findings = read_benchmarks(folder / name)
    return [(finding.place.line, finding.message) for finding in findings]


def entries_of(folder: Path, content: dict):
    (folder / "benchmarks.json").write_text(json.dumps(content))
    entries, findings = read_benchmarks(folder / "benchmarks.json")
    assert findings == []
    return entries


@needs_yaml
def test_the_repositorys_file_is_the_suite():
    entries, findings = read_benchmarks(ROOT / "benchmarks.yml")

    assert findings == []
    assert {entry.target: list(entry.matrix["precision"]) for entry in entries} == {
        name: list(workload.demanded) for name, workload in SUITE.items()
    }


@needs_yaml
@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("benchmarks:\n  cnn:\n    repeat: 3\n", 3, "unknown key `repeat` in `cnn`"),
        ("benchmarks:\n  cnn: {repeats: many}\n", 2, "`repeats` is 'many'"),
        ("benchmarks:\n  cnn:\n    matrix:\n      batch: [8,\n        sixteen]\n", 5, "`batch` is 'sixteen'"),
        ("benchmarks:\n  cnn: {matrix: {precision: double}}\n", 2, "`precision` is 'double'"),
        ("benchmarks:\n  cnn: {matrix: {batch: []}}\n", 2, "`batch` has no values"),
        ("benchmarks:\n  cnn: {demand: fast}\n", 2, "`demand` is 'fast'"),
        ("benchmarks:\n  cnn: 3\n", 2, "`cnn` is 3"),
        ("settings: {rounds: 0}\nbenchmarks: {cnn: {}}\n", 1, "`rounds` is 0"),
        ("settings: {rounds: true}\nbenchmarks: {cnn: {}}\n", 1, "`rounds` is True"),
        ("settings: {}\n", 1, "there are no `benchmarks`"),
        ("benchmarks: {}\n", 1, "`benchmarks` has no entries"),
        ("", 1, "the file is None"),
    ],
)
def test_a_problem_has_its_line(tmp_path, text, line, message):
    assert (line, message) in problems_of(tmp_path, text)


def test_json_has_lines_without_pyyaml(tmp_path):
    text = '{"benchmarks": {\n  "cnn": {"repeat": 3},\n  "gpt": {"timeout": -1}\n}}'

    assert problems_of(tmp_path, text, name="benchmarks.json") == [
        (2, "unknown key `repeat` in `cnn`"),
        (3, "`timeout` is -1"),
    ]


def test_a_near_miss_is_answered_with_the_right_key(tmp_path):
    (tmp_path / "b.json").write_text('{"benchmarks": {"cnn": {"matrx": {}}}}')

    _entries, (finding,) = read_benchmarks(tmp_path / "b.json")

    assert finding.help == ("did you mean `matrix`?",)


def test_settings_of_an_entry_go_before_those_of_the_file(tmp_path):
    (entry,) = entries_of(
        tmp_path,
        {"settings": {"rounds": 3, "seed": 4}, "benchmarks": {"cnn": {"settings": {"rounds": 9}}}},
    )

    assert entry.settings == {"rounds": 9, "seed": 4}


def test_paths_begin_at_the_folder_of_the_file(tmp_path):
    entries = entries_of(
        tmp_path,
        {"benchmarks": {"mine": {"target": "train.py:make", "loader": "train.py:data"}, "theirs": {"target": "a.b:c"}}},
    )

    assert [entry.target for entry in entries] == [f"{tmp_path / 'train.py'}:make", "a.b:c"]
    assert entries[0].loader == f"{tmp_path / 'train.py'}:data"


def test_a_single_value_is_a_list_of_one_and_a_number_asks_for_float32(tmp_path):
    (entry,) = entries_of(tmp_path, {"benchmarks": {"cnn": {"matrix": {"batch": 8}, "demand": 2}}})

    assert (entry.matrix, entry.demand) == ({"batch": [8]}, {"float32": 2.0})


def read(folder, text, *, name="benchmarks.yml"):
    (folder / name).write_text(text)
    return read_document(folder / name)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('{"benchmarks": {"a": {}, \n"a": {}}}', 2, "`a` stands twice"),
        ('{"benchmarks":\n {"a": }}', 2, "`}` is no value"),
        ('{"benchmarks": \n', 1, "the file ends too early"),
        ('{"benchmarks": {}}\n}', 2, "`}` follows the end"),
        ('{"benchmarks" {}}', 1, "`:` is missing"),
        ("{benchmarks: {}}", 1, "`benchmarks` is no key in double quotes"),
    ],
)
def test_what_is_no_json_is_pointed_at(tmp_path, text, line, message):
    with pytest.raises(PortingError, match=message.replace("{", r"\{")) as caught:
        read(tmp_path, text, name="b.json")

    assert (caught.value.code, caught.value.finding.place.line) == ("T001", line)


@pytest.mark.parametrize(
    "content", [{"a": [1, -2.5e3, "x\\n\u00e4", None, True, [], {}]}, [], "text", 3, {"": {"b": [[1], [2]]}}]
)
def test_json_is_read_as_python_reads_it(tmp_path, content):
    (tmp_path / "b.json").write_text(json.dumps(content, indent=1))

    assert read_document(tmp_path / "b.json").plain == content


@needs_yaml
@pytest.mark.parametrize(
    ("text", "line"), [("benchmarks:\n  a: {}\n  a: {}\n", 3), ("benchmarks: [\n", 2), ("a:\n\t- b", 2)]
)
def test_what_is_no_yaml_is_pointed_at(tmp_path, text, line):
    with pytest.raises(PortingError) as caught:
        read(tmp_path, text)

    assert (caught.value.code, caught.value.finding.place.line) == ("T001", line)


def test_without_pyyaml_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)

    with pytest.raises(PortingError, match=r"ipu-porting\[bench\]") as caught:
        read(tmp_path, "benchmarks: {}")

    assert caught.value.code == "X001"
