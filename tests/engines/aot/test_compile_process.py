"""A compiler in another process may fail in any way: the caller hears why, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from porting.engines.aot.compile_process import CompilerProcess, compile_in_child
from porting.engines.compiled.compile_settings import CompileSettings
from porting.engines.contract.failures import CompileFailure
from porting.engines.contract.limits import CompileLimits

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are those of POSIX")

# what a compiler does that starts another program, as Inductor starts the C++ compiler, and tells its number
START_SLEEPER = """
import os, subprocess, sys, time
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with open(program_file, "w") as file:
    file.write(str(sleeper.pid))
"""


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """Give a function that compiles with the given body in the place of a compiler; the log has what it prints."""
    modules = tmp_path / "modules"
    modules.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setenv("CXX", sys.executable)

    def compile_with(body, **arguments):
        source = "def compile_here(program_file, folder, *, settings):\n" + textwrap.indent(body, "    ")
        (modules / "pretended_compiler.py").write_text(source)
        return compile_in_child(
            tmp_path / "step.program",
            tmp_path / "made" / "step",
            compiler="pretended_compiler",
            settings=CompileSettings(num_threads=3),
            **arguments,
        )

    return compile_with


def left_behind(tmp_path):
    made = tmp_path / "made"
    return sorted(path.relative_to(made).as_posix() for path in made.rglob("*")) if made.exists() else []


def assert_ends(pid):
    """Wait until a process has gone, or is a zombie that its new parent has not asked for yet."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.05)
    raise AssertionError(f"process {pid} still runs")


def sleeper_of(tmp_path):
    return int((tmp_path / "step.program").read_text())


# -- success


def test_what_the_compiler_puts_into_its_folder_comes_to_the_callers(compiler, tmp_path):
    compiler("(folder / 'library').write_text(f'{program_file.name} for {settings.num_threads}')")

    assert (tmp_path / "made" / "step" / "library").read_text() == "step.program for 3"
    assert left_behind(tmp_path) == ["step", "step/library"]


def test_nothing_that_the_compiler_prints_or_warns_of_reaches_the_user(compiler, capfd):
    compiler("import warnings; print('out'); warnings.warn('deprecated', FutureWarning)")

    assert capfd.readouterr() == ("", "")


def test_inductors_caches_and_temporary_files_are_private(compiler, tmp_path):
    compiler("import os; (folder / 'places').write_text(os.environ['TORCHINDUCTOR_CACHE_DIR'] + os.environ['TMPDIR'])")

    places = (tmp_path / "made" / "step" / "places").read_text()
    assert places.count(str(tmp_path / "made" / ".porting-")) == 2


def test_the_compiler_gets_no_input(compiler, tmp_path):
    compiler("import sys; (folder / 'input').write_text(repr(sys.stdin.read()))")

    assert (tmp_path / "made" / "step" / "input").read_text() == "''"


@pytest.mark.slow
def test_progress_is_told_while_the_compiler_works(compiler):
    seconds = []

    compiler("import time; time.sleep(1.5)", progress=seconds.append)

    assert seconds
    assert seconds == sorted(seconds)


@pytest.mark.slow
def test_a_compiler_is_loaded_before_there_is_a_program(compiler, tmp_path):
    compiler("pass")
    (tmp_path / "modules" / "pretended_compiler.py").write_text(
        f"open({str(tmp_path / 'is_loaded')!r}, 'w').close()\n"
        "def compile_here(program_file, folder, *, settings):\n"
        "    (folder / 'library').write_text(program_file.read_text())\n"
    )
    program = tmp_path / "late.program"

    with CompilerProcess(tmp_path / "made", compiler="pretended_compiler") as process:
        deadline = time.monotonic() + 240
        while not (tmp_path / "is_loaded").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        program.write_text("late")
        process.compile(program, tmp_path / "made" / "late", settings=CompileSettings())

    assert (tmp_path / "made" / "late" / "library").read_text() == "late"
    assert left_behind(tmp_path) == ["late", "late/library", "step"]


def test_a_compiler_that_gets_no_program_leaves_nothing(compiler, tmp_path):
    compiler("pass")

    with CompilerProcess(tmp_path / "made", compiler="pretended_compiler"):
        pass

    assert left_behind(tmp_path) == ["step"]


# -- failures


@pytest.mark.parametrize("module", ["no_such_module", "os"])
def test_a_module_that_is_no_compiler_is_an_error(compiler, tmp_path, module):
    with pytest.raises(CompileFailure, match=f"NotFoundError.*{module}|no attribute 'compile_here'"):
        with CompilerProcess(tmp_path / "made", compiler=module) as process:
            process.compile(tmp_path / "step.program", tmp_path / "made" / "step", settings=CompileSettings())

    assert left_behind(tmp_path) == []


@pytest.mark.parametrize(
    ("body", "kind", "reason"),
    [
        ("raise NotImplementedError('no such operator')", "error", "NotImplementedError: no such operator"),
        ("print('x.cpp:3:1: error: no match for f()'); raise RuntimeError", "error", "refuses .*: no match for f()"),
        ("raise OSError(28, 'No space left on device')", "space", "no room on the disk"),
        ("raise MemoryError", "memory", "ran out of memory"),
        ("import os; os.abort()", "crash", "ended by SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "crash", "ended by SIGKILL, as the system does"),
        ("import os; os._exit(0)", "crash", "ended without a result"),
        ("import os; os._exit(3)", "crash", "ended with the code 3"),
    ],
)
def test_a_compiler_that_fails_has_a_kind_and_a_reason(compiler, tmp_path, body, kind, reason):
    with pytest.raises(CompileFailure, match=reason) as failure:
        compiler(body)

    assert failure.value.kind == kind
    assert left_behind(tmp_path) == []


def test_a_failure_has_the_log_with_the_traceback(compiler):
    with pytest.raises(CompileFailure) as failure:
        compiler("print('lowering'); raise ValueError('odd')")

    assert "lowering" in failure.value.log
    assert "compile_here" in failure.value.log


def test_a_machine_without_a_compiler_has_a_reason(compiler, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "no-such-compiler")

    with pytest.raises(CompileFailure, match="there is no C\\+\\+ compiler `no-such-compiler`") as failure:
        compiler("pass")

    assert failure.value.kind == "no-compiler"
    assert left_behind(tmp_path) == []


def test_a_compiler_that_hangs_is_ended_with_all_that_it_started(compiler, tmp_path, monkeypatch):
    # the time is up when the compiler has started another program
    told = tmp_path / "step.program"
    monkeypatch.setattr(
        "porting.engines.aot.compile_process.time.monotonic", lambda: 4.0 if told.exists() and told.read_text() else 0.0
    )

    with pytest.raises(CompileFailure, match="not done after 3 s") as failure:
        compiler(START_SLEEPER + "time.sleep(600)", limits=CompileLimits(seconds=3))

    assert failure.value.kind == "timeout"
    assert_ends(sleeper_of(tmp_path))
    assert left_behind(tmp_path) == []


def test_what_a_compiler_started_ends_with_it(compiler, tmp_path):
    compiler(START_SLEEPER)

    assert_ends(sleeper_of(tmp_path))


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the memory of others is known on Linux")
def test_a_compiler_that_takes_too_much_memory_is_ended(compiler, tmp_path):
    hoard = "import time\nkept = b'x' * (300 << 20)\ntime.sleep(600)"

    with pytest.raises(CompileFailure, match="more than 0.1 GiB") as failure:
        compiler(hoard, limits=CompileLimits(seconds=60, memory_bytes=100 << 20))

    assert failure.value.kind == "memory"
    assert left_behind(tmp_path) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the memory of others is known on Linux")
# -- interruptions


def test_an_exception_of_the_callers_ends_the_compiler(compiler, tmp_path):
    def interrupt(_seconds):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compiler(START_SLEEPER + "time.sleep(600)", progress=interrupt)

    assert left_behind(tmp_path) == []


@pytest.mark.slow
def test_a_compiler_ends_with_the_process_that_wanted_it_and_clears_away(compiler, tmp_path):
    compiler("pass")
    (tmp_path / "modules" / "pretended_compiler.py").write_text(
        "def compile_here(program_file, folder, *, settings):\n"
        + textwrap.indent(START_SLEEPER, "    ")
        + "    time.sleep(600)\n"
    )
    program = textwrap.dedent(
        f"""
        from pathlib import Path
        from porting.engines.aot.compile_process import compile_in_child
        from porting.engines.compiled.compile_settings import CompileSettings
        folder = Path({str(tmp_path)!r})
        compile_in_child(
            folder / "step.program",
            folder / "made" / "other",
            compiler="pretended_compiler",
            settings=CompileSettings(),
        )
        """
    )
    caller = subprocess.Popen([sys.executable, "-c", program], cwd=Path(__file__).parents[3])
    deadline = time.monotonic() + 240
    while not (tmp_path / "step.program").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)

    caller.send_signal(signal.SIGKILL)
    caller.wait()

    assert_ends(sleeper_of(tmp_path))
    assert left_behind(tmp_path) == ["step"]


@pytest.mark.usefixtures("programs_have_compiler")
@pytest.mark.slow
def test_what_was_compiled_is_run_where_a_crash_does_no_harm(compiler, tmp_path):
    with pytest.raises(CompileFailure, match="was ended by SIGSEGV"):
        compiler(
            """
import os, signal
from types import SimpleNamespace
from porting.engines.aot.compiler import try_out
try_out(lambda tensors: os.kill(os.getpid(), signal.SIGSEGV), SimpleNamespace(arguments=()))
"""
        )

    assert left_behind(tmp_path) == []
