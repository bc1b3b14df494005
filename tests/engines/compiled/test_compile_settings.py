"""Settings and failures of a compilation are plain data."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

from porting.engines.compiled.compile_settings import CompileFailure, CompileSettings


def test_settings_travel_as_text():
    settings = CompileSettings(num_threads=3, is_deterministic=True)

    assert CompileSettings(**json.loads(json.dumps(asdict(settings)))) == settings


def test_a_failure_keeps_the_end_of_a_long_log():
    failure = CompileFailure("error", "it is refused", log="x" * 100_000 + "the end")

    assert failure.log.endswith("the end")
    assert len(failure.log) < 10_000


def test_they_need_no_torch():
    program = "import sys, porting.engines.compiled.compile_settings; print('torch' in sys.modules)"

    result = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True)

    assert result.stdout == "False\n"
