"""Starts programs as forks of one process that has a module already: an import takes longer than most programs.

Run as a program, with the name of the module, it serves the socket that is its standard input: for each request, with
the descriptors of the new program's standard streams, it answers with the id of the process and, when that ended, with
its wait status.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Sequence, Tuple

ROOT = Path(__file__).parents[1]


class ProgramServer:
    """A process that starts one program after the other, each of which finds `module` loaded."""

    def __init__(self, module: str) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, module],
                stdin=theirs,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            )

    def start(self, arguments: Sequence[str], streams: Sequence[int]) -> int:
        """Start a program in a session of its own, the first argument being its file; return its process id."""
        socket.send_fds(self._socket, [json.dumps(list(arguments)).encode()], list(streams))
        return self._answer()

    def run(self, *arguments: str) -> Tuple[int, str]:
        """Run a program to its end; return its exit code, and what it has printed and said."""
        with tempfile.TemporaryFile("w+") as output, open(os.devnull, encoding="utf-8") as nothing:
            self.start(arguments, [nothing.fileno(), output.fileno(), output.fileno()])
            code = self.wait()
            output.seek(0)
            return code, output.read()

    def wait(self) -> int:
        """Wait for the end of the program; return its exit code, negative for a signal."""
        return os.waitstatus_to_exitcode(self._answer())

    def close(self) -> None:
        """End the process."""
        self._socket.close()
        self._process.wait()

    def _answer(self) -> int:
        answer = self._socket.recv(8)
        assert answer, "the server of programs ended"
        return int.from_bytes(answer, "little")


def _serve(requests: socket.socket) -> None:
    """Start programs until nobody wants one any more; a program's process returns from here and runs it."""
    while True:
        request, streams, _flags, _address = socket.recv_fds(requests, 65536, 3)
        if not request:
            return
        arguments: List[str] = json.loads(request)
        process_id = os.fork()
        if process_id == 0:
            requests.close()
            _run(arguments, streams)
            return
        for stream in streams:
            os.close(stream)
        requests.send(process_id.to_bytes(8, "little"))
        _process_id, status = os.waitpid(process_id, 0)
        requests.send(status.to_bytes(8, "little"))


def _run(arguments: Sequence[str], streams: Sequence[int]) -> None:
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.argv = list(arguments)
    runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    importlib.import_module(sys.argv[1])
    # a program that ends does not collect what it has from here, which takes longer than most of them
    gc.freeze()
    # descriptor 0 becomes the program's standard input
    _serve(socket.socket(fileno=os.dup(0)))
