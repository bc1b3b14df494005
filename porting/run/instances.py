"""Start several instances of one program, as the vendor's `poprun` does: each is a process with its own replicas.

This module also chooses between the vendor's PopTorch and the simulator, and sets the environment for the choice.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Dict, Iterator, List, Mapping, Optional, Sequence

from porting.aliases import VENDOR
from porting.support.process import signal_with_parent, usable_cores

__all__ = ["InstancePlan", "is_simulated", "run_instances", "simulated_environment", "vendor_environment"]

# Instances that lose their partner end by themselves, with an error worth reading.
_GRACE_SECONDS = 5.0
_SECONDS_TO_STOP = 10.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class InstancePlan:
    """The number of processes, the number of replicas of all of them together, and the IPUs of a replica.

    Without `ipus_per_replica` the program decides how many IPUs a replica takes.

    >>> plan = InstancePlan(num_instances=2, num_replicas=4)
    >>> plan.variables(1)["POPDIST_REPLICA_INDEX_OFFSET"], plan.variables(1)["OMPI_COMM_WORLD_RANK"]
    ('2', '1')
    """

    num_instances: int
    num_replicas: int
    ipus_per_replica: Optional[int] = None

    @property
    def replicas_per_instance(self) -> int:
        """Replicas of each process."""
        return self.num_replicas // self.num_instances

    def variables(self, index: int) -> Dict[str, str]:
        """Return the environment variables that tell instance `index` its place, by the vendor's and MPI's names."""
        size = self.num_instances
        values = {
            "OMPI_COMM_WORLD_SIZE": size,
            "OMPI_COMM_WORLD_RANK": index,
            "OMPI_COMM_WORLD_LOCAL_SIZE": size,
            "OMPI_COMM_WORLD_LOCAL_RANK": index,
            "POPDIST_LOCAL_INSTANCE_INDEX": index,
            "POPDIST_NUM_TOTAL_REPLICAS": self.num_replicas,
            "POPDIST_NUM_LOCAL_REPLICAS": self.replicas_per_instance,
            "POPDIST_REPLICA_INDEX_OFFSET": index * self.replicas_per_instance,
            "POPDIST_UNIFORM_REPLICAS_PER_INSTANCE": 1,
        }
        if self.ipus_per_replica is not None:
            values["POPDIST_NUM_IPUS_PER_REPLICA"] = self.ipus_per_replica
        return {name: str(value) for name, value in values.items()}


def run_instances(command: Sequence[str], plan: InstancePlan, environment: Mapping[str, str]) -> int:
    """Run `command` once for each instance and return the status of the first that failed, else 0.

    The first instance gets this process's stdin. When one fails the others get a moment to end with an error of their
    own, then they are stopped, as they are when this process is interrupted or terminated.
    """
    with tempfile.TemporaryDirectory(prefix="porting-run-") as folder:
        shared = {**environment, "PORTING_RENDEZVOUS": str(Path(folder) / "rendezvous")}
        # by default every process would start a thread for each core, and all would wait for one another
        shared.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // plan.num_instances)))
        processes: List[subprocess.Popen[bytes]] = []
        with _exit_on_sigterm():
            try:
                for index in range(plan.num_instances):
                    stdin = None if index == 0 else subprocess.DEVNULL
                    variables = {**shared, **plan.variables(index)}
                    processes.append(
                        subprocess.Popen(list(command), env=variables, stdin=stdin, preexec_fn=_end_with_launcher)
                    )
                return _wait_for_instances(processes)
            except KeyboardInterrupt:
                # the terminal has interrupted the instances too: let them clean up
                _wait_until_ended(processes, _GRACE_SECONDS)
                raise
            finally:
                _stop_instances(processes)


def _end_with_launcher() -> None:
    """Let this new process end when its parent has ended, even if that was killed."""
    signal_with_parent(signal.SIGTERM)


def _wait_for_instances(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """Return 0 when all have ended well; when one fails, report that and return its status."""
    failed: Optional[int] = None
    while failed is None:
        failed = next((index for index, process in enumerate(processes) if process.poll()), None)
        if failed is None and all(process.returncode == 0 for process in processes):
            return 0
        time.sleep(_POLL_SECONDS)
    status = processes[failed].returncode
    _wait_until_ended(processes, _GRACE_SECONDS)
    stopped = [index for index, process in enumerate(processes) if process.poll() is None]
    # real-time signals between the first and the last have only a number
    known = {number.value: number.name for number in signal.Signals}
    reason = f"signal {known.get(-status, -status)}" if status < 0 else f"status {status}"
    message = f"porting run: instance {failed} (of 0 to {len(processes) - 1}) ended with {reason}"
    if stopped:
        message += f"; stopping {', '.join(f'instance {index}' for index in stopped)}"
    print(message, file=sys.stderr, flush=True)  # noqa: T201
    return 128 - status if status < 0 else status


def _stop_instances(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    # a process that has ended gets no signal
    for process in processes:
        process.terminate()
    _wait_until_ended(processes, _SECONDS_TO_STOP)
    for process in processes:
        process.kill()
        process.wait()


def _wait_until_ended(processes: Sequence[subprocess.Popen[bytes]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """Leave through `SystemExit` when this process is asked to terminate, so that the instances are stopped too."""
    # only a process's first thread may say what a signal does: in others the program's own answer stays
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _frame: Optional[FrameType]) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


_BOOTSTRAP = str(Path(__file__).parent / "bootstrap")
_COUNTED_AS_HARDWARE = "PORTING_SIM_HARDWARE"


def is_simulated(device: str) -> bool:
    """Tell whether `device` ("auto", "ipu" or "sim") means the simulator here; see `porting.options`.

    Raises DeviceError D001 when "ipu" is demanded and there is none, OptionError P005 for an unknown value of the
    environment variable PORTING_DEVICE.
    """
    asked = device if device != "auto" else os.environ.get("PORTING_DEVICE", "").strip().lower() or "auto"
    # the usual answers need no torch, which takes seconds to load
    if asked == "sim" or (asked == "auto" and any(importlib.util.find_spec(name) is None for name in VENDOR)):
        return True
    from porting.adapters.backends import find_backend

    return find_backend(device, simulator=lambda: None).is_simulator


def simulated_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """Return `environment` with the simulator under the vendor's name, counted as hardware unless that was set.

    >>> simulated_environment({"PORTING_SIM_HARDWARE": "0"})["PORTING_SIM_HARDWARE"]
    '0'
    """
    changed = vendor_environment(environment)
    changed["PYTHONPATH"] = os.pathsep.join([_BOOTSTRAP, *_list_folders(changed)])
    changed.setdefault(_COUNTED_AS_HARDWARE, "1")
    return changed


def vendor_environment(environment: Mapping[str, str]) -> Dict[str, str]:
    """Return `environment` without what an outer simulated program has added to `PYTHONPATH`."""
    changed = dict(environment)
    folders = _list_folders(changed)
    if _BOOTSTRAP in folders:
        changed["PYTHONPATH"] = os.pathsep.join(folder for folder in folders if folder != _BOOTSTRAP)
    return changed


def _list_folders(environment: Mapping[str, str]) -> List[str]:
    path = environment.get("PYTHONPATH", "")
    return path.split(os.pathsep) if path else []
