"""A Python that has torch and porting loaded: it stands in the place of `sys.executable`, and starts in no time.

Whoever starts it, by whatever way, starts a client, which is small; the program runs in a fork of a server that has
imported all that programs import, with the client's words, streams, folder and environment. Signals reach the program,
and it ends with its client.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

CLIENT = """#!{python} -IS
import json, os, signal, socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect({place!r})
request = {{"words": sys.argv[1:], "folder": os.getcwd(), "environment": dict(os.environ)}}
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, _frame: connection.send(bytes([number])))
code = int.from_bytes(connection.recv(8), "little", signed=True)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class ForkedPython:
    """The server, from its start to `close`; `executable` is what stands for Python."""

    def __init__(self, folder: Path, modules: Sequence[str]) -> None:
        """Import `modules` in a process, which knows a program's own ones from where this one has its own."""
        self.executable = folder / "python"
        place = str(folder / "socket")
        self.executable.write_text(CLIENT.format(python=sys.executable, place=place))
        self.executable.chmod(0o700)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as clients:
            clients.bind(place)
            clients.listen(16)
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(self.executable), *modules],
                stdin=clients,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )

    def close(self) -> None:
        """End the server."""
        self._process.terminate()
        self._process.wait()


def _serve(clients: socket.socket) -> None:
    """Fork a process for each client; a program's process returns from here."""
    keepers: List[int] = []
    signal.signal(signal.SIGTERM, lambda *_signal: sys.exit())
    while True:
        connection, _address = clients.accept()
        keepers = [keeper for keeper in keepers if os.waitpid(keeper, os.WNOHANG)[0] == 0]
        keeper = os.fork()
        if keeper == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            clients.close()
            _keep(connection)
            return
        keepers.append(keeper)
        connection.close()


def _keep(connection: socket.socket) -> None:
    """Fork the program, which returns from here, and tell its client of its end."""
    request, streams, _flags, _address = socket.recv_fds(connection, 1 << 20, 3)
    program = os.fork()
    if program == 0:
        connection.close()
        _become(json.loads(request), streams)
        return
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(program)
    while ended not in select.select([connection, ended], [], [])[0]:
        # without a client there is nothing to be read any more
        os.kill(program, (connection.recv(1) or bytes([signal.SIGKILL]))[0])
    code = os.waitstatus_to_exitcode(os.waitpid(program, 0)[1])
    try:
        connection.send(code.to_bytes(8, "little", signed=True))
    except OSError:
        pass
    os._exit(0)


def _become(request: Dict[str, Any], streams: Sequence[int]) -> None:
    """Take what the client has from its parent."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv = request["words"]


def _run(words: List[str]) -> None:
    """Run what the words of a command line say, as Python does: a file, a module, or a program that is a word."""
    while words[0].startswith("-") and words[0] not in ("-m", "-c"):
        del words[0]
    folders = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [folder for folder in folders if folder]
    if importlib.util.find_spec("sitecustomize") is not None:
        importlib.import_module("sitecustomize")
    if words[0] == "-m":
        sys.path.insert(0, os.getcwd())
        del words[0]
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.path.insert(0, "")
        source = words.pop(1)
        exec(compile(source, "<string>", "exec"), vars(sys.modules["__main__"]))
    else:
        sys.path.insert(0, str(Path(words[0]).resolve().parent))
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    own_folder = sys.path.pop(0)
    executable, *modules = sys.argv[1:]
    for name in modules:
        loaded = importlib.import_module(name)
        for part in getattr(loaded, "__all__", ()) if name == "porting" else ():
            getattr(loaded, part)
    # only now: torch starts helpers with the Python that there was
    sys.executable = executable
    # a program that ends does not collect what it has from here, which takes longer than most of them
    gc.freeze()
    _serve(socket.socket(fileno=os.dup(0)))
    _run(sys.argv)
