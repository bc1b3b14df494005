"""Obtain the executable of a step from the store, else by compiling or measuring, else by replay.

Whatever goes wrong on the way (a compiler that fails, a folder that cannot be used, a damaged file, a program that
computes something else) ends in replay, which needs none of it, and in a finding that says so.
"""

from __future__ import annotations

import functools
import logging
import os
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from .. import executables
from ..capture import StepGraph
from ..diagnostics import Finding, OptionError
from ..engines import engine_names, load_engine, parity, require_engine, why_not_installed
from ..engines.calls.executable import BuildRequest, Choice, Executable
from ..engines.calls.freed_memory import give_back_what_is_freed, keep_freed_memory, return_freed_memory
from ..engines.calls.memory_format import lay_out
from ..engines.contract.chooser import load_chooser
from ..engines.contract.engine import is_compiling
from ..engines.contract.failures import (
    CompileFailure,
    NotCompilable,
    failure_finding,
    failure_reason,
    is_lasting,
    missing_finding,
    parity_finding,
    replay_finding,
    why_not_tuned,
)
from ..engines.contract.limits import CompileLimits, TuningLimits
from ..engines.contract.report import TuningReport
from ..engines.recompute.recomputation import recomputes
from ..engines.replay.replay import build_replay
from .background import BackgroundTuning
from .settings import PROGRAMS, read_max_cache_bytes
from .trust import find_trusted_folder

if TYPE_CHECKING:
    from ..engines.contract.trial import Trial
    from .identity import ExecutableKey
    from .store import ExecutableStore

__all__ = ["Obtained", "obtain_executable"]

_logger = logging.getLogger("porting")


@dataclass(frozen=True)
class Obtained:
    """An executable, and where it came from.

    `graph` is the step in the memory format of the executable: `DeviceState.for_graph` of it makes the state that it
    runs on. `engine` is what was asked for, `choice` what it became. `origin` is "hit" (loaded from the store),
    "compiled" (just now) or "replay". `cache` is "hit", "miss", or "off" where no store was asked. `tuning` are the
    measurements of the choice, also those of the process that made it. `seconds` are those spent here: "find" (the key
    and the search), "compile" (tuning included), "load". `background` looks for a faster one while this one runs, if
    that was asked for and there may be one.
    """

    executable: Executable
    graph: StepGraph
    engine: str = "replay"
    choice: Choice = Choice()
    origin: str = "replay"
    cache: str = "off"
    tuning: Optional[TuningReport] = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    findings: Tuple[Finding, ...] = ()
    background: Optional[BackgroundTuning] = None

    @property
    def summary(self) -> str:
        """What runs the step, in one line."""
        return self.choice.label if self.tuning is None else self.tuning.summary


def obtain_executable(
    graph: StepGraph,
    request: BuildRequest,
    *,
    engine: str = "ready",
    cache_dir: Union[str, os.PathLike[str], None] = None,
    make_trial: Callable[[], Trial],
    limits: Optional[TuningLimits] = None,
    model: str = "",
    report: Callable[[Finding], None] = lambda _finding: None,
    waits: bool = True,
) -> Obtained:
    """Return an executable of `graph` for `request`, whose choice is made here.

    `engine` is "ready" (what the store has, else replay, at once), "auto" (what the store has, else the fastest of all,
    by measuring) or the name of an engine. Unless it `waits`, "auto" is what the store has, or replay, at once, and
    the measuring is left to `Obtained.background`. `cache_dir` is the store's folder, that of the environment unless
    given. `make_trial` makes what candidates are run on; it is called only if there are any. `model` is the name of the
    model, for people. `report` gets each finding when it arises.

    Raises OptionError P004 for an unknown engine, and KeyboardInterrupt; everything else ends in replay.
    """
    require_engine(engine)
    # a step that computes again does so to need less memory; all others are quicker if they keep it
    (give_back_what_is_freed if recomputes(graph) else keep_freed_memory)()
    wanted = replace(request, choice=Choice(), report=report)
    return _Search(graph, wanted, engine, cache_dir, make_trial, limits or TuningLimits(), model, report).run(waits)


@dataclass
class _Search:
    """One search for an executable: what is wanted, and what came of it so far.

    `because` are the changes since an earlier executable of the model. `replaces` says that the store has one which is
    to be replaced.
    """

    graph: StepGraph
    request: BuildRequest
    engine: str
    cache_dir: Union[str, os.PathLike[str], None]
    make_trial: Callable[[], Trial]
    limits: TuningLimits
    model: str
    report: Callable[[Finding], None]
    findings: List[Finding] = field(default_factory=list)
    seconds: Dict[str, float] = field(default_factory=dict)
    cache: str = "off"
    sources: Dict[str, Any] = field(default_factory=dict)
    because: List[Dict[str, Any]] = field(default_factory=list)
    replaces: bool = False

    def run(self, waits: bool) -> Obtained:
        """Go the way that the engine's name asks for."""
        reason = why_not_tuned(self.request)
        missing = why_not_installed(self.engine)
        background: Optional[BackgroundTuning] = None
        if reason or self.engine == "replay":
            if self.engine not in ("ready", "replay"):
                self._add_finding(replay_finding(reason))
            found = None
        elif self.engine == "ready" or missing or not waits and self.engine == "auto":
            found = self._find_ready()
            if found is None and self.engine == "auto":
                background = self._prepare_background(missing)
        else:
            found = self._find_or_make()
        if found is not None:
            return found
        return self._describe_result(build_replay(self.graph, self.request), self.graph, background=background)

    def _prepare_background(self, missing: str) -> Optional[BackgroundTuning]:
        """Return what looks for a faster engine later; nothing where what it needs is `missing`."""
        if missing:
            # unless an executable on disk has told
            if "E015" not in [finding.code for finding in self.findings]:
                self._add_finding(missing_finding(missing))
            return None

        def find() -> Optional[Obtained]:
            # the step is the same, and so is its key; what was found out about replay is no news
            self.findings, self.seconds = [], {}
            return self._load_executable(self._make_key("auto"))

        return BackgroundTuning(
            self.graph,
            self.request,
            find=find,
            cache_dir=self.folder,
            seconds=self.limits.seconds,
            model=self.model,
            report=self._add_finding,
        )

    @functools.cached_property
    def store(self) -> ExecutableStore:
        """The store, which replay never asks for: its settings may be wrong."""
        return executables.ExecutableStore(self.folder, report=self._add_finding)

    @functools.cached_property
    def folder(self) -> Path:
        """The cache folder, or one of this process alone where others can write to it."""
        return find_trusted_folder(self.cache_dir, self._add_finding)

    def _add_finding(self, finding: Finding) -> None:
        # what is looked for twice is told once
        if finding not in self.findings:
            self.findings.append(finding)
            self.report(finding)

    # -- what is there already ---------------------------------------------------------------------------------------

    def _find_ready(self) -> Optional[Obtained]:
        """Return what the store has for any engine; it may not even have a folder."""
        read_max_cache_bytes()  # a wrong setting is told also where there is no store yet
        if not (self.folder / PROGRAMS).is_dir():
            self.cache = "off" if self.cache_dir is None else "miss"
            return None
        key = self._make_key("auto")
        found = self._load_executable(key)
        if found is not None:
            return found
        # all engines that a store can hold; those of other packages are not imported to find out
        names = (name for name in engine_names() if name != "replay")
        return next(filter(None, (self._load_executable(key.for_engine(name)) for name in names)), None)

    def _make_key(self, engine: str) -> ExecutableKey:
        began = time.perf_counter()
        key = executables.make_executable_key(self.graph, self.request, engine=engine, model=self.model)
        self._add_seconds("find", began)
        return key

    def _load_executable(self, key: ExecutableKey, *, is_final: bool = True) -> Optional[Obtained]:
        """Load what the store has for `key`; what cannot be loaded is removed and counts as missing.

        Unless `is_final`, so does a choice for which candidates lacked time if there is more time now.
        """
        began = time.perf_counter()
        self.cache = "miss"
        entry = self.store.find(key)
        self._add_seconds("find", began)
        if entry is None:
            return None
        began = time.perf_counter()
        with entry:
            try:
                choice = Choice(**entry.manifest.content["choice"])
                kept = entry.manifest.content.get("tuning")
                measured = None if kept is None else TuningReport.from_dict(kept)
                limit = None if measured is None else measured.limit_seconds
                if not is_final and limit is not None and self.limits.seconds > limit:
                    self.replaces = True
                    return None
                graph = lay_out(self.graph, choice)
                executable = self._load_programs(choice, graph, entry.folder)
            except Exception as error:
                entry.close()
                # where another one can be chosen, it takes the place of one whose engine is gone
                self.replaces = isinstance(error, OptionError)
                if is_lasting(error) and not self.replaces:
                    what = f"cannot be loaded: {type(error).__name__}: {error}"
                    message = f"the executable {entry.digest[:8]} on disk {what}"
                    self._add_finding(Finding("E005", message=message, notes="it is removed and counts as missing"))
                    self.store.remove(key.digest)
                else:  # it is not the executable's fault, and others may be running it
                    self._add_finding(failure_finding(Choice(self.engine), error))
                return None
        self._add_seconds("load", began)
        self.cache = "hit"
        return self._describe_result(executable, graph, choice=choice, origin="hit", tuning=measured)

    def _load_programs(self, choice: Choice, graph: StepGraph, folder: Path) -> Executable:
        request = replace(self.request, choice=choice)
        if choice.engine == "replay":
            return build_replay(graph, request)
        loaded: Executable = load_engine(choice.engine).load(graph, request, folder)
        return loaded

    # -- what has to be made -----------------------------------------------------------------------------------------

    def _find_or_make(self) -> Optional[Obtained]:
        key = self._make_key(self.engine)
        if self.engine != "auto" and not is_compiling(load_engine(self.engine)):
            return self._obtain_by_name(key, is_kept=False)
        found = self._load_executable(key, is_final=False)
        if found is not None:
            return found
        with self.store.lock(key, timeout_seconds=2 * self.limits.seconds + 300.0):
            # another process may have been quicker
            found = self._load_executable(key, is_final=False)
            if found is not None:
                return found
            self.sources = executables.record_sources(key.source_files)
            miss = executables.explain_miss(self.store, key, sources=self.sources)
            if miss is not None:
                self.because = miss.to_dicts()
                self._add_finding(miss.to_finding())
            if self.engine != "auto":
                return self._obtain_by_name(key, is_kept=True)
            try:
                return self._obtain_by_tuning(key)
            except Exception as error:  # such as too little memory for what all candidates share
                self._add_finding(failure_finding(Choice("auto"), error))
                return None

    def _obtain_by_tuning(self, key: ExecutableKey) -> Obtained:
        began = time.perf_counter()
        with executables.temporary_folder() as (folder, leave_to):
            tuned = load_chooser().tune(
                self.graph,
                self.request,
                self.make_trial(),
                folder=folder,
                limits=self.limits,
                known_failures=self.store.failures.read(key.digest),
                report=self._add_finding,
                note_failure=lambda candidate, reason: self.store.failures.note(key, candidate, reason),
            )
            return_freed_memory()  # that of the candidates
            self._add_seconds("compile", began)
            choice = tuned.report.chosen
            _logger.info("engine: %s", tuned.report.summary)
            # what stood in the way of the other candidates may be gone tomorrow
            if not tuned.report.notes:
                self._keep_programs(key, choice, tuned.folder, tuned.report)
            leave_to(tuned.executable)
        origin = "replay" if choice.engine == "replay" else "compiled"
        return self._describe_result(tuned.executable, tuned.graph, choice=choice, origin=origin, tuning=tuned.report)

    def _obtain_by_name(self, key: ExecutableKey, *, is_kept: bool) -> Optional[Obtained]:
        """Make the executable of one engine; some are of a kind that no file can hold."""
        choice = Choice(self.engine)
        known = self.store.failures.read(key.digest) if is_kept else {}
        if choice.label in known:
            reason = f"{known[choice.label]} (remembered from an earlier attempt)"
            self._add_finding(failure_finding(choice, CompileFailure("remembered", reason)))
            return None
        began = time.perf_counter()
        try:
            with executables.temporary_folder() as (folder, leave_to):
                executable = self._compile_programs(choice, folder / "programs")
                agreement = parity.compare_with_replay(
                    executable, self.graph, graph=self.graph, request=self.request, trial=self.make_trial()
                )
                if not agreement.holds:
                    self._add_finding(parity_finding(choice, agreement.difference))
                    if is_kept:
                        reason = f"it computes something else: {agreement.difference}"
                        self.store.failures.note(key, choice.label, reason)
                    return None
                self._add_seconds("compile", began)
                if is_kept:
                    self._keep_programs(key, choice, folder / "programs", None)
                leave_to(executable)
        except Exception as error:
            _logger.debug("the engine %s failed", choice.engine, exc_info=error)
            self._add_finding(failure_finding(choice, error))
            # to find out that a step needs replay takes no time, and there may be memory and room tomorrow
            if is_kept and not isinstance(error, NotCompilable) and is_lasting(error):
                self.store.failures.note(key, choice.label, failure_reason(error))
            return None
        return self._describe_result(executable, self.graph, choice=choice, origin="compiled")

    def _compile_programs(self, choice: Choice, folder: Path) -> Executable:
        engine: Any = load_engine(choice.engine)
        request = replace(self.request, choice=choice)
        if not is_compiling(engine):
            built: Executable = engine(self.graph, request)
            return built
        folder.mkdir()
        limits = CompileLimits(seconds=self.limits.compile_seconds)
        engine.compile(self.graph, request, folder, limits=limits, progress=lambda _seconds: None)
        return self._load_programs(choice, self.graph, folder)

    def _keep_programs(
        self, key: ExecutableKey, choice: Choice, folder: Optional[Path], measured: Optional[TuningReport]
    ) -> None:
        content: Dict[str, Any] = {"choice": asdict(choice), "speed_up": None, "tuning": None}
        if measured is not None:
            content.update(speed_up=measured.speed_up, tuning=measured.to_dict())
        content["times"] = dict(self.seconds)
        with tempfile.TemporaryDirectory(prefix="porting-") as empty:
            files = Path(empty) if folder is None else folder
            self.store.keep(key, files, content, sources=self.sources, because=self.because, replace=self.replaces)

    # -- results -----------------------------------------------------------------------------------------------------

    def _describe_result(self, executable: Executable, graph: StepGraph, **facts: Any) -> Obtained:
        """Describe what was obtained, by default replay; `facts` are fields of `Obtained`."""
        facts.update(engine=self.engine, cache=self.cache, seconds=dict(self.seconds), findings=tuple(self.findings))
        return Obtained(executable, graph, **facts)

    def _add_seconds(self, what: str, began: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - began
