"""Where an executable comes from: the store, a compiler, or replay; and that nothing that goes wrong stops a step."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.diagnostics import OptionError
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.device_state import DeviceState
from porting.engines.calls.executable import BuildRequest, Choice
from porting.engines.calls.group_settings import GroupSettings, OptimizerKind
from porting.engines.calls.step_anchors import StepObserver
from porting.engines.contract.failures import CompileFailure
from porting.engines.contract.limits import TuningLimits
from porting.engines.contract.trial import Trial
from porting.engines.replay.replay import ReplayExecutable
from porting.executables.obtain import obtain_executable
from porting.host_tensors import host_tensors

INPUTS = [torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8, dtype=torch.int32) % 3]


class Step:
    """The training step of a small model, with what is needed to obtain executables of it."""

    def __init__(self, width=4):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 3))
        example = [INPUTS[0], INPUTS[1].long()]
        self.graph = capture_step(self.model, example, loss=nn.functional.cross_entropy, mode="training")
        names = tuple(info.name for info in self.graph.parameters)
        settings = GroupSettings(OptimizerKind.SGD2, learning_rate=0.1, momentum=0.9)
        self.request = BuildRequest(CallPlan(), groups=(settings,), group_names=(names,))
        self.weights = {host.name: host.tensor.detach() for host in host_tensors(self.model)}
        self.num_trials = 0

    def make_trial(self):
        self.num_trials += 1
        request = self.request
        return Trial(self.weights, INPUTS, request.plan, request.groups, request.group_names)

    def obtain(self, engine, folder, **options):
        options.setdefault("limits", TuningLimits(seconds=200.0))
        options.setdefault("request", self.request)
        request = options.pop("request")
        return obtain_executable(
            self.graph, request, engine=engine, cache_dir=folder, make_trial=self.make_trial, **options
        )

    def trained(self, obtained, groups=None):
        state = DeviceState.for_graph(obtained.graph)
        state.upload(self.weights)
        request = self.request
        names = [list(names) for names in request.group_names]
        groups = {"groups": list(groups or request.groups), "group_names": names}
        for _ in range(3):
            obtained.executable.run(state, INPUTS, request.plan, **groups)
        return {name: weight.detach() for name, weight in state.parameters.items()}


@pytest.fixture
def step():
    return Step()


def codes(obtained):
    return [finding.code for finding in obtained.findings]


# -- ready ------------------------------------------------------------------------------------------------------------


def test_ready_replays_where_nothing_is_kept_and_makes_no_folder(step, tmp_path):
    obtained = step.obtain("ready", tmp_path / "cache")

    assert (obtained.origin, obtained.cache, obtained.choice) == ("replay", "miss", Choice())
    assert (step.num_trials, list(tmp_path.iterdir())) == (0, [])


def test_without_a_folder_of_its_own_ready_looks_nowhere_else(step, tmp_path, monkeypatch):
    monkeypatch.setenv("PORTING_CACHE_DIR", str(tmp_path / "cache"))

    assert step.obtain("ready", None).cache == "off"


@pytest.mark.parametrize("engine", ["auto", "interpreted"])
def test_ready_loads_what_an_earlier_process_made(step, tmp_path, interpreted_engine, engine, always_fastest):
    made = step.obtain(engine, tmp_path)
    interpreted_engine.calls.clear()

    found = Step().obtain("ready", tmp_path)

    assert (made.origin, made.cache, made.choice.engine) == ("compiled", "miss", "interpreted")
    assert (found.origin, found.cache, found.choice) == ("hit", "hit", made.choice)
    assert interpreted_engine.calls == ["load"]
    assert found.seconds.keys() == {"find", "load"}


@pytest.mark.usefixtures("programs_have_torch")
@pytest.mark.slow
def test_ready_needs_no_compiler(tmp_path):
    program = (
        "import sys, torch; from porting.simulator import inferenceModel;"
        "inferenceModel(torch.nn.Linear(2, 1))(torch.ones(1, 2));"
        "print('torch._inductor' in sys.modules, 'porting.engines.aot.compiler' in sys.modules)"
    )

    result = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, text=True)

    assert result.stdout.endswith("False False\n")


@pytest.mark.parametrize("engine", ["auto", "ready"])
def test_an_executable_stays_where_neither_its_engine_nor_a_chooser_is_installed(
    step, tmp_path, interpreted_engine, engine, always_fastest, monkeypatch
):
    step.obtain("auto", tmp_path)

    with monkeypatch.context() as patch:
        patch.setattr("porting.engines.read_entry_points", lambda _group: {})
        patch.setattr("porting.engines._is_there", lambda _room: False)
        without = Step().obtain(engine, tmp_path)

    assert (without.origin, codes(without)) == ("replay", ["E015"])
    assert Step().obtain(engine, tmp_path).origin == "hit"


def test_another_executable_is_chosen_where_the_engine_of_the_last_one_is_gone(
    step, tmp_path, interpreted_engine, always_fastest, monkeypatch
):
    step.obtain("auto", tmp_path)
    monkeypatch.setattr("porting.engines.read_entry_points", lambda _group: {})

    without = Step().obtain("auto", tmp_path)

    assert (without.choice.engine, codes(without)) == ("replay", ["E015"])
    assert Step().obtain("auto", tmp_path).origin == "hit"


@pytest.mark.parametrize("waits", [True, False])
def test_auto_replays_and_says_so_where_no_compiler_is_installed(step, tmp_path, monkeypatch, waits):
    monkeypatch.setattr("porting.engines._is_there", lambda _room: False)

    obtained = step.obtain("auto", tmp_path, waits=waits)

    assert (obtained.origin, obtained.background, codes(obtained)) == ("replay", None, ["E015"])


# -- by name ----------------------------------------------------------------------------------------------------------


def test_replay_asks_no_store(step, tmp_path):
    obtained = step.obtain("replay", tmp_path)

    assert (obtained.origin, obtained.cache, obtained.findings) == ("replay", "off", ())


def test_an_unknown_engine_is_refused(step, tmp_path):
    with pytest.raises(OptionError, match="no engine called `warp`"):
        step.obtain("warp", tmp_path)


def test_a_compiled_step_trains_like_replay(step, tmp_path, interpreted_engine):
    compiled = step.trained(step.obtain("interpreted", tmp_path))

    torch.testing.assert_close(compiled, step.trained(step.obtain("replay", tmp_path)))


def test_another_graph_is_another_executable(step, tmp_path, interpreted_engine):
    step.obtain("interpreted", tmp_path)

    other = Step(width=5).obtain("interpreted", tmp_path)

    assert (other.origin, other.cache) == ("compiled", "miss")
    assert codes(other) == ["E006"]
    assert other.findings[0].message.startswith("recompiled: ")


def test_an_engine_that_makes_no_files_is_used_and_not_kept(step, tmp_path, interpreted_engine, monkeypatch):
    entry = SimpleNamespace(name="simple", value="x:y", load=lambda: lambda graph, request: ReplayExecutable(graph))
    monkeypatch.setattr("porting.engines.read_entry_points", lambda _group: {entry.name: entry})

    obtained = step.obtain("simple", tmp_path)

    assert (obtained.choice.engine, obtained.origin, obtained.cache) == ("simple", "compiled", "off")


def crash():
    return CompileFailure("crash", "the compiler crashed", log="a long\nlog")


def test_a_compiler_that_fails_is_told_and_remembered(step, tmp_path, interpreted_engine, monkeypatch):
    def fail(*args, **kwargs):
        interpreted_engine.calls.append("compile")
        raise crash()

    monkeypatch.setattr(interpreted_engine, "compile", fail)

    first = step.obtain("interpreted", tmp_path)
    second = step.obtain("interpreted", tmp_path)

    assert (first.origin, codes(first)) == ("replay", ["E001"])
    assert (second.origin, codes(second)) == ("replay", ["E001"])
    assert "remembered from an earlier attempt" in second.findings[0].message
    assert interpreted_engine.calls == ["compile"]


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(28, "No space left on device"),
        CompileFailure("memory", "the compiler ran out of memory"),
        CompileFailure("space", "there is no room on the disk to compile in"),
    ],
)
def test_what_may_be_better_tomorrow_is_not_remembered(step, tmp_path, interpreted_engine, monkeypatch, error):
    def fail(*args, **kwargs):
        interpreted_engine.calls.append("compile")
        raise error

    monkeypatch.setattr(interpreted_engine, "compile", fail)

    found = [step.obtain("interpreted", tmp_path) for _ in range(2)]

    assert [(obtained.origin, codes(obtained)) for obtained in found] == [("replay", ["E001"])] * 2
    assert interpreted_engine.calls == ["compile", "compile"]


@pytest.mark.parametrize("engine", ["auto", "interpreted"])
def test_no_room_for_temporary_files_ends_in_replay(step, tmp_path, interpreted_engine, monkeypatch, engine):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("porting.executables.folders.tempfile.mkdtemp", full)

    obtained = step.obtain(engine, tmp_path)

    assert (obtained.origin, codes(obtained)) == ("replay", ["E001"])


def test_an_example_that_cannot_be_made_ends_tuning_in_replay(step, tmp_path, interpreted_engine, monkeypatch):
    def fail():
        raise MemoryError

    monkeypatch.setattr(step, "make_trial", fail)

    obtained = step.obtain("auto", tmp_path)

    assert (obtained.origin, codes(obtained)) == ("replay", ["E001"])


def test_an_executable_is_spared_where_memory_lacks_to_load_it(step, tmp_path, interpreted_engine, monkeypatch):
    step.obtain("interpreted", tmp_path)

    def load(graph, request, folder):
        raise MemoryError

    with monkeypatch.context() as lacking:
        lacking.setattr(interpreted_engine, "load", load)
        refused = step.obtain("ready", tmp_path)

    assert (refused.origin, codes(refused)) == ("replay", ["E001"])
    assert step.obtain("ready", tmp_path).origin == "hit"


def test_a_program_that_computes_something_else_is_not_used(step, tmp_path, interpreted_engine, monkeypatch):
    class Wrong(ReplayExecutable):
        def run(self, *args, **kwargs):
            return [result * 1.01 for result in super().run(*args, **kwargs)]

    monkeypatch.setattr(interpreted_engine, "load", lambda graph, request, folder: Wrong(graph))

    obtained = step.obtain("interpreted", tmp_path)

    assert (obtained.origin, codes(obtained)) == ("replay", ["E007"])


def test_a_step_that_only_replay_can_show_is_replayed(step, tmp_path, interpreted_engine):
    request = replace(step.request, observer=StepObserver([]))

    obtained = step.obtain("interpreted", tmp_path, request=request)

    assert (obtained.origin, codes(obtained), interpreted_engine.calls) == ("replay", ["E003"], [])


def test_a_step_that_cannot_be_compiled_says_why(step, tmp_path, interpreted_engine):
    request = replace(step.request, plan=CallPlan(checks_floats=True))

    obtained = step.obtain("interpreted", tmp_path, request=request)

    assert (obtained.origin, codes(obtained)) == ("replay", ["E003"])
    assert "floating-point checks" in obtained.findings[0].message


# -- auto -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def always_fastest(monkeypatch):
    """Let tuning prefer the last candidate that is not out."""
    monkeypatch.setattr("porting.engines.tuning.tuner.choose", lambda timings: list(timings)[-1])


def test_the_choice_and_its_measurements_are_kept(step, tmp_path, interpreted_engine, always_fastest):
    made = step.obtain("auto", tmp_path)
    found = step.obtain("auto", tmp_path)

    assert found.origin == "hit"
    assert found.tuning == made.tuning
    assert [candidate.problem for candidate in found.tuning.candidates] == ["", "", ""]
    (manifest,) = tmp_path.glob("programs/*/manifest.json")
    assert json.loads(manifest.read_text())["content"]["choice"]["engine"] == "interpreted"


def test_that_replay_is_the_fastest_is_kept_too(step, tmp_path, interpreted_engine, monkeypatch):
    monkeypatch.setattr("porting.engines.tuning.tuner.choose", lambda timings: Choice(fused_update=True))

    made, found = step.obtain("auto", tmp_path), step.obtain("auto", tmp_path)

    assert (made.origin, found.origin) == ("replay", "hit")
    assert made.choice == found.choice == Choice(fused_update=True)


def test_of_several_threads_one_tunes_and_the_others_load(tmp_path, interpreted_engine, always_fastest):
    found, steps = [], [Step() for _ in range(3)]
    threads = [threading.Thread(target=lambda step=step: found.append(step.obtain("auto", tmp_path))) for step in steps]

    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(obtained.origin for obtained in found) == ["compiled", "hit", "hit"]
    assert interpreted_engine.calls.count("compile") == 1


# -- a store that is no good ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["auto", "interpreted"])
def test_a_store_that_cannot_be_written_is_told_once_and_not_needed(
    step, tmp_path, interpreted_engine, always_fastest, engine
):
    folder = tmp_path / "a file"
    folder.write_text("")

    obtained = step.obtain(engine, folder)

    assert (obtained.choice.engine, obtained.origin) == ("interpreted", "compiled")
    assert set(codes(obtained)) == {"E004"}
    assert len(step.trained(obtained)) == 4


def test_a_file_that_cannot_be_loaded_is_removed_and_made_again(step, tmp_path, interpreted_engine, monkeypatch):
    step.obtain("interpreted", tmp_path)
    load = interpreted_engine.load
    attempts = iter([True])

    def fail_once(graph, request, folder):
        if next(attempts, False):
            raise ValueError("undefined symbol")
        return load(graph, request, folder)

    monkeypatch.setattr(interpreted_engine, "load", fail_once)
    obtained = step.obtain("interpreted", tmp_path)

    assert (obtained.origin, codes(obtained)) == ("compiled", ["E005"])
    assert step.obtain("ready", tmp_path).origin == "hit"


def test_a_damaged_file_is_told_and_ready_replays(step, tmp_path, interpreted_engine):
    step.obtain("interpreted", tmp_path)
    (program,) = tmp_path.glob("programs/*/step.program")
    program.write_bytes(program.read_bytes()[:-1])

    obtained = step.obtain("ready", tmp_path)

    assert (obtained.origin, codes(obtained)) == ("replay", ["E005"])


def test_control_c_leaves_nothing_behind(step, tmp_path, interpreted_engine, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(interpreted_engine, "compile", interrupt)

    with pytest.raises(KeyboardInterrupt):
        step.obtain("interpreted", tmp_path / "cache")

    assert [path.name for path in tmp_path.iterdir()] == ["cache"]
    assert not list(tmp_path.glob("cache/programs/[0-9a-f]*"))


def test_temporary_folders_go_with_their_executables(step, tmp_path, interpreted_engine, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    obtained = step.obtain("interpreted", tmp_path / "cache")
    num_before = len(os.listdir(tmp_path))

    del obtained
    gc.collect()

    assert (num_before, os.listdir(tmp_path)) == (2, ["cache"])


# -- what comes out later ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["auto", "interpreted", "ready"])
def test_what_an_executable_finds_out_in_a_call_is_reported(step, tmp_path, interpreted_engine, always_fastest, engine):
    if engine == "ready":
        step.obtain("interpreted", tmp_path)
    found = []
    obtained = step.obtain(engine, tmp_path, report=found.append)
    settings = replace(step.request.groups[0], nesterov=True)

    step.trained(obtained, groups=[settings])

    assert [finding.code for finding in found] == ["E008"]


@pytest.mark.slow
def test_a_choice_that_lacked_time_is_made_again_by_who_has_more(step, tmp_path, interpreted_engine, monkeypatch):
    compile_ = interpreted_engine.compile

    def compile_within(*args, limits, **kwargs):
        if limits.seconds < 20.0:
            raise CompileFailure("timeout", "the compiler was not done")
        compile_(*args, limits=limits, **kwargs)

    monkeypatch.setattr(interpreted_engine, "compile", compile_within)
    hasty, patient = {"limits": TuningLimits(seconds=20.0)}, {"limits": TuningLimits(seconds=100.0)}

    origins = [step.obtain("auto", tmp_path, **limits).origin for limits in (hasty, hasty)]
    remade = step.obtain("auto", tmp_path, **patient)
    found = step.obtain("auto", tmp_path, **patient)

    assert origins == ["replay", "hit"]
    assert (remade.cache, found.cache) == ("miss", "hit")
    assert found.tuning == remade.tuning
    assert not any(candidate.problem for candidate in found.tuning.candidates)


def test_a_program_that_fails_when_it_runs_is_remembered(step, tmp_path, interpreted_engine, monkeypatch):
    class Failing(ReplayExecutable):
        def run(self, *args, **kwargs):
            raise RuntimeError("isIntList() INTERNAL ASSERT FAILED")

    monkeypatch.setattr(interpreted_engine, "load", lambda graph, request, folder: Failing(graph))

    reasons = [step.obtain("interpreted", tmp_path).findings[0].message for _ in range(2)]

    assert "remembered from an earlier attempt" not in reasons[0]
    assert "remembered from an earlier attempt" in reasons[1]
    assert interpreted_engine.calls == ["compile"]
