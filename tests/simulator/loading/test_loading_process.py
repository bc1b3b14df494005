"""Loading processes of every sharing strategy, from outside: a program with one works, ends, and leaves nothing."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import List, Tuple

import pytest

from porting.simulator.enums import SharingStrategy
from tests.program_server import ProgramServer

pytestmark = pytest.mark.slow

STRATEGIES = [strategy.name for strategy in SharingStrategy]
# a process that loads alone is tried with a fork and with a fork server; the other strategies spawn theirs
LOADING = [*((strategy, 2) for strategy in STRATEGIES), ("Fork", 0), ("ForkServer", 0)]

PROGRAM = """
import os
import select
import sys
import time

import torch

import porting.simulator as poptorch


class Numbers(torch.utils.data.Dataset):
    def __init__(self, count=20, seconds=0.0):
        self.count, self.seconds = count, seconds
        self.tensors = [torch.full((3,), float(index)) for index in range(count)]

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return self.tensors[index].half(), torch.tensor(index)


class Broken(Numbers):
    def __getitem__(self, index):
        assert index < 0, "Broken dataset"


def accessor(dataset, **settings):
    return poptorch.AsynchronousDataAccessor(
        dataset, sharing_strategy=poptorch.SharingStrategy[sys.argv[1]], **settings
    )


def loader(dataset, **settings):
    return poptorch.DataLoader(
        poptorch.Options(),
        dataset,
        mode=poptorch.DataLoaderMode.Async,
        async_options={"sharing_strategy": poptorch.SharingStrategy[sys.argv[1]]},
        **settings,
    )


def ready(data):
    worker = getattr(data, "_accessor", data)._worker
    print("READY", worker._process.pid, flush=True)


def main():
    BODY


if __name__ == "__main__":
    main()
"""


class Program:
    """A running program of its own session, whose `main` is the given lines."""

    def __init__(self, server: ProgramServer, folder: Path, body: str, strategy: str) -> None:
        path = folder / "program.py"
        path.write_text(PROGRAM.replace("BODY", textwrap.indent(textwrap.dedent(body), " " * 4).strip()), "utf-8")
        self._errors = folder / "standard-error.txt"
        for_input, self._input = os.pipe()
        output, for_output = os.pipe()
        self._output = open(output, encoding="utf-8")
        for_errors = os.open(self._errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        streams = (for_input, for_output, for_errors)
        self._server = server
        self.pid = server.start([str(path), strategy], streams)
        for stream in streams:
            os.close(stream)
        self.worker = 0
        self._is_running = True

    def wait_until_ready(self) -> None:
        """Wait for the line that says which process loads."""
        words = self._output.readline().split()
        assert words[:1] == ["READY"], self._errors.read_text("utf-8")
        self.worker = int(words[1])

    def finish(self, words: str = "") -> Tuple[int, str, str]:
        """Say something and wait for the end; return exit code, output and errors."""
        with open(self._input, "wb") as stream, suppress(BrokenPipeError):
            stream.write(words.encode())
            stream.flush()
        with self._output:
            output = self._output.read()
        self._is_running = False
        return self._server.wait(), output, self._errors.read_text("utf-8")

    def survivors(self):
        """List the processes of the session that are left after some seconds."""
        for _ in range(100):
            left = [pid for pid in _session(self.pid) if pid != self.pid]
            if not left:
                break
            time.sleep(0.1)
        return left

    def kill(self) -> None:
        """End what hangs, so that a failed test leaves nothing."""
        if self._is_running:
            os.killpg(self.pid, signal.SIGKILL)
            self.finish()


def _session(leader: int) -> List[int]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            fields = (folder / "stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if folder.name.isdigit() and int(fields[3]) == leader and fields[0] != "Z":
            found.append(int(folder.name))
    return found


@pytest.fixture(scope="module")
def server(simulator_server):
    """Give the process that starts the programs."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("there is no /proc to look into")
    return simulator_server


@pytest.fixture
def run(server, tmp_path):
    """Give a function that starts a program."""
    started = []

    def start(body, strategy="ForkServer"):
        started.append(Program(server, tmp_path, body, strategy))
        return started[-1]

    yield start
    for program in started:
        program.kill()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_datasets_of_the_main_program_are_loaded_by_every_strategy(run, strategy):
    program = run(
        """
        data = accessor(Numbers(300))
        print([[int(index) for _half, index in data] for _ in range(2)] == [list(range(300))] * 2)
        data = loader(Numbers(), num_workers=2, batch_size=4)
        print([batch[1].tolist() for batch in data] == [list(range(i, i + 4)) for i in range(0, 20, 4)])
        """,
        strategy,
    )

    assert program.finish() == (0, "True\nTrue\n", "")
    assert program.survivors() == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_error_of_the_dataset_is_on_the_standard_error_stream(run, strategy):
    code, output, errors = run(
        """
        try:
            accessor(Broken())
        except poptorch.Error as error:
            print(error)
        """,
        strategy,
    ).finish()

    message = "'poptorch_py_error': AsynchronousDataAccessor worker thread failed to start (Check above for details)"
    assert (code, output.startswith(message)) == (0, True)
    assert ('if __name__ == "__main__":' in output) == (strategy != "Fork")
    assert "AssertionError: Broken dataset" in errors
    assert "leaked" not in errors


@pytest.mark.parametrize(("strategy", "num_workers"), LOADING)
def test_a_program_that_fails_while_it_iterates_ends(run, strategy, num_workers):
    program = run(
        f"""
        data = loader(Numbers(), num_workers={num_workers})
        for batch in data:
            raise ValueError("the program's own error")
        """,
        strategy,
    )

    code, _output, errors = program.finish()

    assert code == 1
    assert errors.rstrip().endswith("ValueError: the program's own error")
    assert program.survivors() == []


@pytest.mark.parametrize(("strategy", "num_workers"), LOADING)
@pytest.mark.parametrize("receiver", ["worker", "everyone"])
def test_an_interruption_prints_nothing_but_debug_lines(run, strategy, num_workers, receiver):
    program = run(
        f"""
        poptorch.setLogLevel("DEBUG")
        data = accessor(poptorch.DataLoader(poptorch.Options(), Numbers(20, 0.01), num_workers={num_workers}))
        try:
            ready(data)
            while not select.select([sys.stdin], [], [], 0)[0]:
                for element in data:
                    pass
            print("went on")
        except KeyboardInterrupt:
            print("interrupted")
        print([int(index) for _half, index in data] == list(range(20)))
        """,
        strategy,
    )
    program.wait_until_ready()

    if receiver == "worker":
        os.kill(program.worker, signal.SIGINT)
    else:
        os.killpg(program.pid, signal.SIGINT)

    code, output, errors = program.finish("go on\n")
    said = {"worker": "went on", "everyone": "interrupted"}
    assert (code, output) == (0, f"{said[receiver]}\nTrue\n")
    assert [line for line in errors.splitlines() if "[debug]" not in line] == []
    assert program.survivors() == []


@pytest.mark.parametrize(("strategy", "num_workers"), LOADING)
def test_a_loading_process_does_not_outlive_a_program_that_is_killed(run, strategy, num_workers):
    program = run(
        f"""
        data = loader(Numbers(), num_workers={num_workers})
        next(iter(data))
        ready(data)
        time.sleep(100)
        """,
        strategy,
    )
    program.wait_until_ready()

    os.kill(program.pid, signal.SIGKILL)

    assert program.finish()[0] == -signal.SIGKILL
    assert program.survivors() == []


@pytest.mark.parametrize(("answer", "exit_code"), [("pass", 0), ("signal.signal(2, 1)", -signal.SIGTERM)])
def test_a_process_stuck_in_the_dataset_is_interrupted_and_then_terminated(run, tmp_path, answer, exit_code):
    program = run(
        f"""
        import signal
        from pathlib import Path

        import porting.simulator._loading.loading_process as loading_process

        def stuck(index):
            if index == 1:
                {answer.replace(", 1)", ", signal.SIG_IGN)")}
                is_stuck.touch()
                time.sleep(100)
            return torch.tensor(index)

        is_stuck = Path({str(tmp_path / "is_stuck")!r})
        loading_process._SECONDS_TO_STOP = 0.5
        data = accessor(map(stuck, range(3)))
        next(iter(data))
        while not is_stuck.exists():
            time.sleep(0.01)
        data.terminate()
        print(data._worker._process.exitcode)
        """,
        "Fork",
    )

    assert program.finish() == (0, f"{exit_code}\n", "")


@pytest.mark.parametrize("strategy", ["Fork", "ForkServer"])
def test_the_loading_process_writes_where_its_program_writes_now(run, strategy, tmp_path):
    target = tmp_path / "errors.txt"
    program = run(
        f"""
        accessor(Numbers()).terminate()
        os.dup2(os.open({str(target)!r}, os.O_WRONLY | os.O_CREAT), 2)
        try:
            accessor(Broken())
        except poptorch.Error:
            print("failed")
        """,
        strategy,
    )

    assert program.finish() == (0, "failed\n", "")
    assert "AssertionError: Broken dataset" in target.read_text("utf-8")
