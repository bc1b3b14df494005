"""Compare candidates with replay and measure them beside each other; the fastest one wins.

What needs no compiler is measured first. It predicts which programs can win; only those are compiled, the most
promising one first, and what has been measured of it decides about the next. Candidates take turns, so that a busy
machine is busy for all of them alike. Processor time decides, as long as the clock does not contradict; and where two
are equal, as far as can be told, the simpler one is taken.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set

import torch
from tqdm import tqdm

from ...capture import StepGraph
from ...diagnostics import Finding, OptionError
from ...support.process import usable_cores
from .. import load_engine
from ..calls.executable import BuildRequest, make_empty_state
from ..calls.memory_format import LayoutError, lay_out
from ..contract.chooser import Tuned
from ..contract.engine import is_compiling
from ..contract.failures import failure_finding, failure_reason, is_lasting, parity_finding
from ..contract.limits import CompileLimits, TuningLimits
from ..contract.report import TuningReport
from ..contract.trial import Trial
from ..parity.comparison import compare_with_replay, count_compared_calls
from ..parity.replayed_calls import ReplayedCalls
from ..replay.replay import build_replay
from .candidates import PLAIN, choose, list_candidates, list_tuned_engines
from .contestants import Contestant, choose_wave, describe_candidate
from .measuring import measure_contestants
from .predictions import Forecast
from .step_costs import measure_step_cost

__all__ = ["tune"]

_logger = logging.getLogger("porting")

# Measuring gets a quarter of the time; the rest is for compiling.
_MEASURING_SHARE = 0.25
# Enough to see what is worth compiling; what is compiled is measured beside the fastest ones again.
_ROUNDS_OF_REPLAY, _SECONDS_OF_REPLAY = 5, 1.0


class _CancelledError(Exception):
    """Tuning was interrupted."""


@dataclass
class _Session:
    """What the steps of one tuning share.

    `fastest` is plain replay and, if that is another one, the fastest replay; `prepared` has for engines what their
    first compilation takes.
    """

    graph: StepGraph
    request: BuildRequest
    trial: Trial
    folder: Path
    limits: TuningLimits
    report: Callable[[Finding], None]
    note_failure: Callable[[str, str], None]
    began: float = field(default_factory=lambda: time.perf_counter())
    fastest: List[Contestant] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    prepared: Dict[str, Any] = field(default_factory=dict)

    @functools.cached_property
    def replays(self) -> ReplayedCalls:
        """The calls that all candidates are compared with."""
        return ReplayedCalls(self.graph, self.request, self.trial)

    def stop_if_cancelled(self, _seconds: float) -> None:
        """Raise what ends a compilation that nobody waits for any more."""
        if self.cancelled.is_set():
            raise _CancelledError


def tune(
    graph: StepGraph,
    request: BuildRequest,
    trial: Trial,
    *,
    folder: Path,
    limits: Optional[TuningLimits] = None,
    known_failures: Mapping[str, str] = MappingProxyType({}),
    report: Callable[[Finding], None] = lambda _finding: None,
    note_failure: Callable[[str, str], None] = lambda _candidate, _reason: None,
) -> Tuned:
    """Return the fastest executable of `graph` that computes what replay does, as `Chooser.tune` says.

    Nothing of the user's is changed. What goes wrong with a candidate ends that candidate; KeyboardInterrupt ends the
    compilations that run, and comes through.
    """
    session = _Session(graph, request, trial, folder, limits or TuningLimits(), report, note_failure)
    # If replay fails on the example, so does every candidate, and none of them is to blame.
    plain = build_replay(graph, replace(request, choice=PLAIN))
    try:
        trial.run(plain, trial.prepare(make_empty_state(graph, request)))
    except Exception as error:
        note = f"nothing could be measured: the step fails on its example: {failure_reason(error)}"
        return Tuned(plain, graph, TuningReport(PLAIN, notes=(note,)))
    contestants = _enter_contestants(session, known_failures)
    bar = tqdm(total=len(contestants) + 1, desc="tuning", unit="", leave=False, disable=None)
    with _prepare_compilers(session, contestants), bar:
        _measure_replays(session, contestants)
        bar.update(sum(contestant.folder is None for contestant in contestants))
        _forecast_all(session, contestants, session.fastest[-1])
        compare_fastest = functools.partial(_compare_fastest, session, contestants)
        finalists = session.fastest
        while True:
            wave = choose_wave(contestants, num_at_once=session.limits.processes)
            # compilers are processes of their own, beside which this one has nothing else to do
            _compile_all(session, wave, advance=bar.update, meanwhile=compare_fastest)
            if not wave and not any(contestant.is_waiting for contestant in contestants):
                break
            bar.set_postfix_str("comparing and measuring")
            for contestant in wave:
                if not contestant.problem:
                    _load_and_compare(session, contestant)
            if any(contestant.is_in for contestant in wave):
                programs = [one for one in contestants if one.is_in and one.folder is not None]
                finalists = [*session.fastest, *programs]
                _measure_all(session, finalists)
            bar.set_postfix_str("")
        if not any(contestant.folder is not None for contestant in finalists):
            finalists = [contestant for contestant in contestants if contestant.is_in]
            _measure_all(session, finalists)
            session.fastest = _list_fastest(contestants)
            compare_fastest()
        compiled = [contestant for contestant in contestants if contestant.folder is not None]
        errors = [(contestant.choice, contestant.error) for contestant in compiled if contestant.error is not None]
        if errors and not any(contestant.is_in for contestant in compiled):
            session.report(failure_finding(*errors[0]))
        bar.update(bar.total - bar.n)
    return _make_choice(session, contestants, finalists)


def _make_choice(session: _Session, contestants: Sequence[Contestant], finalists: Sequence[Contestant]) -> Tuned:
    """Choose among those that were measured last, in the same rounds, and report on all."""
    measured = {one.choice: one.timing for one in finalists if one.timing is not None and one.is_in}
    chosen = choose(measured)
    winner = next(contestant for contestant in contestants if contestant.choice == chosen)
    assert winner.executable is not None
    lacked_room = any(contestant.lacked_room for contestant in contestants) and chosen.engine == PLAIN.engine
    report_of_all = TuningReport(
        chosen,
        tuple(map(describe_candidate, contestants)),
        time.perf_counter() - session.began,
        notes=(_LACKED_ROOM,) if lacked_room else (),
        limit_seconds=session.limits.seconds if any(contestant.lacked_time for contestant in contestants) else None,
    )
    return Tuned(winner.executable, winner.graph, report_of_all, winner.folder)


_LACKED_ROOM = "candidates lacked memory or room on the disk: the choice is not kept, and made again next time"


def _enter_contestants(session: _Session, known_failures: Mapping[str, str]) -> List[Contestant]:
    found = []
    engines = _load_engines()
    for number, choice in enumerate(list_candidates(session.graph, session.request, engines=engines)):
        contestant = Contestant(choice, session.graph, engine=engines.get(choice.engine))
        found.append(contestant)
        if choice.engine != PLAIN.engine:
            contestant.folder = session.folder / str(number)
        try:
            contestant.graph = lay_out(session.graph, choice)
        except LayoutError as error:
            contestant.problem = str(error)
            continue
        if choice.engine == PLAIN.engine:
            contestant.executable = build_replay(contestant.graph, replace(session.request, choice=choice))
        elif choice.label in known_failures:
            contestant.problem = f"{known_failures[choice.label]} (found earlier)"
    return found


def _load_engines() -> Dict[str, Any]:
    """Return the engines that tuning tries, but for those that keep nothing on disk."""
    found: Dict[str, Any] = {}
    for name in list_tuned_engines():
        try:
            engine = load_engine(name)
        except OptionError:  # its candidate says so, as the engine is loaded to compile it
            engine = None
        if engine is None or is_compiling(engine):
            found[name] = engine
    return found


# -- what is compiled --------------------------------------------------------------------------------------------------


def _measure_replays(session: _Session, contestants: Sequence[Contestant]) -> None:
    """Measure what needs no compiler, if there is anything else, and note plain replay and the fastest one."""
    replays = [contestant for contestant in contestants if contestant.folder is None]
    if any(contestant.is_waiting for contestant in contestants):
        _measure_all(session, replays, most_rounds=_ROUNDS_OF_REPLAY, most_seconds=_SECONDS_OF_REPLAY)
    session.fastest = _list_fastest(replays)


def _list_fastest(contestants: Sequence[Contestant]) -> List[Contestant]:
    """Return plain replay and, if that is another one, the fastest that has been measured."""
    replays = [contestant for contestant in contestants if contestant.folder is None and contestant.is_in]
    timings = {contestant.choice: contestant.timing for contestant in replays if contestant.timing is not None}
    wanted = {PLAIN, choose(timings)} if timings else {PLAIN}
    return [contestant for contestant in replays if contestant.choice in wanted]


def _compare_fastest(session: _Session, contestants: Sequence[Contestant]) -> None:
    """Compare the fastest replay with plain replay, if nobody has; where it is out, the next one."""
    while True:
        for contestant in session.fastest:
            if contestant.choice != PLAIN and not contestant.is_compared:
                _load_and_compare(session, contestant)
        if all(contestant.is_in for contestant in session.fastest):
            return
        session.fastest = _list_fastest(contestants)
        for contestant in contestants:
            contestant.left_out = ""  # perhaps it was, beside one that is out now


def _forecast_all(session: _Session, contestants: Sequence[Contestant], fastest: Contestant) -> None:
    """Ask engines what they would take, as far as they can tell from the cost of the fastest replay."""
    waiting = [one for one in contestants if one.is_waiting and hasattr(one.engine, "predict")]
    if not waiting:
        return
    try:
        cost = measure_step_cost(fastest.graph, session.request, session.trial)
    except Exception as error:  # then more is compiled
        _logger.debug("the cost of the step cannot be measured", exc_info=error)
        return
    for contestant in waiting:
        try:
            contestant.forecast = Forecast.of(contestant.engine.predict(contestant.choice, cost), cost)
        except Exception as error:  # others may know better
            _logger.debug("%s cannot be predicted", contestant.choice.label, exc_info=error)


# -- compiling --------------------------------------------------------------------------------------------------------


@contextmanager
def _prepare_compilers(session: _Session, contestants: Sequence[Contestant]) -> Iterator[None]:
    """Let compilers load while replays are measured, where these leave a processor."""
    with ExitStack() as stack:
        waiting = {contestant.choice.engine for contestant in contestants if contestant.is_waiting}
        for name in waiting if _has_free_core() else ():
            with suppress(Exception):  # what is wrong is said by a candidate
                prepare = getattr(load_engine(name), "prepare", None)
                if prepare is not None:
                    session.prepared[name] = prepare(session.folder)
                    stack.callback(session.prepared[name].end)
        yield


def _has_free_core() -> bool:
    return usable_cores() > torch.get_num_threads()


def _is_any_at_work(compilations: Set[Any]) -> bool:
    return not all(compilation.done() for compilation in compilations)


def _compile_all(
    session: _Session,
    contestants: Sequence[Contestant],
    *,
    advance: Callable[[], Any],
    meanwhile: Callable[[], None],
) -> None:
    """Compile the candidates that need it, a few at a time, until the time for it is up, and do `meanwhile` beside."""
    deadline = session.began + session.limits.seconds * (1 - _MEASURING_SHARE)
    # Threads suffice: each waits for a compiler in a process of its own.
    pool = ThreadPoolExecutor(session.limits.processes, thread_name_prefix="porting-compile")
    running: Set[Any] = set()
    try:
        for contestant in contestants:
            if contestant.folder is None or contestant.problem:
                advance()
            else:
                running.add(pool.submit(_compile_one, session, contestant, deadline))
        meanwhile()
        if _has_free_core():
            wanted = functools.partial(_is_any_at_work, running)
            session.replays.run_ahead(count_compared_calls(session.request), while_wanted=wanted)
        while running:
            # a wait without an end would keep Ctrl-C waiting on some systems
            done, running = wait(running, timeout=0.5)
            for future in done:
                future.result()
                advance()
    except BaseException:
        session.cancelled.set()
        raise
    finally:
        # Compilers that run are told by `cancelled` and end within a second.
        pool.shutdown(wait=True)


def _compile_one(session: _Session, contestant: Contestant, deadline: float) -> None:
    """Compile one candidate; what goes wrong is its problem."""
    began = time.perf_counter()
    if session.cancelled.is_set() or began >= deadline:
        contestant.problem, contestant.lacked_time = "the time for tuning was up before it was compiled", True
        return
    folder = contestant.folder
    assert folder is not None
    try:
        folder.mkdir()
        name = contestant.choice.engine
        prepared = session.prepared.pop(name, None)
        load_engine(name).compile(
            contestant.graph,
            replace(session.request, choice=contestant.choice),
            folder,
            limits=CompileLimits(seconds=deadline - began),
            progress=session.stop_if_cancelled,
            **({} if prepared is None else {"prepared": prepared}),
        )
    except Exception as error:
        if not session.cancelled.is_set():
            _give_up(session, contestant, error)
    contestant.compile_seconds = time.perf_counter() - began


def _give_up(session: _Session, contestant: Contestant, error: Exception) -> None:
    contestant.executable, contestant.error = None, error
    contestant.problem = failure_reason(error)
    contestant.lacked_time = getattr(error, "kind", "") == "timeout"
    contestant.lacked_room = not is_lasting(error)
    _logger.debug("the candidate %s is out: %s", contestant.choice.label, contestant.problem, exc_info=error)
    # Remembered only if it would happen again: not what a busy or full machine did.
    if not contestant.lacked_time and not contestant.lacked_room:
        session.note_failure(contestant.choice.label, contestant.problem)


# -- comparing --------------------------------------------------------------------------------------------------------


def _load_and_compare(session: _Session, contestant: Contestant) -> None:
    """Load a candidate and compare it with replay; what goes wrong is its problem."""
    contestant.is_compared = True
    try:
        if contestant.executable is None:
            assert contestant.folder is not None
            engine = load_engine(contestant.choice.engine)
            request = replace(session.request, choice=contestant.choice)
            contestant.executable = engine.load(contestant.graph, request, contestant.folder)
        agreement = compare_with_replay(
            contestant.executable,
            contestant.graph,
            graph=session.graph,
            request=session.request,
            trial=session.trial,
            replays=session.replays,
        )
    except Exception as error:
        _give_up(session, contestant, error)
        return
    contestant.worst = agreement.worst
    if not agreement.holds:
        contestant.problem = f"it computes something else: {agreement.difference}"
        session.note_failure(contestant.choice.label, contestant.problem)
        session.report(parity_finding(contestant.choice, agreement.difference))


# -- measuring --------------------------------------------------------------------------------------------------------


def _measure_all(session: _Session, contestants: Sequence[Contestant], **limits: Any) -> None:
    """Measure those that are in; `limits` are those of `measure_contestants`."""
    seconds_left = session.limits.seconds - (time.perf_counter() - session.began)
    seconds = min(session.limits.measuring_seconds, max(seconds_left, session.limits.seconds * _MEASURING_SHARE / 2))
    most_seconds = min(seconds, limits.pop("most_seconds", seconds))
    measure_contestants(contestants, session.request, session.trial, most_seconds=most_seconds, **limits)
