"""Stands where a Python is expected, and lets the server of programs start what that Python would.

A copy with the interpreter in its first line lies beside the server's socket; see `tests.program_server`. What the
server cannot do as a fresh process would the real Python does: other options, variables read at the start, and very
many open files.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# the system sends a few more at a time
MOST_DESCRIPTORS = 250
# what the server does in the place of a starting Python
DONE_BY_SERVER = {
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPYCACHEPREFIX",
    "PYTHONWARNINGS",
}


def _main() -> int:
    options, words = _split(sys.argv[1:])
    others = {name for name in os.environ if name.startswith("PYTHON")} - DONE_BY_SERVER
    descriptors = _list_descriptors()
    is_known = bool(words) and (words[0] in ("-c", "-m") or not words[0].startswith("-"))
    if others or not is_known or len(descriptors) > MOST_DESCRIPTORS:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    request = {
        "options": options,
        "words": words,
        "folder": os.getcwd(),
        "environment": dict(os.environ),
        "executable": os.path.abspath(__file__),
        "descriptors": descriptors,
        # a signal that comes until all is said waits
        "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)),
    }
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(os.path.join(os.path.dirname(os.path.abspath(__file__)), "socket"))
        for number in FORWARDED:
            signal.signal(number, lambda number, _frame: server.send(bytes([number])))
        socket.send_fds(server, [json.dumps(request).encode() + b"\n"], descriptors)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        # the program's end is seen by that of its pipes
        for descriptor in descriptors[3:]:
            os.close(descriptor)
        server.recv(8)  # the process's id
        status = server.recv(8)
    return os.waitstatus_to_exitcode(int.from_bytes(status, "little")) if status else 1


def _list_descriptors():
    """List what was open when this program started, standard streams first."""
    listed = sorted(map(int, os.listdir("/proc/self/fd")))
    return [number for number in listed if _is_open(number)]


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        # that of the listing itself
        return False
    return True


def _split(words):
    """Divide the command line into options that the server knows and what is to be run."""
    options = []
    while words and words[0][:2] in ("-B", "-u", "-W"):
        count = 2 if words[0] == "-W" else 1
        options.append("".join(words[:count]))
        words = words[count:]
    return options, words


def _end(code: int) -> None:
    """End as the program did, by the same signal."""
    if code < 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    _end(_main())
