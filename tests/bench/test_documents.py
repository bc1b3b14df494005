"""Files are read with the line of every value, and what is none is pointed at."""

from __future__ import annotations

import importlib.util
import json
import sys

import pytest

from porting.bench.documents import read_document
from porting.diagnostics import PortingError

needs_yaml = pytest.mark.skipif(importlib.util.find_spec("yaml") is None, reason="PyYAML is not installed")


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
