"""Fixtures for all tests: the two worlds of PopTorch, the data beside the repository, and Hypothesis' settings."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Iterator, List

import hypothesis
import pytest

from porting.engines.compiled.call_layout import CallLayout, describe_layout
from porting.engines.compiled.executable import CompiledExecutable
from porting.engines.compiled.program_file import read_program, write_program
from porting.engines.compiled.programs import Programs
from porting.engines.compiled.step_program import build_programs
from porting.engines.replay.replay import ReplayExecutable
from porting.remedies import operator_table
from tests.engines.interpreted_programs import interpret_programs
from tests.program_server import ProgramServer

DATA_FOLDER = Path(__file__).parents[2] / "shared" / "data"

# the first call of a model compiles it, which takes longer than Hypothesis allows an example; and how long it takes to
# think of examples is a matter of who else uses the machine
hypothesis.settings.register_profile(
    "porting",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("porting")
# of `make test`: laws are tried on fewer examples, those of a fixed seed too
hypothesis.settings.register_profile("quick", hypothesis.settings.get_profile("porting"), max_examples=15)

# collected, it would be the module `poptorch` of all tests: it has the vendor's name
collect_ignore = ["literal_poptorch"]


def _worlds() -> List[object]:
    simulated = pytest.param("porting.simulator", id="simulator")
    if importlib.util.find_spec("poptorch") is None:
        return [simulated]
    return [simulated, pytest.param("poptorch", id="poptorch", marks=pytest.mark.hardware)]


@pytest.fixture(autouse=True, scope="session")
def _no_executables_of_others(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let tests neither find nor leave compiled executables, and start no compiler unless they ask for one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PORTING_CACHE_DIR", str(tmp_path_factory.mktemp("cache") / "porting"))
        patch.setenv("PORTING_ENGINE", "ready")
        yield


@pytest.fixture(autouse=True)
def _operators_end_with_the_test_that_registers_them() -> Iterator[None]:
    """Let no later test run code of a page or of another test in the place of an operator."""
    operator_table.load_built_in()
    before = {target: list(entries) for target, entries in operator_table._registered.items()}
    yield
    operator_table._registered.clear()
    operator_table._registered.update(before)


_CHOICES = ("PORT_DEVICE", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_CHOSEN = {name: os.environ.get(name) for name in _CHOICES}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Any:
    """Fail a test that leaves an environment in which later programs would choose another device or place."""
    result = yield
    left = [name for name, value in _CHOSEN.items() if os.environ.get(name) != value]
    for name in left:
        os.environ.pop(name)
    os.environ.update({name: value for name, value in _CHOSEN.items() if value is not None})
    assert not left, f"left in the environment: {left}"
    return result


class InterpretedEngine:
    """An engine that compiles in milliseconds: its programs are those of the compilers, and are interpreted.

    `calls` lists what was asked of it: "compile" and "load".
    """

    def __init__(self) -> None:
        self.calls: List[str] = []

    def compile(self, graph: Any, request: Any, folder: Path, *, limits: Any, progress: Any) -> None:
        self.calls.append("compile")
        programs = build_programs(graph, request)
        for role, program in programs.by_role.items():
            write_program(program, folder / f"{role}.program")
        (folder / "call.json").write_text(json.dumps(describe_layout(programs.layout)))

    def load(self, graph: Any, request: Any, folder: Path) -> CompiledExecutable:
        self.calls.append("load")
        layout = CallLayout.from_dict(json.loads((folder / "call.json").read_text()))
        by_role = {role: read_program(folder / f"{role}.program") for role in layout.arguments}
        runners = interpret_programs(Programs(by_role, layout))
        return CompiledExecutable(graph, request, layout, runners, lambda: ReplayExecutable(graph), name="interpreted")


@pytest.fixture
def interpreted_engine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> InterpretedEngine:
    """Let another package bring the engine `interpreted`, which tuning tries in the place of real compilers.

    No executable is in the cache.
    """
    monkeypatch.setenv("PORTING_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
    engine = InterpretedEngine()
    entry = SimpleNamespace(name="interpreted", value="another.package:ENGINE", load=lambda: engine)
    monkeypatch.setattr("porting.engines.read_entry_points", lambda _group: {entry.name: entry})
    monkeypatch.setattr("porting.engines.tuning.tuner.list_tuned_engines", lambda: ["interpreted"])
    return engine


def _serve_programs(module: str) -> Any:
    """Make the fixture of a process that starts programs which have `module` from their beginning."""

    @pytest.fixture(scope="session")
    def server() -> Iterator[ProgramServer]:
        with closing(ProgramServer(module)) as started:
            yield started

    return server


def _let_programs_have(server: str) -> Any:
    """Make the fixture that lets what `sys.executable` starts be started by a server, the fixture of this name."""

    @pytest.fixture
    def programs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "executable", request.getfixturevalue(server).python)

    return programs


# the import of torch takes longer than most programs; that of the compiler longer than it takes to compile most
program_server = _serve_programs("torch")
simulator_server = _serve_programs("porting.simulator")
compiler_server = _serve_programs("porting.engines.aot.compiler")
programs_have_torch = _let_programs_have("program_server")
programs_have_simulator = _let_programs_have("simulator_server")
programs_have_compiler = _let_programs_have("compiler_server")


@pytest.fixture(params=_worlds(), scope="session")
def poptorch(request: pytest.FixtureRequest) -> ModuleType:
    """Give a module with PopTorch's API: the simulator, and the real one as well where it is installed."""
    return importlib.import_module(request.param)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Give the folder with real data beside the repository, or skip the test where it is absent."""
    if not DATA_FOLDER.is_dir():
        pytest.skip(f"no real data: {DATA_FOLDER} does not exist")
    return DATA_FOLDER
