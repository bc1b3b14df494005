"""Starts programs as forks of one process that has a module already: an import takes longer than most programs.

Run as a program, with the name of the module, it serves a socket: for each request, with the descriptors of the new
program's standard streams, it answers with the id of the process and, when that ended, with its wait status. A program
whose connection ends is killed; a byte that comes through it is the number of a signal.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import multiprocessing.process
import multiprocessing.spawn
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import warnings
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

ROOT = Path(__file__).parents[1]
_LONGEST_QUEUE = 64
_MOST_DESCRIPTORS = 250


class ProgramServer:
    """A process that starts programs, each of which finds `module` loaded.

    `python` is the path of a program that takes the place of the interpreter, for `sys.executable`.
    """

    def __init__(self, module: str) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="programs-"))
        self.python = str(self._folder / "python")
        client = (ROOT / "tests" / "program_client.py").read_text("utf-8")
        self._write_command("python", f"#!{sys.executable} -IS\n{client}")
        # it is looked for beside the interpreter
        self._write_command("torchrun", f"#!{self.python}\nfrom torch.distributed.run import main\nmain()\n")
        self._program: Optional[socket.socket] = None
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._folder / "socket"))
            listener.listen(_LONGEST_QUEUE)
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(listener.fileno()), module],
                stdin=subprocess.PIPE,
                pass_fds=[listener.fileno()],
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            )

    def start(self, arguments: Sequence[str], streams: Sequence[int]) -> int:
        """Start a program in a session of its own, the first argument being its file; return its process id."""
        request = {
            "options": [],
            "words": list(arguments),
            "folder": os.getcwd(),
            "environment": {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
            "executable": self.python,
            "descriptors": [0, 1, 2],
            "blocked": [],
        }
        self._program = socket.socket(socket.AF_UNIX)
        self._program.connect(str(self._folder / "socket"))
        socket.send_fds(self._program, [json.dumps(request).encode() + b"\n"], list(streams))
        return self._answer()

    def run(self, *arguments: str) -> Tuple[int, str]:
        """Run a program to its end; return its exit code, and what it has printed and said."""
        with tempfile.TemporaryFile("w+") as output, open(os.devnull, encoding="utf-8") as nothing:
            self.start(arguments, [nothing.fileno(), output.fileno(), output.fileno()])
            code = self.wait()
            output.seek(0)
            return code, output.read()

    @property
    def is_running(self) -> bool:
        """Whether the program that was started has not ended yet."""
        return not select.select([self._program], [], [], 0)[0]

    def wait(self) -> int:
        """Wait for the end of the program; return its exit code, negative for a signal."""
        code = os.waitstatus_to_exitcode(self._answer())
        assert self._program is not None
        self._program.close()
        return code

    def close(self) -> None:
        """End the process, and what it has started."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()
        shutil.rmtree(self._folder)

    def _write_command(self, name: str, text: str) -> None:
        path = self._folder / name
        path.write_text(text, "utf-8")
        path.chmod(0o755)

    def _answer(self) -> int:
        assert self._program is not None
        answer = self._program.recv(8)
        assert answer, "the server of programs ended"
        return int.from_bytes(answer, "little")


class _Server:
    """The process's side: who waits for which program."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._waiting: Dict[int, socket.socket] = {}
        self._ended, wakes = socket.socketpair()
        wakes.setblocking(False)
        self._wakes = wakes

    def serve(self) -> Optional[Dict[str, Any]]:
        """Start programs until standard input ends; the process of a program returns from here with the request."""
        signal.signal(signal.SIGCHLD, lambda *_signal: None)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        while True:
            connections = {connection: number for number, connection in self._waiting.items()}
            ready, _, _ = select.select([0, self._listener, self._ended, *connections], [], [])
            if 0 in ready:
                for process in self._waiting:
                    _kill(process)
                return None
            if self._ended in ready:
                self._ended.recv(4096)
                self._tell_ends()
            for connection in set(ready) & set(connections):
                if connections[connection] in self._waiting:
                    self._pass_on(connections[connection], connection)
            if self._listener in ready:
                request = self._start()
                if request is not None:
                    return request

    def _tell_ends(self) -> None:
        while self._waiting:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            with self._waiting.pop(process) as connection, suppress(OSError):
                connection.send(status.to_bytes(8, "little"))

    def _pass_on(self, process: int, connection: socket.socket) -> None:
        numbers = connection.recv(64)
        for number in numbers:
            os.kill(process, number)
        if not numbers:
            _kill(process)
            os.waitpid(process, 0)
            self._waiting.pop(process).close()

    def _start(self) -> Optional[Dict[str, Any]]:
        """Fork, and return the request in the new process."""
        connection, _address = self._listener.accept()
        text, descriptors, _flags, _address = socket.recv_fds(connection, 65536, _MOST_DESCRIPTORS)
        while not text.endswith(b"\n"):
            more = connection.recv(65536)
            if not more:
                # killed before it had said all
                connection.close()
                _close_all(descriptors)
                return None
            text += more
        process = os.fork()
        if process:
            _close_all(descriptors)
            self._waiting[process] = connection
            with suppress(OSError):
                connection.send(process.to_bytes(8, "little"))
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for mine in (self._listener, self._ended, self._wakes, connection, *self._waiting.values()):
            mine.close()
        request: Dict[str, Any] = json.loads(text)
        _renumber(descriptors, request["descriptors"])
        return request


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _renumber(descriptors: Sequence[int], wanted: Sequence[int]) -> None:
    beyond = max(*wanted, *descriptors) + 1
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, beyond) for descriptor in descriptors]
    _close_all(descriptors)
    for descriptor, number in zip(moved, wanted):
        os.dup2(descriptor, number)
        os.close(descriptor)


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)


def _run(request: Mapping[str, Any], path: Sequence[str]) -> None:
    """Do what a Python that starts does for a command line, with what is imported already."""
    os.chdir(request["folder"])
    # where a new process of the program's looks for it
    multiprocessing.process.ORIGINAL_DIR = request["folder"]  # type: ignore[attr-defined]
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.pthread_sigmask(signal.SIG_SETMASK, request["blocked"])
    sys.executable = request["executable"]
    multiprocessing.spawn.set_executable(sys.executable)
    sys.dont_write_bytecode = "-B" in request["options"] or bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    sys.pycache_prefix = os.environ.get("PYTHONPYCACHEPREFIX") or None
    # that of the environment
    tempfile.tempdir = None
    _apply_options(request["options"])
    _use_threads_asked_for()
    given = [os.path.abspath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[:] = [*given, *path]
    if PathFinder.find_spec("sitecustomize", given) is not None:
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")
    _run_as_main(request["words"])


def _apply_options(options: Sequence[str]) -> None:
    of_environment = os.environ.get("PYTHONWARNINGS", "")
    sys.warnoptions[:] = [
        *(of_environment.split(",") if of_environment else []),
        *(option[2:] for option in options if option.startswith("-W")),
    ]
    warnings._processoptions(sys.warnoptions)  # type: ignore[attr-defined]
    if "-u" in options or os.environ.get("PYTHONUNBUFFERED"):
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]


def _use_threads_asked_for() -> None:
    number = int(os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0)))
    torch = sys.modules.get("torch")
    if torch is not None and number != 1:
        torch.set_num_threads(number)


def _run_as_main(words: Sequence[str]) -> None:
    main = sys.modules["__main__"] = ModuleType("__main__")
    kind, *rest = words
    sys.argv = list(words)
    if kind == "-m":
        sys.argv = ["-m", *rest[1:]]
        sys.path.insert(0, os.getcwd())
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    elif kind == "-c":
        sys.argv = ["-c", *rest[1:]]
        sys.path.insert(0, "")
        exec(compile(rest[0], "<string>", "exec", dont_inherit=True), vars(main))
    else:
        sys.path.insert(0, os.path.dirname(os.path.realpath(kind)))
        main.__file__ = os.path.abspath(kind)
        exec(compile(Path(kind).read_bytes(), main.__file__, "exec", dont_inherit=True), vars(main))


def _say_error(error: BaseException) -> None:
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        # this file's frames are none of the program's
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def _end(code: int) -> NoReturn:
    """Do what a Python that ends does, and leave what the server has loaded: to take it apart takes longest of all."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    vars(sys.modules["__main__"]).clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _code_of(ending: SystemExit) -> int:
    if ending.code is None or isinstance(ending.code, int):
        return (ending.code or 0) & 0xFF
    print(ending.code, file=sys.stderr)  # noqa: T201 - as Python does
    return 1


def _main(descriptor: str, module: str) -> None:
    # programs have a path of their own
    path: List[str] = [folder for folder in sys.path[1:] if folder != str(ROOT)]
    importlib.import_module(module)
    # a program that ends does not collect what it has from here, which takes longer than most of them
    gc.freeze()
    request = _Server(socket.socket(fileno=int(descriptor))).serve()
    if request is None:
        return
    code = 0
    try:
        _run(request, path)
    except SystemExit as ending:
        code = _code_of(ending)
    except BaseException as error:
        _say_error(error)
        code = -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    finally:
        _end(code)


if __name__ == "__main__":
    _main(*sys.argv[1:])
