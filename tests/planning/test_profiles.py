"""Profiles: what a report says of each IPU, against what was planned of it."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from porting import PortingError
from porting.planning.memory_model import balance_bytes, balance_stage
from porting.planning.profiles import GROUPS, MeasuredIpu, Profile, calibrate, read_profile
from tests.planning.gpt_ports import ported_gpt, total

# a transformer of 3 layers and a width of 64 on one IPU: graphcore/popliner, tests/test_profile.py
SMALL = {
    "variable_bytes": 40434347,
    "vertex_code_bytes": 24414353,
    "vertex_state_bytes": 11348758,
    "exchange_code_bytes": 9779604,
    "control_code_bytes": 17100804,
    "fullest_tile_bytes": 106267,
}


@pytest.fixture(scope="module")
def plan():
    return total(ported_gpt(batch=32, layers=3))


@pytest.fixture(scope="module")
def pipeline():
    return total(ported_gpt(accumulation=3, stages={"blocks.2": 1}))


def write(folder, content, name="report.json"):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def code_of(call):
    with pytest.raises(PortingError) as caught:
        call()
    return caught.value.code


def profile_of(plan, **factors):
    """Return the profile of a program that takes so many times what was planned."""
    ipus = []
    for memory in plan.ipus:
        sizes = {
            name: round(factors.get(name, 1.0) * sum(memory.parts[term] for term in terms))
            for name, terms in GROUPS.items()
        }
        ipus.append(MeasuredIpu(sizes["variables"], sizes["code"], 0, sizes["exchange"], 0))
    return Profile(tuple(ipus))


# -- calibration -------------------------------------------------------------------------------------------------------


def test_every_term_of_a_plan_is_in_one_group(plan):
    terms = [term for group in GROUPS.values() for term in group]

    assert sorted([*terms, "imbalance_bytes"]) == sorted(plan.ipus[0].parts)


def test_a_profile_of_what_was_planned_changes_nothing(pipeline):
    calibration = calibrate(pipeline, profile_of(pipeline))

    assert set(calibration.factors.values()) == {1.0}
    assert calibration.apply(pipeline) == pipeline


@pytest.mark.parametrize("group", ["variables", "code", "exchange"])
def test_a_group_is_corrected_by_what_it_took(pipeline, group):
    calibration = calibrate(pipeline, profile_of(pipeline, **{group: 1.5}))
    corrected = calibration.apply(pipeline)

    assert calibration.factors[group] == pytest.approx(1.5)
    for before, after in zip(pipeline.ipus, corrected.ipus):
        more = balance_bytes(sum(before.parts[term] for term in GROUPS[group]) / 2)
        assert after.total_bytes - before.total_bytes == pytest.approx(more, abs=10)


def test_a_corrected_plan_of_the_profiled_program_is_what_was_measured(plan, tmp_path):
    corrected = calibrate(plan, read_profile(write(tmp_path, {"ipus": [SMALL]}))).apply(plan)

    assert corrected.bytes_per_ipu == pytest.approx(106267 * plan.target.num_tiles, abs=10)


def test_what_tiles_are_less_even_does_not_grow_with_the_program(plan, tmp_path):
    calibration = calibrate(plan, read_profile(write(tmp_path, {"ipus": [SMALL]})))
    larger = total(ported_gpt(batch=64, layers=3))

    corrected = [calibration.apply(one).ipus[0] for one in (plan, larger)]

    added = {ipu.imbalance_bytes - balance_stage(ipu).imbalance_bytes for ipu in corrected}
    assert added == {calibration.uneven_bytes}
    assert calibration.uneven_bytes > 40 << 20


def test_the_profiles_of_replicas_are_those_of_one(pipeline):
    one = profile_of(pipeline, code=2.0)

    assert calibrate(pipeline, Profile(one.ipus * 4)) == calibrate(pipeline, one)


def test_planned_and_measured_are_shown_of_each_ipu(pipeline):
    calibration = calibrate(pipeline, profile_of(pipeline, code=2.0))

    assert "IPU 1 code" in str(calibration)
    assert json.loads(json.dumps(calibration.to_dict()))["factors"]["code"] == pytest.approx(2.0)


@pytest.mark.parametrize("ipus", [(), (MeasuredIpu(1, 1, 1, 1, 1),) * 3])
def test_a_profile_of_other_ipus_is_refused(pipeline, ipus):
    assert code_of(lambda: calibrate(pipeline, Profile(ipus))) == "P002"


@pytest.mark.parametrize("factor", [0.0, 0.01, 1000.0])
def test_a_profile_of_another_program_is_refused(pipeline, factor):
    assert code_of(lambda: calibrate(pipeline, profile_of(pipeline, variables=factor))) == "P002"


# -- JSON --------------------------------------------------------------------------------------------------------------


def test_a_report_is_read_from_json(tmp_path):
    assert read_profile(write(tmp_path, {"ipus": [SMALL]})) == Profile((MeasuredIpu(**SMALL),))


def test_the_fullest_tile_may_be_unknown(plan, tmp_path):
    known = {name: value for name, value in SMALL.items() if name != "fullest_tile_bytes"}

    profile = read_profile(write(tmp_path, {"ipus": [known]}))

    assert calibrate(plan, profile).uneven_bytes == 0


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        '{"ipus": 3}',
        '{"ipus": [{}]}',
        '{"ipus": [{"variable_bytes": 1}]}',
        {"ipus": [{**SMALL, "variable_bytes": -1}]},
        {"ipus": [{**SMALL, "variable_bytes": 1.5}]},
        {"ipus": [{**SMALL, "variable_bytes": True}]},
        {"ipus": [{**SMALL, "variable_bytes": 10**400}]},
        {"ipus": [{**SMALL, "cycles": 3}]},
        "[" * 100_000,
        '{"ipus": [' + "9" * 5000 + "]}",
    ],
)
def test_what_is_no_report_is_refused_with_its_file(tmp_path, content):
    path = write(tmp_path, content)

    with pytest.raises(PortingError, match=r"report\.json") as caught:
        read_profile(path)

    assert caught.value.code == "F001"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*SMALL, "ipus"]), inner, max_size=6),
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(content=st.binary(max_size=60) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_file_is_a_profile_or_a_finding(plan, tmp_path, content):
    path = tmp_path / "report.json"
    path.write_bytes(content)

    with suppress(PortingError):
        assert calibrate(plan, read_profile(path)).apply(plan).verdict


# -- the vendor's reader -----------------------------------------------------------------------------------------------


def make_tile(gaps, **categories):
    used = sum(categories.values())
    return SimpleNamespace(
        memory=SimpleNamespace(
            total=SimpleNamespace(excludingGaps=used, includingGaps=used + gaps),
            category=SimpleNamespace(**{name: SimpleNamespace(total=size) for name, size in categories.items()}),
        )
    )


@pytest.fixture
def pva(monkeypatch):
    """Stand in for the vendor's reader: two IPUs of two tiles, and an error for a damaged file."""
    module = ModuleType("pva")
    module.__spec__ = SimpleNamespace(name="pva")

    def open_report(path):
        with open(path, encoding="utf-8") as file:
            if "damaged" in file.read():
                raise RuntimeError("file is not a database")
        tiles = [
            make_tile(5, vertexCode=10, vertexInstanceState=3, internalExchangeCode=7, controlCode=2, variable=100),
            make_tile(0, vertexCode=20, vectorListDescriptor=1, hostExchangeCode=4, stack=6, constant=50),
        ]
        return SimpleNamespace(compilation=SimpleNamespace(ipus=[SimpleNamespace(tiles=tiles)] * 2))

    module.openReport = open_report
    monkeypatch.setitem(sys.modules, "pva", module)


@pytest.mark.parametrize("name", ["profile.pop", "archive.a"])
@pytest.mark.usefixtures("pva")
def test_a_report_is_read_by_the_vendors_reader(tmp_path, name):
    profile = read_profile(write(tmp_path, "SQLite", name=name))

    ipu = MeasuredIpu(
        variable_bytes=156,
        vertex_code_bytes=30,
        vertex_state_bytes=4,
        exchange_code_bytes=11,
        control_code_bytes=2,
        fullest_tile_bytes=127,
    )
    assert profile == Profile((ipu, ipu))


@pytest.mark.usefixtures("pva")
def test_a_folder_has_its_profile(tmp_path):
    (tmp_path / "training").mkdir()
    write(tmp_path / "training", "SQLite", name="profile.pop")

    assert len(read_profile(tmp_path).ipus) == 2


@pytest.mark.usefixtures("pva")
def test_what_the_vendors_reader_refuses_is_a_finding(tmp_path):
    path = write(tmp_path, "damaged", name="profile.pop")

    with pytest.raises(PortingError, match="file is not a database") as caught:
        read_profile(path)

    assert caught.value.code == "F001"


def test_without_the_vendors_reader_the_other_way_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pva", None)
    path = write(tmp_path, "SQLite", name="profile.pop")

    with pytest.raises(PortingError, match="JSON") as caught:
        read_profile(path)

    assert caught.value.code == "X001"


def test_a_missing_report_is_a_finding(tmp_path):
    assert code_of(lambda: read_profile(tmp_path / "none.json")) == "F002"
    assert code_of(lambda: read_profile(tmp_path)) == "F002"
