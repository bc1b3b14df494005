"""The executable of a step: from the store if it has one, else compiled or chosen by measuring, else replay.

Whatever goes wrong on the way (a compiler that fails, a folder that cannot be used, a damaged file, a program that
computes something else) ends in replay, which needs none of it, and in a finding that says so.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Union

from ..capture import StepGraph
from ..diagnostics import Finding
from ..engines import engine_names, load_engine, require_engine
from ..engines.calls.executable import BuildRequest, Executable, Variant
from ..engines.calls.freed_memory import give_back_what_is_freed, keep_freed_memory, return_freed_memory
from ..engines.compiled.compile_settings import CompileLimits
from ..engines.compiled.engine import is_compiling
from ..engines.compiled.findings import (
    failure_finding,
    failure_reason,
    is_lasting,
    parity_finding,
    replay_finding,
)
from ..engines.compiled.why_replay import NotCompilable, why_not_tuned
from ..engines.recompute.recomputation import recomputes
from ..engines.replay.replay import build_replay
from ..engines.tuning.memory_format import lay_out
from ..engines.tuning.parity import Trial, compare_with_replay
from ..engines.tuning.report import TuningLimits, TuningReport
from ..engines.tuning.tuner import tune
from .entry import Entry
from .folders import TemporaryFolder
from .identity import ExecutableKey
from .key import executable_key
from .misses import explain_miss
from .sources import record_sources
from .store import ExecutableStore

__all__ = ["Obtained", "obtain_executable"]

_logger = logging.getLogger("porting")


@dataclass(frozen=True)
class Obtained:
    """An executable, and where it came from.

    `graph` is the step in the memory format of the executable: `DeviceState.for_graph` of it makes the state that it
    runs on. `engine` is what was asked for, `variant` what it became. `origin` is "hit" (loaded from the store),
    "compiled" (just now) or "replay". `cache` is "hit", "miss", or "off" where no store was asked. `tuning` are the
    measurements of the choice, also those of the process that made it. `seconds` are those spent here: "find" (the key
    and the search), "compile" (tuning included), "load".
    """

    executable: Executable
    graph: StepGraph
    engine: str = "replay"
    variant: Variant = Variant()
    origin: str = "replay"
    cache: str = "off"
    tuning: Optional[TuningReport] = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    findings: Tuple[Finding, ...] = ()

    @property
    def summary(self) -> str:
        """What runs the step, in one line."""
        return self.variant.label if self.tuning is None else self.tuning.summary


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
) -> Obtained:
    """Return an executable of `graph` for `request`, whose variant is chosen here.

    `engine` is "ready" (what the store has, else replay, at once), "auto" (what the store has, else the fastest of all,
    by measuring) or the name of an engine. `cache_dir` is the store's folder, that of the environment unless given.
    `make_trial` makes what candidates are run on; it is called only if there are any. `model` is the name of the model,
    for people. `report` gets each finding when it arises.

    Raises OptionError P004 for an unknown engine, and KeyboardInterrupt; everything else ends in replay.
    """
    require_engine(engine)
    # a step that computes again does so to need less memory; all others are quicker if they keep it
    (give_back_what_is_freed if recomputes(graph) else keep_freed_memory)()
    return _Search(
        graph=graph,
        request=replace(request, variant=Variant(), report=report),
        engine=engine,
        cache_dir=cache_dir,
        make_trial=make_trial,
        limits=limits or TuningLimits(),
        model=model,
        report=report,
    ).run()


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

    def run(self) -> Obtained:
        """Go the way that the engine's name asks for."""
        reason = why_not_tuned(self.request)
        if reason or self.engine == "replay":
            if self.engine not in ("ready", "replay"):
                self._add_finding(replay_finding(reason))
            return self._fall_back_to_replay()
        store = ExecutableStore(self.cache_dir, report=self._add_finding)
        if self.engine == "ready":
            return self._find_ready(store) or self._fall_back_to_replay()
        return self._find_or_make(store)

    def _add_finding(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.report(finding)

    # -- what is there already ---------------------------------------------------------------------------------------

    def _find_ready(self, store: ExecutableStore) -> Optional[Obtained]:
        """Return what the store has for any engine; it may not even have a folder."""
        if not store.programs.is_dir():
            self.cache = "off" if self.cache_dir is None else "miss"
            return None
        key = self._make_key("auto")
        for name in ["auto", *_list_compiling_engines()]:
            found = self._load(store, key.for_engine(name))
            if found is not None:
                return found
        return None

    def _make_key(self, engine: str) -> ExecutableKey:
        began = time.perf_counter()
        groups = {name: [group.size, group.strided] for name, group in self.request.replica_groups.items()}
        extra = {"replica_groups": groups} if groups else None
        key = executable_key(self.graph, self.request, engine=engine, extra=extra, model=self.model)
        self._add_seconds("find", began)
        return key

    def _load(self, store: ExecutableStore, key: ExecutableKey, *, is_final: bool = True) -> Optional[Obtained]:
        """Load what the store has for `key`; what cannot be loaded is removed and counts as missing.

        Unless `is_final`, so does a choice for which candidates lacked time if there is more time now.
        """
        began = time.perf_counter()
        self.cache = "miss"
        entry = store.find(key)
        self._add_seconds("find", began)
        if entry is None:
            return None
        began = time.perf_counter()
        with entry:
            try:
                variant = Variant.from_dict(entry.manifest.content["choice"])
                measured = entry.manifest.content.get("tuning")
                tuning = None if measured is None else TuningReport.from_dict(measured)
                if not is_final and self._has_more_time(tuning):
                    self.replaces = True
                    return None
                graph = lay_out(self.graph, variant)
                executable = self._build(variant, graph, entry.folder)
            except Exception as error:
                entry.close()
                if is_lasting(error):
                    self._add_finding(_describe_damage(entry, error))
                    store.remove(key.digest)
                else:  # it is not the executable's fault, and others may be running it
                    self._add_finding(failure_finding(Variant(self.engine), error))
                return None
        self._add_seconds("load", began)
        self.cache = "hit"
        return self._describe_result(executable, graph, variant=variant, origin="hit", tuning=tuning)

    def _has_more_time(self, tuning: Optional[TuningReport]) -> bool:
        limit = None if tuning is None else tuning.limit_seconds
        return limit is not None and self.limits.seconds > limit

    def _build(self, variant: Variant, graph: StepGraph, folder: Path) -> Executable:
        request = replace(self.request, variant=variant)
        if variant.engine == "replay":
            return build_replay(graph, request)
        loaded: Executable = load_engine(variant.engine).load(graph, request, folder)
        return loaded

    # -- what has to be made -----------------------------------------------------------------------------------------

    def _find_or_make(self, store: ExecutableStore) -> Obtained:
        key = self._make_key(self.engine)
        if self.engine != "auto" and not is_compiling(load_engine(self.engine)):
            return self._make_by_name(None, key)
        found = self._load(store, key, is_final=False)
        if found is not None:
            return found
        with store.lock(key, timeout_seconds=2 * self.limits.seconds + 300.0):
            # another process may have been quicker
            found = self._load(store, key, is_final=False)
            if found is not None:
                return found
            self._explain_miss(store, key)
            if self.engine != "auto":
                return self._make_by_name(store, key)
            try:
                return self._make_by_tuning(store, key)
            except Exception as error:  # such as too little memory for what all candidates share
                self._add_finding(failure_finding(Variant("auto"), error))
                return self._fall_back_to_replay()

    def _explain_miss(self, store: ExecutableStore, key: ExecutableKey) -> None:
        """Note what has changed since an executable of the same model was kept, if there is one."""
        places = {place[0] for place in key.explained.get("places", ()) if place}
        self.sources = record_sources(sorted(places))
        miss = explain_miss(store, key, sources=self.sources)
        if miss is not None:
            self.because = miss.to_dicts()
            self._add_finding(miss.to_finding())

    def _make_by_tuning(self, store: ExecutableStore, key: ExecutableKey) -> Obtained:
        began = time.perf_counter()
        with TemporaryFolder() as folder:
            tuned = tune(
                self.graph,
                self.request,
                self.make_trial(),
                folder=folder.path,
                limits=self.limits,
                known_failures=store.list_failures(key),
                report=self._add_finding,
                note_failure=lambda candidate, reason: store.note_failure(key, candidate, reason),
            )
            return_freed_memory()  # that of the candidates
            self._add_seconds("compile", began)
            variant = tuned.report.chosen
            _logger.info("engine: %s", tuned.report.summary)
            # what stood in the way of the other candidates may be gone tomorrow
            if not tuned.report.notes:
                self._keep(store, key, variant, tuned.folder, tuned.report)
            folder.leave_to(tuned.executable)
        origin = "replay" if variant.engine == "replay" else "compiled"
        return self._describe_result(tuned.executable, tuned.graph, variant=variant, origin=origin, tuning=tuned.report)

    def _make_by_name(self, store: Optional[ExecutableStore], key: ExecutableKey) -> Obtained:
        """Make the executable of one engine; without a `store` it is of a kind that no file can hold."""
        variant = Variant(self.engine)
        known = {} if store is None else store.list_failures(key)
        if variant.label in known:
            error = _RememberedError(f"{known[variant.label]} (remembered from an earlier attempt)")
            self._add_finding(failure_finding(variant, error))
            return self._fall_back_to_replay()
        began = time.perf_counter()
        try:
            with TemporaryFolder() as folder:
                executable = self._compile(variant, folder.path)
                parity = compare_with_replay(
                    executable, self.graph, graph=self.graph, request=self.request, trial=self.make_trial()
                )
                if not parity.holds:
                    self._add_finding(parity_finding(variant, parity.difference))
                    if store is not None:
                        store.note_failure(key, variant.label, f"it computes something else: {parity.difference}")
                    return self._fall_back_to_replay()
                self._add_seconds("compile", began)
                if store is not None:
                    self._keep(store, key, variant, folder.path / "programs", None)
                folder.leave_to(executable)
        except Exception as error:
            self._handle_failure(store, key, variant, error)
            return self._fall_back_to_replay()
        return self._describe_result(executable, self.graph, variant=variant, origin="compiled")

    def _compile(self, variant: Variant, folder: Path) -> Executable:
        engine: Any = load_engine(variant.engine)
        request = replace(self.request, variant=variant)
        if not is_compiling(engine):
            built: Executable = engine(self.graph, request)
            return built
        programs = folder / "programs"
        programs.mkdir()
        limits = CompileLimits(seconds=self.limits.compile_seconds)
        engine.compile(self.graph, request, programs, limits=limits, progress=_ignore_progress)
        loaded: Executable = engine.load(self.graph, request, programs)
        return loaded

    def _handle_failure(
        self, store: Optional[ExecutableStore], key: ExecutableKey, variant: Variant, error: Exception
    ) -> None:
        _logger.debug("the engine %s failed", variant.engine, exc_info=error)
        self._add_finding(failure_finding(variant, error))
        # to find out that a step needs replay takes no time, and there may be memory and room tomorrow
        if store is not None and not isinstance(error, NotCompilable) and is_lasting(error):
            store.note_failure(key, variant.label, failure_reason(error))

    def _keep(
        self,
        store: ExecutableStore,
        key: ExecutableKey,
        variant: Variant,
        folder: Optional[Path],
        tuning: Optional[TuningReport],
    ) -> None:
        content: Dict[str, Any] = {
            "choice": variant.to_dict(),
            "speed_up": None if tuning is None else tuning.speed_up,
            "tuning": None if tuning is None else tuning.to_dict(),
            "times": dict(self.seconds),
        }
        with tempfile.TemporaryDirectory(prefix="porting-") as empty:
            files = Path(empty) if folder is None else folder
            store.keep(key, files, content, sources=self.sources, because=self.because, replace=self.replaces)

    # -- results -----------------------------------------------------------------------------------------------------

    def _fall_back_to_replay(self) -> Obtained:
        return self._describe_result(build_replay(self.graph, self.request), self.graph)

    def _describe_result(
        self,
        executable: Executable,
        graph: StepGraph,
        *,
        variant: Optional[Variant] = None,
        origin: str = "replay",
        tuning: Optional[TuningReport] = None,
    ) -> Obtained:
        return Obtained(
            executable,
            graph,
            engine=self.engine,
            variant=variant or Variant(),
            origin=origin,
            cache=self.cache,
            tuning=tuning,
            seconds=dict(self.seconds),
            findings=tuple(self.findings),
        )

    def _add_seconds(self, what: str, began: float) -> None:
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - began


class _RememberedError(Exception):
    """What failed in an earlier process."""

    kind = "remembered"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def _ignore_progress(_seconds: float) -> None:
    """Show nobody how far the compiler is."""


def _list_compiling_engines() -> List[str]:
    """Return the engines whose executables a store can hold; others of other packages are not imported to find out."""
    return [name for name in engine_names() if name != "replay"]


def _describe_damage(entry: Entry, error: Exception) -> Finding:
    return Finding(
        "E005",
        message=f"the executable {entry.digest[:8]} on disk cannot be loaded: {type(error).__name__}: {error}",
        notes="it is removed and counts as missing",
    )
