"""Tuning with engines that pretend: what is slow, wrong or broken loses, and the choice is written down."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from porting.capture import capture_step
from porting.engines.calls.call_plan import CallPlan
from porting.engines.calls.executable import BuildRequest, Choice
from porting.engines.contract.failures import CompileFailure
from porting.engines.contract.limits import TuningLimits
from porting.engines.contract.report import TuningReport
from porting.engines.contract.trial import Trial
from porting.engines.replay.replay import ReplayExecutable
from porting.engines.tuning import tuner
from porting.engines.tuning.tuner import tune
from porting.host_tensors import host_tensors
from porting.support.interleaved import Interval

INPUTS = [torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.arange(8, dtype=torch.int32) % 3]
FAST, PLAIN = Choice("fast"), Choice()


class Pretender(ReplayExecutable):
    """Replay that lets the pretended clock advance by `seconds` for each call, or spoils its results."""

    def __init__(self, graph, clock, seconds, *, factor=1.0):
        super().__init__(graph)
        self._clock, self._seconds, self._factor = clock, seconds, factor

    def run(self, *args, **kwargs):
        self._clock.now += self._seconds
        return [result * self._factor for result in super().run(*args, **kwargs)]


class PretendedEngine:
    """An engine that compiles by writing a file; `fail` is raised while compiling, loading or running."""

    def __init__(self, clock, seconds=0.5, *, factor=1.0, fail=None, fail_to_load=None):
        self.clock, self.seconds, self.factor = clock, seconds, factor
        self.fail, self.fail_to_load = fail, fail_to_load
        self.num_compilations = 0

    def compile(self, graph, request, folder, *, limits, progress):
        self.num_compilations += 1
        if self.fail is not None:
            raise self.fail
        (folder / "program").write_text(request.choice.label)

    def load(self, graph, request, folder):
        if self.fail_to_load is not None:
            raise self.fail_to_load
        assert (folder / "program").read_text() == request.choice.label
        return Pretender(graph, self.clock, self.seconds, factor=self.factor)


@pytest.fixture
def clock(monkeypatch):
    """Pretend that replay takes a second for each call, by the processor and by the clock."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("porting.support.interleaved.time.perf_counter", lambda: clock.now)
    monkeypatch.setattr("porting.support.interleaved.time.process_time", lambda: clock.now)
    monkeypatch.setattr(tuner, "build_replay", lambda graph, request: Pretender(graph, clock, 1.0))
    return clock


@pytest.fixture
def engines(monkeypatch):
    """Make engines known by name; they are what tuning tries."""

    def engines(**named):
        monkeypatch.setattr(tuner, "list_tuned_engines", lambda: list(named))
        monkeypatch.setattr(tuner, "load_engine", named.__getitem__)

    return engines


@pytest.fixture
def tuned(tmp_path, settings):
    """Give a function that tunes the step of a small model, without an optimizer that has a fused form."""

    def tuned(*, optimizer="LAMB", **options):
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        graph = capture_step(model, [INPUTS[0], INPUTS[1].long()], loss=nn.functional.cross_entropy, mode="training")
        request = BuildRequest(CallPlan(), groups=(settings(optimizer),), group_names=(("weight", "bias"),))
        weights = {host.name: host.tensor.detach() for host in host_tensors(model)}
        trial = Trial(weights, INPUTS, request.plan, request.groups, request.group_names)
        options.setdefault("limits", TuningLimits(seconds=10_000.0))
        return tune(graph, request, trial, folder=tmp_path, **options)

    return tuned


def problems(report):
    return {candidate.choice.label: candidate.problem for candidate in report.candidates}


def test_the_fastest_engine_is_chosen(clock, engines, tuned):
    engines(slow=PretendedEngine(clock, 2.0), fast=PretendedEngine(clock, 0.5))

    found = tuned()

    assert found.report.chosen == FAST
    assert found.report.speed_up == pytest.approx(2.0)
    assert (found.folder / "program").read_text() == "fast"
    assert set(problems(found.report).values()) == {""}


def test_an_engine_that_gains_too_little_is_not_worth_it(clock, engines, tuned):
    engines(fast=PretendedEngine(clock, 0.98))

    assert tuned().report.chosen == PLAIN


def test_an_engine_that_computes_something_else_is_out_with_a_finding(clock, engines, tuned):
    findings, failures = [], {}
    engines(fast=PretendedEngine(clock, 0.5, factor=1.01))

    found = tuned(report=findings.append, note_failure=failures.__setitem__)

    assert found.report.chosen == PLAIN
    assert [finding.code for finding in findings] == ["E007"]
    assert failures["fast"].startswith("it computes something else: result 0 differs after call 1")


@pytest.fixture
def fused_replay(clock, monkeypatch):
    """Let replay with a fused update compute something else, in half the time."""

    def build(graph, request):
        is_fused = request.choice.fused_update
        return Pretender(graph, clock, 0.5 if is_fused else 1.0, factor=1.01 if is_fused else 1.0)

    monkeypatch.setattr(tuner, "build_replay", build)


@pytest.mark.usefixtures("fused_replay")
@pytest.mark.parametrize(("seconds", "chosen"), [(0.7, Choice("fast")), (2.0, PLAIN)])
def test_a_replay_that_computes_something_else_hides_no_other(clock, engines, tuned, seconds, chosen):
    findings = []
    engines(fast=PretendedEngine(clock, seconds))

    found = tuned(optimizer="ADAM", report=findings.append)

    assert found.report.chosen == chosen
    assert [finding.code for finding in findings] == ["E007"]
    assert "something else" in problems(found.report)["replay, fused update"]


@pytest.mark.usefixtures("fused_replay")
def test_without_anything_to_compile_the_fastest_that_agrees_is_chosen(clock, engines, tuned):
    engines()

    found = tuned(optimizer="ADAM")

    assert found.report.chosen == PLAIN
    assert "something else" in problems(found.report)["replay, fused update"]


def test_replays_are_compared_while_a_compiler_runs(clock, engines, tuned, monkeypatch):
    compared = threading.Event()
    compare = tuner.compare_with_replay

    def note(*args, **kwargs):
        compared.set()
        return compare(*args, **kwargs)

    class Waiting(PretendedEngine):
        def compile(self, graph, request, folder, *, limits, progress):
            super().compile(graph, request, folder, limits=limits, progress=progress)
            assert compared.wait(60.0)

    monkeypatch.setattr(tuner, "compare_with_replay", note)
    monkeypatch.setattr(
        tuner,
        "build_replay",
        lambda graph, request: Pretender(graph, clock, 0.9 if request.choice.fused_update else 1.0),
    )
    engines(fast=Waiting(clock, 0.5))

    assert tuned(optimizer="ADAM").report.chosen.engine == "fast"


def crash():
    return CompileFailure("crash", "the compiler crashed", log="a long\nlog")


@pytest.mark.parametrize(
    ("engine", "problem"),
    [
        ({"fail": crash()}, "the compiler crashed"),
        ({"fail": OSError("no space")}, "OSError: no space"),
        ({"fail_to_load": ValueError("not mine")}, "ValueError: not mine"),
        ({"fail": MemoryError()}, "MemoryError"),
    ],
)
def test_a_candidate_that_fails_is_out_with_its_reason(clock, engines, tuned, engine, problem):
    engines(fast=PretendedEngine(clock, **engine))

    found = tuned()

    assert found.report.chosen == PLAIN
    assert problems(found.report) == {"replay": "", "fast": problem}


def test_being_out_of_memory_is_not_remembered(clock, engines, tuned):
    failures = {}
    engines(big=PretendedEngine(clock, fail=MemoryError()), bad=PretendedEngine(clock, fail=crash()))

    tuned(note_failure=failures.__setitem__)

    assert failures == {"bad": "the compiler crashed"}


def test_a_choice_for_which_candidates_lacked_memory_says_that_it_is_to_be_made_again(clock, engines, tuned):
    engines(big=PretendedEngine(clock, fail=MemoryError()))

    (note,) = tuned().report.notes

    assert "lacked memory" in note


def test_a_known_failure_is_not_tried_again(clock, engines, tuned):
    engine = PretendedEngine(clock)
    engines(fast=engine)

    found = tuned(known_failures={"fast": "the compiler crashed"})

    assert engine.num_compilations == 0
    assert problems(found.report)["fast"] == "the compiler crashed (found earlier)"


def test_a_candidate_that_fails_while_it_is_measured_is_out(clock, engines, tuned):
    class Tiring(Pretender):
        def run(self, *args, **kwargs):
            self._factor -= 1.0
            if self._factor < -4.0:
                raise RuntimeError("tired")
            self._seconds = 0.5
            results = ReplayExecutable.run(self, *args, **kwargs)
            self._clock.now += 0.5
            return results

    engine = PretendedEngine(clock)
    engine.load = lambda graph, request, folder: Tiring(graph, clock, 0.5)
    engines(fast=engine)

    found = tuned()

    assert found.report.chosen == PLAIN
    assert problems(found.report)["fast"] == "RuntimeError: tired"


def test_when_the_time_is_up_nothing_more_is_compiled(clock, engines, tuned):
    class Lengthy(PretendedEngine):
        def compile(self, *args, **kwargs):
            super().compile(*args, **kwargs)
            self.clock.now += 100.0

    first, second = Lengthy(clock), Lengthy(clock)
    engines(first=first, second=second)

    found = tuned(limits=TuningLimits(seconds=100.0, processes=1))

    assert (first.num_compilations, second.num_compilations) == (1, 0)
    assert "time for tuning was up" in problems(found.report)["second"]


def test_a_step_that_fails_on_its_example_is_replayed_and_nothing_is_blamed(clock, engines, tuned, monkeypatch):
    failures = {}
    engines(fast=PretendedEngine(clock))
    monkeypatch.setattr(Trial, "run", lambda *_args: (_ for _ in ()).throw(IndexError("target out of range")))

    found = tuned(note_failure=failures.__setitem__)

    assert found.report.chosen == PLAIN
    assert found.report.notes == (
        "nothing could be measured: the step fails on its example: IndexError: target out of range",
    )
    assert failures == {}


def test_control_c_ends_the_compilations_and_comes_through(clock, engines, tuned, monkeypatch):
    seen, begun = [], threading.Semaphore(0)

    class Endless(PretendedEngine):
        def compile(self, graph, request, folder, *, limits, progress):
            begun.release()
            for tick in range(3000):
                time.sleep(0.01)
                try:
                    progress(tick / 100)
                except Exception:
                    seen.append(tick)
                    raise

    engines(fast=Endless(clock), other=Endless(clock))
    calls = iter([True])

    def interrupted_wait(futures, timeout):
        if next(calls, False):
            begun.acquire()
            begun.acquire()
            raise KeyboardInterrupt
        return set(), set()

    monkeypatch.setattr(tuner, "wait", interrupted_wait)

    with pytest.raises(KeyboardInterrupt):
        tuned()

    assert len(seen) == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("porting-compile")]


def test_no_more_than_the_allowed_number_compile_at_once(clock, engines, tuned):
    running, most, lock, another = [], [], threading.Lock(), threading.Barrier(2)

    class Counting(PretendedEngine):
        def compile(self, graph, request, folder, *, limits, progress):
            with lock:
                running.append(self)
                most.append(len(running))
            another.wait()
            super().compile(graph, request, folder, limits=limits, progress=progress)
            running.remove(self)

    engines(**{f"engine{number}": Counting(clock) for number in range(6)})

    tuned(limits=TuningLimits(seconds=10_000.0, processes=2))

    assert max(most) == 2


def test_the_users_inputs_stay_as_they_are(clock, engines, tuned):
    engines(fast=PretendedEngine(clock))
    before = [tensor.clone() for tensor in INPUTS]

    found = tuned()

    assert found.report.chosen == FAST
    assert all(map(torch.equal, INPUTS, before))


def test_a_report_survives_json_and_is_a_table(clock, engines, tuned):
    engines(fast=PretendedEngine(clock, 0.5), bad=PretendedEngine(clock, fail=crash()))

    report = tuned().report

    assert TuningReport.from_dict(report.to_dict()) == report
    assert "*  fast" in str(report)
    assert "out: the compiler crashed" in str(report)
    assert report.summary.startswith("fast: 2x replay (chosen of 3, 1 of them out")


class PreparedEngine(PretendedEngine):
    """An engine that can be prepared, and notes what becomes of it."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.events = []

    def prepare(self, folder):
        assert folder.is_dir()
        self.events.append("prepare")
        return SimpleNamespace(end=lambda: self.events.append("end"))

    def compile(self, *args, prepared=None, **kwargs):
        self.events.append("compile" if prepared is None else "compile prepared")
        super().compile(*args, **kwargs)


def test_an_engine_is_prepared_for_its_first_program_and_ended(engines, tuned, clock):
    engine = PreparedEngine(clock)
    engines(aot=engine)

    assert tuned().report.chosen.engine == "aot"
    assert engine.events == ["prepare", "compile prepared", "end"]


def test_what_was_prepared_is_ended_where_nothing_is_compiled(engines, tuned, clock, monkeypatch):
    engine = PreparedEngine(clock)
    engines(aot=engine)
    monkeypatch.setattr(tuner, "choose_wave", lambda contestants, *_args, **_kwargs: leave_out(contestants))

    tuned()

    assert engine.events == ["prepare", "end"]


def leave_out(contestants):
    for contestant in contestants:
        contestant.left_out = "as a test wants it"
    return []


def test_an_engine_that_cannot_be_prepared_is_tried_all_the_same(engines, tuned, clock):
    class Unprepared(PreparedEngine):
        def prepare(self, folder):
            raise OSError("no further process")

    engine = Unprepared(clock)
    engines(aot=engine)

    assert tuned().report.chosen.engine == "aot"
    assert engine.events == ["compile"]


class ForetellingEngine(PretendedEngine):
    """An engine of which one choice is fast, and that knows so."""

    def list_choices(self, graph, request):
        return [Choice("theirs"), Choice("theirs", num_threads=1)]

    def predict(self, choice, cost):
        seconds = cost.seconds * (0.5 if choice.num_threads else 2.0)
        return Interval(seconds, seconds * 0.9, seconds * 1.1)


@pytest.fixture
def entry_points(monkeypatch):
    """Let other packages bring engines, and this one have none but replay."""

    def entry_points(**engines):
        entries = {
            name: SimpleNamespace(name=name, load=lambda engine=engine: engine) for name, engine in engines.items()
        }
        monkeypatch.setattr("porting.engines.read_entry_points", lambda _group: entries)
        monkeypatch.setattr("porting.engines.ENGINES", {"replay": "porting.engines.replay.replay:build_replay"})

    return entry_points


def test_an_engine_of_another_package_is_tuned_by_what_it_says_of_itself(clock, entry_points, tuned):
    engine = ForetellingEngine(clock, 0.5)
    entry_points(theirs=engine)

    report = tuned().report

    assert report.chosen == Choice("theirs", num_threads=1)
    assert [one.choice for one in report.candidates if one.left_out] == [Choice("theirs")]
    assert engine.num_compilations == 1


def test_an_engine_that_predicts_nothing_is_compiled_to_find_out(clock, entry_points, tuned):
    engine = PretendedEngine(clock, 0.5)
    entry_points(theirs=engine)

    assert tuned().report.chosen == Choice("theirs")


def test_an_engine_that_fails_to_predict_is_compiled_to_find_out(clock, entry_points, tuned):
    engine = ForetellingEngine(clock, 0.5)
    engine.predict = None
    entry_points(theirs=engine)

    assert tuned().report.chosen.engine == "theirs"


def test_an_engine_that_keeps_nothing_on_disk_is_not_tried(clock, entry_points, tuned):
    entry_points(theirs=lambda _graph, _request: None)

    assert {one.choice.engine for one in tuned().report.candidates} == {"replay"}


def test_a_package_that_cannot_be_imported_is_out_with_the_reason(clock, entry_points, tuned, monkeypatch):
    def fail():
        raise ImportError("it lacks a part")

    entry = SimpleNamespace(name="theirs", value="their.package:ENGINE", load=fail)
    entry_points()
    monkeypatch.setattr("porting.engines.read_entry_points", lambda _group: {"theirs": entry})

    assert "it lacks a part" in problems(tuned().report)["theirs"]


def test_a_memory_format_that_a_step_has_not_is_out_with_the_reason(clock, entry_points, tuned):
    engine = ForetellingEngine(clock, 0.5)
    engine.list_choices = lambda _graph, _request: [Choice("theirs", channels_last=True)]
    entry_points(theirs=engine)

    assert problems(tuned().report)["theirs, channels-last"] == "no convolution works on a weight of its own"
