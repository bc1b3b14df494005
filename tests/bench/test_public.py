"""The suite of public models is large and varied, and each of its models trains alike with and without the port."""

from __future__ import annotations

import importlib.util

import pytest

from porting.bench.choices import EAGER_WAYS
from porting.bench.eager import EagerSide
from porting.bench.ported import PortedSide
from porting.bench.public import PUBLIC
from porting.bench.suite import DEMANDED_MEANS, GROUPS, load

# where a library is missing, its models are skipped, and pytest says which
CASES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            any(importlib.util.find_spec(library) is None for library in entry.needs),
            reason=f"needs {' and '.join(entry.needs)}, which `make public` installs",
        ),
    )
    for name, entry in PUBLIC.items()
]


def test_there_are_twenty_models_and_more_from_three_libraries():
    assert len(PUBLIC) >= 20
    assert {library for entry in PUBLIC.values() for library in entry.needs} == {"timm", "torchvision", "transformers"}


def test_every_model_is_timed_against_every_way_and_may_not_be_behind():
    assert {entry.settings["against"] for entry in PUBLIC.values()} == {tuple(EAGER_WAYS)}
    assert {tuple(entry.demanded.items()) for entry in PUBLIC.values()} == {(("float32", 1.0),)}


def test_a_mean_is_asked_of_the_whole_suite():
    assert DEMANDED_MEANS == {"public": 1.4}
    assert GROUPS["public"] is PUBLIC


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_model_has_the_same_losses_ported(name):
    workload = load(name, {"batch": 2, "engine": "replay"})
    eager, ported = EagerSide(workload), PortedSide(workload)
    ported.compile()

    expected = [float(eager.call()[0]) for _step in range(2)]

    assert [float(ported.call()) for _step in range(2)] == pytest.approx(expected, rel=1e-5)
