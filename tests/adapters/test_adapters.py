"""The package's public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import porting.adapters


def test_the_public_names_are_sorted_and_all_there():
    assert porting.adapters.__all__ == sorted(porting.adapters.__all__)
    assert [name for name in porting.adapters.__all__ if not hasattr(porting.adapters, name)] == []
    assert set(porting.adapters.__all__) <= set(dir(porting.adapters))


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'no_such_adapter'"):
        porting.adapters.no_such_adapter  # noqa: B018 - looking it up is the test


def test_importing_the_package_loads_no_torch():
    code = "import sys, porting.adapters; sys.exit('torch' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_adapters_load_neither_simulator_nor_capture():
    loaded = "[name for name in sys.modules if name.startswith(('porting.simulator', 'porting.capture'))]"
    code = f"import sys; from porting.adapters import *; sys.exit(', '.join({loaded}) or 0)"

    assert subprocess.run([sys.executable, "-c", code], check=False, stderr=subprocess.PIPE, text=True).stderr == ""
