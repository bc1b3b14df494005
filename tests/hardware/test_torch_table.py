"""The table of torch's names, which the ordinary tests check against, is that of the torch which is installed here."""

from __future__ import annotations

import subprocess
import sys

from tests.hardware.torch_names import TABLE

# of its own, because PopTorch adds to torch
PROGRAM = "import sys; from tests.hardware.torch_names import make_table; sys.stdout.write(make_table())"


def test_the_table_of_names_is_that_of_torch_2_0():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)

    assert TABLE.read_text("utf-8") == done.stdout, "python -m tests.hardware.torch_names writes it again"
