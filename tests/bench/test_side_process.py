"""A side in a process of its own takes turns, and says how it ended where it cannot."""

from __future__ import annotations

import textwrap

import pytest

from porting.bench.settings import BenchSettings
from porting.bench.side_process import SideProcess, SideProcessError
from porting.bench.workloads import Source

TALKATIVE = """
    import sys
    import torch
    from porting.bench.workloads import Workload
    from porting import PortOptions

    class Talkative(torch.nn.Linear):
        def forward(self, x):
            print("forward", flush=True)
            return super().forward(x)

    def load(**_arguments):
        print("loading")
        model = Talkative(3, 2)
        batch = torch.ones(4, 3), torch.zeros(4, dtype=torch.int64)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return Workload(model, torch.nn.CrossEntropyLoss(), batch, optimizer, PortOptions(), "talkative")

    def broken(**_arguments):
        raise ValueError("no such data")
"""


@pytest.fixture
def loaders(tmp_path, monkeypatch):
    """Put the module `loaders_of_sides` where child processes find it; give a function that names its loaders."""
    (tmp_path / "loaders_of_sides.py").write_text(textwrap.dedent(TALKATIVE))
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda name: Source(f"loaders_of_sides:{name}", {})


@pytest.mark.slow
def test_each_turn_times_as_many_calls_as_it_is_asked_for(loaders):
    with SideProcess("eager", loaders("load"), BenchSettings(threads=1)) as side:
        turns = [side.take_turn(number) for number in (3, 1)]

    assert [len(turn.call_seconds) for turn in turns] == [3, 1]
    assert all(seconds > 0 for turn in turns for seconds in (*turn.call_seconds, turn.cpu_seconds))


def test_the_process_ends_with_the_context(loaders):
    with SideProcess("eager", loaders("load"), BenchSettings()) as side:
        process = side._process

    assert process.returncode is not None


@pytest.mark.slow
def test_a_side_that_cannot_be_made_is_an_error_with_its_reason(loaders):
    with SideProcess("eager", loaders("broken"), BenchSettings()) as side:
        with pytest.raises(SideProcessError, match="eager process ended with exit status 1.*no such data"):
            side.wait_until_ready()


@pytest.mark.slow
def test_a_side_that_dies_is_an_error(loaders):
    with SideProcess("eager", loaders("load"), BenchSettings()) as side:
        side.wait_until_ready()
        side._process.kill()
        with pytest.raises(SideProcessError, match="signal 9"):
            side.take_turn(1)
