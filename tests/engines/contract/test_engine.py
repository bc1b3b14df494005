"""An engine that compiles has two more methods than one that does not."""

from __future__ import annotations

import pytest

from porting.engines import load_engine
from porting.engines.contract.engine import is_compiling


@pytest.mark.parametrize(("name", "expected"), [("aot", True), ("replay", False)])
def test_engines_that_compile_are_known_by_their_methods(name, expected):
    assert is_compiling(load_engine(name)) is expected
