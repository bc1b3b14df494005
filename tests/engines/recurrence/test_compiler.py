"""Compiling the loops for this processor."""

from __future__ import annotations

import pytest

from porting.engines.compiled.compile_settings import CompileSettings
from porting.engines.recurrence.compiler import LIBRARY, SOURCE, compile_here


def test_what_the_compiler_says_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "g++ -include no-such-header.h")

    with pytest.raises(RuntimeError, match=r"no-such-header\.h"):
        compile_here(SOURCE, tmp_path, settings=CompileSettings())

    assert not (tmp_path / LIBRARY).exists()
