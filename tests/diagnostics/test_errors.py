"""Errors carry their finding and show it."""

from __future__ import annotations

import copy
import pickle

import pytest

from porting.diagnostics import (
    BatchError,
    CaptureError,
    CheckpointError,
    DeviceError,
    Finding,
    OptionError,
    Place,
    PortingError,
    UnsupportedOptimizerError,
    render,
    require_extra,
)

KINDS = [BatchError, CaptureError, CheckpointError, DeviceError, OptionError, UnsupportedOptimizerError]


def test_an_error_as_text_is_its_rendered_finding():
    finding = Finding("L001", help="wrap the model: `to_ipu(model, criterion)`")

    assert str(PortingError(finding)) == render(finding)


def test_an_error_knows_its_code():
    assert PortingError(Finding("K001")).code == "K001"


@pytest.mark.parametrize("kind", KINDS)
def test_of_makes_the_finding_and_an_error_of_its_own_class(kind):
    error = kind.of("P002", message="m", place=Place("a.py", 1), label="l", notes="n", help="h", severity="warning")

    assert type(error) is kind
    assert error.finding == Finding("P002", "m", Place("a.py", 1), "l", ("n",), ("h",), "warning")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_can_be_caught_as_a_porting_error(kind):
    with pytest.raises(PortingError):
        raise kind.of("P002")


def test_an_error_crosses_process_borders_whole():
    error = BatchError.of("B001", place=Place("train.py", 3), notes=["was 8", "is 5"])

    copied = pickle.loads(pickle.dumps(error))

    assert (type(copied), copied.finding) == (BatchError, error.finding)


def test_an_error_can_be_copied():
    error = BatchError.of("B001", label="here")

    assert copy.deepcopy(error).finding == error.finding


def test_an_error_at_its_caller_is_at_the_users_line():
    error = OptionError.at_caller("P002", message="`replicas` is 0")

    assert error.finding.place is not None
    assert (error.finding.place.file, error.finding.message) == (__file__, "`replicas` is 0")


# -- extras ------------------------------------------------------------------------------------------------------------


def test_a_package_that_is_missing_is_an_error_that_names_its_extra():
    with pytest.raises(PortingError, match="pictures are asked for") as caught:
        require_extra("no_such_package.figures", extra="bench", message="pictures are asked for", help=["or none"])

    assert caught.value.code == "X001"
    assert caught.value.finding.help == ('pip install "ipu-porting[bench]"', "or none")


def test_what_a_package_lacks_itself_is_no_missing_extra(tmp_path, monkeypatch):
    (tmp_path / "half_installed.py").write_text("import no_such_package")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        require_extra("half_installed", extra="bench", message="never said")
