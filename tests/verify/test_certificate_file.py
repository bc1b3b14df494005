"""What a certificate's file says is read again as it was, or refused; nothing else happens, whatever is in it."""

from __future__ import annotations

import copy
import json
import math
import random
from dataclasses import replace
from typing import Any, Callable, Iterator, List, Optional, Tuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import porting
from porting.diagnostics import PortingError
from porting.support.plain_data import make_plain
from porting.verify.certificate import SCHEMA, Certificate, Curves, Sensitivity, Verdict
from porting.verify.certificate_file import read_file, write_file
from tests.verify.certificates import make_certificate, make_failed


def read_error(path: Any) -> PortingError:
    with pytest.raises(PortingError) as caught:
        Certificate.read(path)
    return caught.value


@pytest.mark.parametrize("make", [make_certificate, make_failed])
def test_a_file_is_read_as_it_was_written(make, tmp_path):
    certificate = make(settings={"steps": [1.0, math.inf, -math.inf], "$odd": {"$float": [0.5, 1]}})

    certificate.write(tmp_path / "certificate.json")

    assert Certificate.read(tmp_path / "certificate.json") == certificate


def test_numbers_that_json_does_not_have_survive_in_strict_json(tmp_path):
    def refuse(name: str) -> None:
        raise AssertionError(name)

    certificate = make_certificate(settings={"values": [math.nan, math.inf, -math.inf]}, seconds=math.inf)
    certificate.write(tmp_path / "certificate.json")
    json.loads((tmp_path / "certificate.json").read_text(), parse_constant=refuse)
    read = Certificate.read(tmp_path / "certificate.json")

    assert list(map(str, read.settings["values"])) == ["nan", "inf", "-inf"]
    assert read.seconds == math.inf


def test_a_value_that_no_file_can_hold_is_refused_when_it_is_written(tmp_path):
    with pytest.raises(TypeError, match="a set is no plain data"):
        make_certificate(settings={"names": {1}}).write(tmp_path / "certificate.json")

    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(PortingError) as caught:
        make_certificate().write(tmp_path / "file" / "certificate.json")

    assert caught.value.code == "E029"


def test_a_verdict_that_is_changed_by_hand_is_refused(tmp_path):
    path = tmp_path / "certificate.json"
    make_failed().write(path)

    path.write_text(path.read_text().replace('"FAIL"', '"PASS"'))

    assert "checksum" in str(read_error(path))


def test_a_newer_file_says_what_reads_it(tmp_path):
    path = tmp_path / "certificate.json"
    write_file(path, {"anything": 1}, version=SCHEMA + 1)

    error = read_error(path)

    assert error.code == "V004"
    assert "pip install -U" in error.finding.help[0]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "certificate",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": 1, "a": 2}',
        "[" * 100_000,
        '{"form": "porting certificate"}',
        '{"form": "porting certificate", "version": 0, "certificate": {}}',
        '{"form": "porting certificate", "version": 1, "certificate": {}}',
        '{"form": "porting certificate", "version": 1e0, "certificate": ' + "[" * 900 + "]" * 900 + "}",
        f'{{"form": {"9" * 5000}}}',
    ],
)
def test_a_foreign_file_is_refused(text, tmp_path):
    (tmp_path / "certificate.json").write_text(text)

    assert read_error(tmp_path / "certificate.json").code == "V004"


def test_a_file_that_is_not_there_is_refused(tmp_path):
    assert "cannot be read" in str(read_error(tmp_path / "missing.json"))
    assert read_error(tmp_path).code == "V004"


# -- anything --------------------------------------------------------------------------------------------------------

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


def list_paths(plain: Any, path: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    """List where values stand in a plain certificate."""
    yield path
    items = plain.items() if isinstance(plain, dict) else enumerate(plain) if isinstance(plain, list) else ()
    for key, item in items:
        yield from list_paths(item, (*path, key))


PLAIN = make_failed().to_dict()
PATHS: List[Tuple[Any, ...]] = [path for path in list_paths(PLAIN) if path]


@given(st.sampled_from(PATHS), ANY_JSON)
def test_a_certificate_with_any_other_value_is_read_or_refused(path, value):
    plain = copy.deepcopy(PLAIN)
    at = plain
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value

    certificate = read_or_refuse(lambda: Certificate.from_dict(plain))

    # what is read can be shown, and written again as it was
    if certificate is not None:
        assert str(certificate)
        assert make_plain(certificate) == make_plain(Certificate.from_dict(make_plain(certificate)))


@given(st.sampled_from(PATHS), st.booleans())
def test_a_certificate_that_lacks_or_repeats_a_value_is_read_or_refused(path, is_removed):
    plain = copy.deepcopy(PLAIN)
    at = plain
    for key in path[:-1]:
        at = at[key]
    if is_removed:
        del at[path[-1]]
    elif isinstance(at, list):
        at.append(at[path[-1]])
    else:
        at["another"] = at[path[-1]]

    certificate = read_or_refuse(lambda: Certificate.from_dict(plain))

    assert certificate is None or str(certificate)


@given(st.integers(0, 2**32), st.sampled_from(["flip", "cut", "insert", "swap", "nothing"]))
def test_a_file_with_changed_bytes_is_read_as_it_was_or_refused(tmp_path_factory, seed, change):
    path = tmp_path_factory.getbasetemp() / "mutated.json"
    certificate = make_failed(settings={"losses": [1.0]})
    certificate.write(path)
    path.write_bytes(mutate(path.read_bytes(), change, random.Random(seed)))

    read = read_or_refuse(lambda: Certificate.read(path))

    assert read == certificate or (read is None and change != "nothing")


def read_or_refuse(read: Callable[[], Certificate]) -> Optional[Certificate]:
    """Return what is read; None if it is refused as a certificate has to be."""
    try:
        return read()
    except PortingError as error:
        if error.code != "V004":
            raise
        return None


def mutate(content: bytes, change: str, chance: random.Random) -> bytes:
    first, last = sorted(chance.sample(range(len(content)), 2))
    if change == "flip":
        return content[:first] + bytes([content[first] ^ (1 << chance.randrange(8))]) + content[first + 1 :]
    if change == "cut":
        return content[:first] + content[last:]
    if change == "insert":
        return content[:first] + chance.choice([b"\0", b"1", b'"', b"{", b",", b"\xff", b" "]) + content[first:]
    if change == "swap":
        return content[:first] + content[last:] + content[first:last]
    return content


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)

    with pytest.raises(PortingError) as caught:
        read_file(path, version=SCHEMA)

    assert caught.value.code == "V004"


# -- contradictions ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proven():
    """Prove a port whose losses are several in a step."""
    model = nn.Linear(3, 2)
    options = porting.PortOptions(accumulation=2)
    batch = torch.randn(8, 3), torch.randn(8, 2)
    return porting.verify(model, nn.MSELoss(), batch, steps=4, options=options, device="sim")


def refuse(certificate: Certificate) -> str:
    with pytest.raises(PortingError) as caught:
        Certificate.from_dict(make_plain(certificate))
    assert caught.value.code == "V004"
    return caught.value.finding.message


@pytest.mark.parametrize("make", [make_certificate, make_failed])
def test_one_that_agrees_with_itself_is_read(make, proven):
    assert Certificate.from_dict(make_plain(proven)) == proven
    assert Certificate.from_dict(make_plain(make())).verdict is make().verdict


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"verdict": Verdict.PASS}, "the verdict is PASS, and `gradient` is FAIL"),
        ({"verdict": Verdict.INCOMPLETE}, "the verdict is INCOMPLETE, and `gradient` is FAIL"),
        ({"verdict": Verdict.CHAOTIC, "kinds": (), "precision": None}, "the verdict is CHAOTIC, and no step was"),
    ],
    ids=["pass", "incomplete", "chaotic"],
)
def test_a_verdict_that_the_kinds_do_not_support_is_refused(changes, words):
    assert words in refuse(make_failed(**changes))


def test_a_fail_without_a_fault_is_refused():
    assert "nothing in it is FAIL" in refuse(make_certificate(verdict=Verdict.FAIL))


def test_a_pass_that_did_not_make_its_steps_is_refused():
    assert "after 10 of 20 steps" in refuse(make_certificate(num_steps_asked=20))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_steps": 1000}, "1000 steps were compared of 10"),
        ({"num_steps": 20, "num_steps_asked": 20}, "and the losses of 10 were kept"),
        ({"reason": "everything lies inside its noise band, 5000 steps long"}, "the reason tells of others"),
        ({"curves": Curves()}, "the curve of plain PyTorch has 0 of 10 steps"),
        ({"kinds": make_certificate().kinds * 2}, "a kind stands twice"),
        ({"kinds": make_certificate().kinds[-1:], "sensitivity": None}, "nothing was compared"),
        ({"sensitivity": Sensitivity("gradient", 3e-9, 1e-4)}, "its first line tells"),
        ({"sensitivity": Sensitivity("update", 3e-4, 1e-4)}, "its first line tells"),
    ],
    ids=["more steps", "steps without losses", "reason", "no curve", "twice", "nothing", "too small", "not compared"],
)
def test_counts_that_the_rest_does_not_support_are_refused(changes, words):
    assert words in refuse(make_certificate(**changes))


def test_a_kind_that_its_figures_do_not_support_is_refused():
    certificate = make_failed()
    kinds = tuple(replace(kind, verdict=Verdict.PASS) for kind in certificate.kinds)

    assert "`gradient` is PASS, and its figures say FAIL" in refuse(replace(certificate, kinds=kinds))


@pytest.mark.parametrize(("side", "name"), [("plain", "plain PyTorch"), ("ported", "the port")])
def test_a_curve_that_is_not_of_the_losses_is_refused(proven, side, name):
    curves = replace(proven.curves, **{side: tuple(0.9 * loss for loss in getattr(proven.curves, side))})

    assert f"the curve of {name} is" in refuse(replace(proven, curves=curves))


def test_losses_that_the_kinds_are_not_of_are_refused(proven):
    record = copy.deepcopy(dict(proven.record))
    record["losses"] = {step: [1.1 * loss for loss in losses] for step, losses in record["losses"].items()}
    curves = Curves(proven.curves.plain, tuple(1.1 * loss for loss in proven.curves.ported))

    assert "in step" in refuse(replace(proven, record=record, curves=curves))


def test_a_record_of_another_form_is_refused(proven):
    assert "its record is damaged" in refuse(replace(proven, record={"losses": [1.0]}))
