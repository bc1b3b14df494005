"""This module starts child processes, waits for their results, and says how they ended.

Each case is measured in one, so that a case that fails, hangs or dies stops no other.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Dict, Mapping, Optional

from porting.bench.choices import BenchSettings, Choices
from porting.support.bound_process import BoundProcess, make_environment
from porting.support.process_outcomes import Outcome, Progress, describe_end, wait_for_outcome

__all__ = ["Case", "Child", "ChildError", "run_case"]


@dataclass(frozen=True)
class Case:
    """One measurement: a target with choices and settings.

    `loader` and `arguments` say how a process makes the workload (see `Source`), `dataset_loader` and its arguments
    how it gets the data, if not from the batch. `demanded` is the speed-up that is asked for.
    """

    name: str
    target: str
    loader: str
    arguments: Mapping[str, Any]
    choices: Choices = field(default_factory=Choices)
    settings: BenchSettings = field(default_factory=BenchSettings)
    repeat: int = 1
    demanded: Optional[float] = None
    dataset_loader: Optional[str] = None
    dataset_arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def num_threads(self) -> int:
        """How many threads it computes in."""
        return self.settings.threads or 1

    def record(
        self, status: str, *, result: Optional[Mapping[str, Any]] = None, reason: str = "", seconds: float = 0.0
    ) -> Dict[str, Any]:
        """Return the case as it stands in a result file."""
        return {
            "name": self.name,
            "target": self.target,
            "choices": asdict(self.choices),
            "repeat": self.repeat,
            "status": status,
            "reason": reason,
            "seconds": seconds,
            "demanded": self.demanded,
            "result": result,
        }


def run_case(
    case: Case,
    *,
    cache_dir: Optional[str],
    timeout: Optional[float],
    progress: Progress = lambda _text, _share: None,
    folder: Optional[str] = None,
) -> Dict[str, Any]:
    """Measure a case in a child process and return its record, even if the process fails or dies.

    Without `cache_dir`, executables go to a folder that is deleted afterwards: compiling is measured cold. `timeout` is
    in seconds. The process works in `folder`, or in that of this one. What `progress` raises ends it and is passed on,
    as an interrupt is.
    """
    task = {
        "source": {"loader": case.loader, "arguments": {**case.arguments, "cache_dir": cache_dir}},
        "dataset": [case.dataset_loader, dict(case.dataset_arguments)] if case.dataset_loader else None,
        "settings": case.settings.to_dict(),
    }
    start = time.perf_counter()
    with Child("case", task, folder=folder) as child:
        status, reason, result = child.wait(timeout, progress)
        return case.record(status, result=result, reason=reason, seconds=time.perf_counter() - start)


class ChildError(RuntimeError):
    """A process ended without a result; the text says how."""


class Child:
    """A process that does one job of `porting.bench.child`; it ends with the context, and all that it has started.

    With `is_asked` it answers questions.
    """

    def __init__(
        self,
        job: str,
        task: Mapping[str, Any],
        *,
        environment: Optional[Mapping[str, str]] = None,
        folder: Optional[str] = None,
        is_asked: bool = False,
    ) -> None:
        """Start the process, in a folder, or in that of this one."""
        self._subject = f"{task['side']}: the process" if "side" in task else "the process"
        self._questions, answers = multiprocessing.Pipe()
        self.process = BoundProcess(
            "porting.bench.child:do_job",
            {"job": job, "started": time.time(), "answers": answers.fileno(), **task},
            working_folder=folder or os.getcwd(),
            environment=make_environment() if environment is None else environment,
            passed=[answers.fileno()] if is_asked else [],
        )
        try:
            self.process.start()
        except BaseException:
            self.process.end()
            raise
        finally:
            # the end of the process is to be the end of the answers
            answers.close()

    def wait(self, timeout: Optional[float] = None, progress: Progress = lambda _text, _share: None) -> Outcome:
        """Wait for the end of the process and pass its progress on; say what became of it."""
        return wait_for_outcome(self.process, timeout, progress)

    def ask(self, question: Optional[int] = None) -> Any:
        """Ask the process, if anything is asked, and return its next answer; raises ChildError when it ends instead."""
        try:
            if question is not None:
                self._questions.send(question)
            return self._questions.recv()
        except (EOFError, OSError):
            raise ChildError(f"{self._subject} {describe_end(self.process)}") from None

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_error: object) -> None:
        """End the process and remove its folder."""
        self._questions.close()
        self.process.end()
