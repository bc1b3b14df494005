"""Libraries are imported apart, and one that is missing, broken, old or crashes is a finding."""

from __future__ import annotations

import sys

import pytest

from porting.doctor import software
from porting.doctor.software import probe_software

TORCH = """
__version__ = {version!r}
class Tensor:
    def __matmul__(self, other): return self
    def tolist(self): return {product}
def ones(*shape): return Tensor()
def get_num_threads(): return 4
"""
PRODUCT = [[2.0, 2.0], [2.0, 2.0]]

POPTORCH = """
__version__ = "3.4.0"
def ipuHardwareIsAvailable(): return {available}
def ipuHardwareVersion(): return 21
"""


def probe(name):
    found = probe_software()
    return found, next(probe for probe in found.probes if probe.name == name)


@pytest.fixture
def good(machine):
    """A machine with a small torch that is quickly imported."""
    machine.add_package("torch", TORCH.format(version="2.6.0", product=PRODUCT))
    machine.add_package("numpy", "__version__ = '1.2'")
    return machine


def test_everything_is_as_expected_without_ipus(good, code_of):
    found = probe_software()

    assert {probe.name: code_of(probe) for probe in found.probes} == {
        "Python": None,
        "porting": None,
        "torch": None,
        "numpy": None,
        "tqdm": None,
        "PopTorch": "D002",
    }
    assert found.can_capture
    assert not found.sees_ipus


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import no_such_library", "torch cannot be imported: ModuleNotFoundError: No module named 'no_such_library'"),
        ("raise OSError('libtorch.so: no such file')", "torch cannot be imported: OSError: libtorch.so: no such file"),
        ("import os; os.abort()", "torch cannot be imported: was ended by SIGABRT"),
        (TORCH.format(version="1.13.1", product=PRODUCT), "torch 1.13.1 is older than 2.0"),
        (TORCH.format(version="2.6.0", product=[[0.0]]), "torch computes a wrong product of two matrices"),
        ("print('nothing')", "torch cannot be imported: AttributeError"),
    ],
)
def test_a_torch_that_is_broken_is_a_finding(good, text, message):
    good.add_package("torch", text)

    found, torch = probe("torch")

    assert torch.finding.code == "X011"
    assert torch.finding.message.startswith(message)
    assert not found.can_capture


def test_an_import_that_hangs_is_a_finding(good, monkeypatch):
    monkeypatch.setattr(software, "_IMPORT_SECONDS", 1.0)
    good.add_package("torch", "import time; time.sleep(60)")

    assert "gave no answer in 1 s" in probe("torch")[1].finding.message


def test_a_torch_too_old_to_capture_is_told_as_such(good):
    good.add_package("torch", TORCH.format(version="2.0.1+cpu", product=PRODUCT))

    found, torch = probe("torch")

    assert (torch.finding.code, torch.state) == ("C009", "warning")
    assert not found.can_capture


def test_beside_poptorch_an_old_torch_is_right(good):
    good.add_package("torch", TORCH.format(version="2.0.1+cpu", product=PRODUCT))
    good.add_package("poptorch", POPTORCH.format(available=True))

    found, torch = probe("torch")

    assert torch.state == "note"
    assert found.sees_ipus


def test_poptorch_without_ipus_is_a_warning(good):
    good.add_package("poptorch", POPTORCH.format(available=False))

    found, poptorch = probe("PopTorch")

    assert (poptorch.finding.code, poptorch.state) == ("D002", "warning")
    assert poptorch.found == "3.4.0, no IPU found"
    assert not found.sees_ipus


@pytest.mark.parametrize(
    ("version", "found", "message"),
    [
        ("3.4.0", "3.4", None),
        (
            "3.3.0",
            "3.3",
            "in PopTorch 3.3 a frozen parameter of which each group of replicas has its own value is trained",
        ),
        ("3.2.1", "not tested", "PopTorch 3.2.1 is of a release that was not tested"),
        ("unknown", "not tested", "PopTorch unknown is of a release that was not tested"),
    ],
)
def test_the_release_of_poptorch_is_told_with_what_differs(good, version, found, message):
    good.add_package("poptorch", POPTORCH.replace("3.4.0", version).format(available=True))

    _found, release = probe("PopTorch release")

    assert release.found == found
    assert (release.finding and release.finding.message) == message


def test_a_broken_poptorch_is_a_finding(good):
    good.add_package("poptorch", "raise ImportError('libpopart.so: cannot open shared object file')")

    _found, poptorch = probe("PopTorch")

    assert poptorch.finding.code == "X012"
    assert "libpopart.so" in poptorch.finding.message


def test_a_broken_numpy_is_a_finding(good):
    good.add_package("numpy", "raise ImportError('of another Python')")

    assert probe("numpy")[1].finding.message == "numpy cannot be imported: ImportError: of another Python"


def test_an_old_python_is_a_finding(good, monkeypatch):
    monkeypatch.setattr(software, "_OLDEST_PYTHON", (99, 0))

    assert probe("Python")[1].finding.code == "X010"
    assert sys.executable in probe("Python")[1].found


@pytest.mark.slow
def test_the_torch_of_this_environment_works(code_of):
    found = probe_software()

    assert found.can_capture
    assert found.torch["version"]
