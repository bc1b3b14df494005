"""The plugin of pytest: ports are proven in tests, and no test fails for want of hardware."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

from porting import pytest_plugin

pytest_plugins = ["pytester"]

PROVE = """
import torch
from torch import nn

def test_the_port_is_equal(assert_port_equal):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.rand(8, 4), torch.randint(3, (8,))
    certificate = assert_port_equal(model, nn.CrossEntropyLoss(), batch, optimizer=optimizer, device="sim")
    assert certificate.num_steps == 5
"""

FAULTY = """
import copy
import porting
import torch
from torch import nn

def test_the_port_is_not_equal(assert_port_equal):
    def port(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
        return porting.to_ipu(model, nn.MSELoss(), optimizer=optimizer, device="sim",
            options=porting.PortOptions(keep_gradients=True))

    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.rand(8, 4), torch.rand(8, 2)
    assert_port_equal(model, nn.MSELoss(), batch, optimizer=optimizer, ported=port)
"""

HARDWARE = """
import pytest

@pytest.mark.ipu
def test_on_an_ipu():
    raise RuntimeError("this was run")

@pytest.mark.needs_ipus(4)
class TestMany:
    def test_on_four(self):
        raise RuntimeError("this was run")

    @pytest.mark.ipu
    def test_on_four_as_well(self):
        raise RuntimeError("this was run")

def test_anywhere():
    pass
"""


@pytest.fixture
def run(pytester):
    """Run tests with the plugin, whether it is installed as an entry point or not."""
    pytest_plugin.find_obstacle.cache_clear()
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = error\n")

    def run(source, *words):
        pytester.makepyfile(source)
        words = ("-p", "no:porting", "-p", "no:cacheprovider", *words)
        return pytester.runpytest_inprocess(*words, plugins=[pytest_plugin])

    yield run
    pytest_plugin.find_obstacle.cache_clear()


def use_vendor(monkeypatch, num_ipus):
    """Let a module with so many IPUs be the vendor's."""
    vendor = types.ModuleType("poptorch")
    vendor.ipuHardwareIsAvailable = lambda count=1: count <= num_ipus
    vendor.ipuHardwareVersion = lambda: 2
    monkeypatch.setitem(sys.modules, "poptorch", vendor)
    monkeypatch.delenv("PORTING_DEVICE")


def test_tests_that_need_hardware_are_skipped_with_the_reason(run, monkeypatch):
    monkeypatch.delenv("PORTING_DEVICE")

    result = run(HARDWARE, "-rs")

    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["*needs 1 IPU: poptorch is not installed for *", "*needs 4 IPUs: poptorch is not *"])


def test_the_simulator_that_was_asked_for_is_no_hardware(run):
    result = run(HARDWARE, "-rs")

    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines(["*PORTING_DEVICE asks for the simulator*"])


def test_a_device_that_is_asked_for_and_missing_fails_no_test(run, monkeypatch):
    monkeypatch.setenv("PORTING_DEVICE", "ipu")

    run(HARDWARE).assert_outcomes(passed=1, skipped=3)


def test_where_there_are_ipus_tests_run_that_need_no_more(run, monkeypatch):
    use_vendor(monkeypatch, num_ipus=2)

    result = run(HARDWARE, "-rs")

    result.assert_outcomes(passed=1, failed=1, skipped=2)
    result.stdout.fnmatch_lines(["*needs 4 IPUs: poptorch has fewer than 4 free IPUs*"])


def test_a_marker_without_a_number_is_wrong_usage(run):
    result = run("import pytest\n@pytest.mark.needs_ipus\ndef test(): pass\n")

    assert result.ret != 0
    result.stdout.fnmatch_lines(["*`needs_ipus` takes a number of IPUs*"])


def test_the_markers_are_listed(run):
    result = run("", "--markers")

    result.stdout.fnmatch_lines(["@pytest.mark.ipu: *", "@pytest.mark.needs_ipus(n): *"])


@pytest.mark.slow
def test_a_port_that_is_equal_passes(run):
    run(PROVE).assert_outcomes(passed=1)


@pytest.mark.slow
def test_a_port_that_is_not_fails_with_its_certificate(run):
    result = run(FAULTY)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * AssertionError: *would have been caught*", "E * FAIL: *", "E * FAILED  update *"])


def test_importing_the_plugin_loads_no_torch():
    program = "import porting.pytest_plugin, sys; print('torch' in sys.modules, 'numpy' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["False", "False"]
