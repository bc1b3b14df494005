"""Settings of a compilation are plain data."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict

from porting.engines.compiled.compile_settings import CompileSettings


def test_settings_travel_as_text():
    settings = CompileSettings(num_threads=3, is_deterministic=True)

    assert CompileSettings(**json.loads(json.dumps(asdict(settings)))) == settings


def test_they_need_no_torch():
    program = "import sys, porting.engines.compiled.compile_settings; print('torch' in sys.modules)"

    result = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True)

    assert result.stdout == "False\n"
