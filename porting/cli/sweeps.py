"""A cluster runs the cases of a sweep: some processes of this machine at a time, or the workers of Ray or Dask.

`--on` of `porting bench`, `verify` and `recipe run` names it. Wherever a case runs, it has a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import os
import platform
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Protocol, Sequence, Tuple

from tqdm import tqdm

from porting.cli import count
from porting.diagnostics import PortingError, require_extra
from porting.executables.folders import lock_file
from porting.support.process_outcomes import Progress

__all__ = ["ON_HELP", "Case", "Cluster", "hold_results", "parse_cluster", "run_sweep", "run_there", "tell_sweep"]

_LOOK_SECONDS = 0.1


class Case(Protocol):
    """What a sweep runs once: a dataclass, which other machines get as it is."""

    @property
    def num_threads(self) -> int:
        """How many threads it computes in."""

    def record(self, status: str, *, reason: str = "") -> Dict[str, Any]:
        """Return the case as the results have it."""


Start = Callable[[Case, Optional[float], Progress], Any]
"""Has a case run, for at most so many seconds, and returns its future; other machines do not tell progress."""

Run = Callable[..., Dict[str, Any]]
"""Runs a case in a process and returns its record; other machines import it by its name."""

Told = Mapping[str, Any]
"""What `run` is told besides the case and its time."""

ON_HELP = "local:N for N cases at a time, ray://HOST:PORT, ray://auto or dask://HOST:PORT (default: local:1)"
"""The help of `--on`."""


class Cluster(NamedTuple):
    """What runs cases: `kind` is local, ray or dask, and `where` a number of processes or an address."""

    kind: str = "local"
    where: str = "1"

    def __str__(self) -> str:
        return f"{self.kind}{':' if self.kind == 'local' else '://'}{self.where}"


def parse_cluster(text: str) -> Cluster:
    """Read what `--on` is given.

    >>> parse_cluster("local:2"), parse_cluster("dask://node1:8786")
    (Cluster(kind='local', where='2'), Cluster(kind='dask', where='node1:8786'))
    """
    kind, _, where = text.partition("://" if "://" in text else ":")
    with contextlib.suppress(argparse.ArgumentTypeError):
        if str(Cluster(kind, where)) == text and (count(where) if kind == "local" else where and kind in _OPENERS):
            return Cluster(kind, where)
    raise argparse.ArgumentTypeError("write local:N, ray://HOST:PORT, ray://auto or dask://HOST:PORT")


@contextlib.contextmanager
def hold_results(path: Optional[Path], verb: str) -> Iterator[None]:
    """Keep other runs from a file while this one writes its results there; raises PortingError T008 where one does."""
    with contextlib.ExitStack() as stack:
        # devices are written as they are, and some file systems have no locks
        if path is not None and (path.is_file() or not path.exists()):
            with contextlib.suppress(OSError):
                if not stack.enter_context(lock_file(path.with_name(f".{path.name}.lock"), timeout_seconds=0)):
                    raise PortingError.of(
                        "T008",
                        message=f"another run of `porting {verb}` writes its results into `{path}`",
                        help="wait for its end, or name another file",
                    )
        yield


def tell_sweep(
    cluster: Cluster,
    titles: Sequence[str],
    waiting: Mapping[int, Tuple[Case, Optional[float]]],
    run: Run,
    *,
    told: Told,
    sweep: str,
    put: Callable[[int, Dict[str, Any]], str],
) -> bool:
    """Run the cases that wait, of those with these titles, and say how far it is; return whether an interrupt ended it.

    `put` gets each record and says in some words what it has. A terminal gets a progress bar, a log a line each.
    """

    def tell(index: int, outcome: str) -> None:
        if bar.disable:
            print(f"[{index + 1}/{len(titles)}] {titles[index]}: {outcome}", file=sys.stderr, flush=True)

    def look(under_way: Mapping[int, str], still: float) -> None:
        doing = (f"{titles[index]}: {text}" for index, text in under_way.items())
        bar.set_description_str("; ".join(doing) or str(cluster), refresh=False)
        bar.n = len(titles) - still
        bar.refresh()

    with tqdm(total=len(titles), disable=None, bar_format="{desc} |{bar:20}| {percentage:3.0f}% [{elapsed}]") as bar:
        for index in sorted(set(range(len(titles))) - set(waiting)):
            tell(index, "done already")
        try:
            run_sweep(
                cluster,
                waiting,
                run,
                told=told,
                sweep=sweep,
                put=lambda index, record: tell(index, put(index, record)),
                look=look,
            )
        except KeyboardInterrupt:
            return True
    return False


def run_sweep(
    cluster: Cluster,
    cases: Mapping[int, Tuple[Case, Optional[float]]],
    run: Run,
    *,
    told: Told,
    sweep: str,
    put: Callable[[int, Dict[str, Any]], None],
    look: Callable[[Mapping[int, str], float], None],
) -> None:
    """Run each of the numbered cases once, for at most so many seconds; `put` gets a record as soon as it is there.

    `run` gets a case and what it is `told`. `sweep` is a name that a sweep keeps when it goes on after a kill. `look`
    is told over and over what the cases under way do, and how many cases are still to be done. What still runs after
    an error or an interrupt is ended. Raises PortingError T007 for a cluster that does not answer, X001 where its
    library is not installed.
    """
    told = {"folder": os.getcwd(), **told}
    progress: Dict[int, Tuple[str, float]] = {}
    started: Dict[int, Any] = {}
    here = cluster.kind == "local"
    opened = _run_here(int(cluster.where), run, told) if here else _OPENERS[cluster.kind](cluster, run, told, sweep)
    try:
        with opened as start:
            for number, (case, timeout) in cases.items():
                started[number] = start(case, timeout, functools.partial(_note_progress, progress, number))
            while started:
                for number in [number for number, case in started.items() if case.done()]:
                    put(number, started[number].result())
                    del started[number]
                under_way = {number: progress[number] for number in started if number in progress}
                still = len(started) - sum(share for _text, share in under_way.values())
                look({number: text for number, (text, _share) in under_way.items()}, still)
                time.sleep(_LOOK_SECONDS)
    except KeyboardInterrupt:
        for number in progress:
            if number in started:
                put(number, cases[number][0].record("interrupted", reason="Ctrl-C"))
        raise


def _note_progress(progress: Dict[int, Tuple[str, float]], number: int, text: str, share: float) -> None:
    progress[number] = text, share


# -- this machine ------------------------------------------------------------------------------------------------------


class _StoppedError(KeyboardInterrupt):
    """The sweep ends, or another of its cases was interrupted."""


@contextlib.contextmanager
def _run_here(number: int, run: Run, told: Told) -> Iterator[Start]:
    """Run so many cases at a time; a thread waits for each process."""
    stopped = threading.Event()

    def run_watched(case: Case, timeout: Optional[float], progress: Progress) -> Any:
        def watch(text: str, share: float) -> None:
            if stopped.is_set():
                raise _StoppedError
            progress(text, share)

        try:
            watch("starting", 0.0)
            return run(case, timeout=timeout, progress=watch, **told)
        except KeyboardInterrupt:
            stopped.set()
            raise

    with ThreadPoolExecutor(number) as pool:
        try:
            yield lambda case, timeout, progress: pool.submit(run_watched, case, timeout, progress)
        finally:
            stopped.set()


# -- other machines ----------------------------------------------------------------------------------------------------


def run_there(run: Run, case: Case, *, folder: str, **told: Any) -> Dict[str, Any]:
    """Run a case on a machine of a cluster, in the folder in which the sweep was started."""
    if not os.path.isdir(folder):
        return case.record("failed", reason=f"the machine {platform.node()} has no folder {folder}")
    return run(case, folder=folder, **told)


class _FarCase(NamedTuple):
    """A case that other machines run; one that is lost with its worker has failed."""

    case: Case
    future: Any

    def done(self) -> bool:
        return bool(self.future.done())

    def result(self) -> Any:
        try:
            return self.future.result()
        except Exception as error:  # those of a lost worker are the library's own; further lines are its traces
            said = str(error).strip().partition("\n")[0]
            return self.case.record("failed", reason=f"{type(error).__name__}: {said}")


@contextlib.contextmanager
def _refuse_silence(cluster: Cluster) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # each library has its own
        raise PortingError.of(
            "T007",
            message=f"the cluster `{cluster}` does not answer",
            notes=f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}",
            help=("start it, or name the address that it has printed", "`--on local:2` needs none"),
        ) from error


@contextlib.contextmanager
def _open_ray(cluster: Cluster, run: Run, told: Told, _sweep: str) -> Iterator[Start]:
    """Use a Ray cluster, whose tasks end with this program."""
    ray = require_extra("ray", extra="ray", message=f"`{cluster}` is named, and ray is not installed")
    with _refuse_silence(cluster):
        ray.init(address="auto" if cluster.where == "auto" else str(cluster), log_to_driver=False)
    remote = ray.remote(run_there)

    def start(case: Case, timeout: Optional[float], _progress: Progress) -> Any:
        # not again where a worker is lost: the case may be what has ended it
        task = remote.options(max_retries=0, num_cpus=case.num_threads)
        return _FarCase(case, task.remote(run, case, timeout=timeout, **told).future())

    try:
        yield start
    finally:
        ray.shutdown()


@contextlib.contextmanager
def _open_dask(cluster: Cluster, run: Run, told: Told, sweep: str) -> Iterator[Start]:
    """Use a Dask cluster, whose scheduler keeps cases and their records when this program is killed.

    The sweep that goes on gets them there by their keys, in which its name is.
    """
    dask = require_extra("distributed", extra="dask", message=f"`{cluster}` is named, and dask is not installed")
    with _refuse_silence(cluster):
        # it waits for as long as Dask's own setting says, `distributed.comm.timeouts.connect`
        client = dask.Client(cluster.where)
    futures: Dict[str, Any] = {}
    prefix = f"porting-{sweep}-"
    with client:
        kept = set(client.list_datasets())

        def start(case: Case, timeout: Optional[float], _progress: Progress) -> Any:
            key = f"{prefix}{zlib.crc32(repr(case).encode()):08x}"
            mark = _name_mark(key)
            if key not in kept:
                # a sweep that was killed may have begun it, of which the scheduler kept no more than this mark
                dask.Event(mark).clear()
            futures[key] = client.submit(_run_once, run, case, mark, timeout=timeout, **told, key=key, pure=False)
            client.publish_dataset(futures[key], name=key, override=True)
            return _FarCase(case, futures[key])

        try:
            yield start
        finally:
            with contextlib.suppress(OSError):  # a scheduler that is lost has forgotten them
                client.cancel([*futures.values()], force=True)
                # those too that were done before the sweep was killed
                for key in (name for name in client.list_datasets() if str(name).startswith(prefix)):
                    client.unpublish_dataset(key)
                    dask.Event(_name_mark(key)).clear()


def _name_mark(key: str) -> str:
    """Name the mark that a case was begun; older versions take an argument that is a key for the result of its task."""
    return f"begun-{key}"


def _run_once(run: Run, case: Case, mark: str, **told: Any) -> Dict[str, Any]:
    """Run a case that no worker has begun: the scheduler gives those of a lost worker to another one."""
    begun = importlib.import_module("distributed").Event(mark)
    if begun.is_set():
        return case.record("failed", reason="the worker that had begun it was lost")
    begun.set()
    return run_there(run, case, **told)


_OPENERS: Mapping[str, Callable[[Cluster, Run, Told, str], Any]] = {"ray": _open_ray, "dask": _open_dask}
