"""Choose a model's device, and count simulated IPUs where they stand for hardware.

Sessions, performance counters and checks of the graph use it. A device is the simulator's, some simulated IPUs, the IPU
model, or one that is not there. An executor that is attached to simulated IPUs holds a `Claim` on them until it
releases it or is collected. Without hardware (the default) there is no shortage, and nothing is claimed.

The environment decides, as it does for PopTorch:

* ``POPTORCH_IPU_MODEL``, ``POPTORCH_SMALL_IPU_MODEL``: non-zero chooses the IPU model, whose generation
  ``POPTORCH_IPU_MODEL_VERSION`` names; ``Options.useIpuModel`` has the last word. It computes like any device here.
* ``PORTING_SIM_HARDWARE``: ``1`` or ``bow`` makes the simulated devices count as hardware for this program;
  ``gc200`` (or ``2``) names the older generation. ``PORTING_SIM_IPUS`` says how many there are, 64 by default.
"""

from __future__ import annotations

import gc
import os
import threading
from typing import List, Optional, Sequence, Set, Tuple

from .._logging import cpp_log
from ..enums import ConnectionType
from ..errors import native_error
from ..options import Options

__all__ = [
    "CLOCK_HERTZ",
    "Claim",
    "check_target",
    "claim_device",
    "count_reserved_ipus",
    "count_simulated_ipus",
    "counts_as_hardware",
    "find_hardware_version",
    "is_offline",
    "list_devices",
    "read_simulated_version",
    "refuse_to_run",
    "uses_ipu_model",
    "waits_for_ipus",
    "write_refusal",
]

# The clock of the IPUs by architecture, from the vendor's data sheets: GC200 and Bow.
CLOCK_HERTZ = {2: 1.33e9, 21: 1.85e9}
# A Pod64: as many as one process can use.
_DEFAULT_NUM_IPUS = 64
_VERSIONS = {
    **dict.fromkeys(["", "0"], 0),
    **dict.fromkeys(["1", "bow", "21", "ipu21"], 21),
    **dict.fromkeys(["2", "gc200", "ipu2", "mk2"], 2),
}
# The generations that the IPU model can be asked to imitate.
_MODEL_VERSIONS = ("ipu1", "ipu2", "ipu21")
# A waiting executor looks again this often: a collected executor releases its IPUs without notice.
_SECONDS_BETWEEN_LOOKS = 1.0

# Re-entrant, because a claim may be collected, and so released, while this thread holds it.
_changed = threading.Condition(threading.RLock())
_taken: Set[int] = set()


def is_offline(options: Options) -> bool:
    """Tell whether the model is compiled for a device that is not there."""
    return bool(options.connection_type == ConnectionType.Never)


def uses_ipu_model(options: Options) -> bool:
    """Tell whether the IPU model is chosen: the option decides, and the environment where it is not set."""
    return bool(options.use_model if options.exists("use_model") else _find_model_variable())


def counts_as_hardware(options: Options) -> bool:
    """Tell whether the device of a model with these options is one of the simulated IPUs that count as hardware."""
    return read_simulated_version() != 0 and not uses_ipu_model(options) and not is_offline(options)


def refuse_to_run(options: Options) -> None:
    """Raise AssertionError for an offline device, and `poptorch.Error` for counting cycles without hardware."""
    if is_offline(options):
        raise AssertionError(
            "Trying to run a model on an offline device (ConnectionType.Never): use model.compile(inputs) instead of "
            "model(inputs)"
        )
    # only where it is run: a model that counts cycles can be compiled anywhere
    if options._Popart.options.get("instrumentWithHardwareCycleCounter") and not counts_as_hardware(options):
        raise native_error("Cycle count logging is only supported on actual IPU hardware.")


def find_hardware_version(num_ipus: int = 1) -> int:
    """Return the architecture of the hardware, 21 for Bow and 2 for GC200; 0 without so many IPUs or with a model."""
    if _find_model_variable() or num_ipus > count_simulated_ipus():
        return 0
    return read_simulated_version()


def read_simulated_version() -> int:
    """Return the architecture of the simulated IPUs if they count as hardware, otherwise 0."""
    # read each time: tests and programs set it while they run
    name = os.environ.get("PORTING_SIM_HARDWARE", "").strip().lower()
    if name not in _VERSIONS:
        raise native_error(
            "PORTING_SIM_HARDWARE must be 1 or bow, gc200, or 0 for no hardware, got "
            f"{os.environ['PORTING_SIM_HARDWARE']!r}"
        )
    return _VERSIONS[name]


def count_simulated_ipus() -> int:
    """Return how many simulated IPUs the machine has."""
    text = os.environ.get("PORTING_SIM_IPUS", "")
    if not text:
        return _DEFAULT_NUM_IPUS
    if not text.isdigit() or int(text) < 1:
        raise native_error(f"PORTING_SIM_IPUS must be a number of IPUs from 1 on, got {text!r}")
    return int(text)


def check_target(options: Options) -> None:
    """Raise `poptorch.Error` for contradictory settings; log which setting decided about the IPU model."""
    if uses_ipu_model(options):
        version = os.environ.get("POPTORCH_IPU_MODEL_VERSION") or "ipu2"
        if version not in _MODEL_VERSIONS:
            raise native_error(
                f"Invalid POPTORCH_IPU_MODEL_VERSION {version!r}: valid values are {', '.join(_MODEL_VERSIONS)}"
            )
        if is_offline(options):
            raise native_error(
                "ConnectionType.Never / poptorch.Options.useOfflineIpuTarget not supported for the IPU model"
            )
    if is_offline(options) and options.exists("ipu_id"):
        raise native_error("Offline compilation targeting a specific id not supported")
    if options.exists("use_model"):
        cpp_log("info", f"From the user configuration: Ipu model: {'Enabled' if options.use_model else 'Disabled'}")
    elif _find_model_variable():
        cpp_log("info", f"From {_find_model_variable()} environment variable: Ipu model: Enabled")
    if uses_ipu_model(options) and options._Popart.options.get("enableEngineCaching"):
        cpp_log("warning", "enableExecutableCaching doesn't work with the IPU model")


def _find_model_variable() -> str:
    """Return the variable that chooses the IPU model; the full model goes before the small one."""
    names = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")
    return next(filter(_is_switched_on, names), "")


def _is_switched_on(variable: str) -> bool:
    return os.environ.get(variable, "0").strip() not in ("", "0")


class Claim:
    """Some IPUs that one executor holds."""

    def __init__(self, ipus: Sequence[int]) -> None:
        """Hold the IPUs with these numbers, which are marked as taken."""
        self.ipus = tuple(ipus)
        self._is_held = True

    def release(self) -> None:
        """Release the IPUs; a second call has no effect."""
        with _changed:
            if self._is_held:
                self._is_held = False
                _taken.difference_update(self.ipus)
                _changed.notify_all()

    def __del__(self) -> None:
        if _changed is not None:  # the module may be gone at the end of the process
            self.release()


def claim_device(options: Options, num_ipus: int) -> Optional[Claim]:
    """Take `num_ipus` for an executor, or the device that `Options.useIpuId` names; None if devices are no hardware.

    With a non-zero ``POPTORCH_WAIT_FOR_IPU`` it waits until they are free. Raises `poptorch.Error` if they are not.
    """
    if not counts_as_hardware(options):
        return None
    wanted = count_reserved_ipus(num_ipus, may_round=options.auto_round_num_ipus)
    device_id = options.ipu_id if options.exists("ipu_id") else None
    table = list_devices(count_simulated_ipus())
    # a device of the table that has another size than the model needs cannot be had by its number either
    chosen = table if device_id is None else table[device_id : device_id + 1] if device_id >= 0 else []
    candidates = [ipus for ipus in chosen if len(ipus) == wanted]
    has_warned = False
    with _changed:
        while True:
            ipus = _find_free(candidates)
            # Executors that are garbage may still hold theirs.
            if ipus is None and gc.collect():
                ipus = _find_free(candidates)
            if ipus is not None:
                _taken.update(ipus)
                return Claim(ipus)
            if not candidates or not waits_for_ipus():
                total = count_simulated_ipus()
                reason = f"the simulated machine has {total} (PORTING_SIM_IPUS), {len(_taken)} of them attached"
                if device_id is None:
                    raise native_error(write_refusal(f"{wanted} IPU(s)", reason))
                what = f"device Id {device_id} with {wanted} IPU(s)"
                raise native_error(write_refusal(what, f"maybe the device is already attached? {reason}"))
            if not has_warned:
                cpp_log("warning", "No IPU available, sleeping until one is free (POPTORCH_WAIT_FOR_IPU is set)")
                has_warned = True
            _changed.wait(_SECONDS_BETWEEN_LOOKS)


def _find_free(candidates: Sequence[Tuple[int, ...]]) -> Optional[Tuple[int, ...]]:
    return next((ipus for ipus in candidates if _taken.isdisjoint(ipus)), None)


def waits_for_ipus() -> bool:
    """Tell whether executors wait for IPUs that others hold, by the environment."""
    return _is_switched_on("POPTORCH_WAIT_FOR_IPU")


def write_refusal(what: str, reason: str) -> str:
    """Return the message for a device that cannot be had."""
    return f"Failed to acquire {what}: {reason}"


def count_reserved_ipus(num_ipus: int, *, may_round: bool) -> int:
    """Return how many IPUs are reserved for a model on `num_ipus`: a power of two.

    Raises `poptorch.Error` if that is another number and the options do not allow to round.

    >>> count_reserved_ipus(3, may_round=True)
    4
    """
    # The vendor's machines hand out IPUs in powers of two.
    reserved = 1
    while reserved < num_ipus:
        reserved *= 2
    if reserved != num_ipus and not may_round:
        raise native_error(
            f"The model specifies the use of {num_ipus} IPUs, however PopTorch must reserve a minimum of {reserved} in "
            "order to allow the model to run, because PopTorch must reserve a power of 2 or maximum of 64 IPUs per "
            "process. Please reconfigure your model to use a different number of IPUs or set "
            "poptorch.Options().autoRoundNumIPUs(True)."
        )
    return reserved


def list_devices(num_ipus: int) -> List[Tuple[int, ...]]:
    """Return the IPUs of each device number: first every single one, then the pairs, the fours and so on.

    >>> list_devices(4)
    [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 1, 2, 3)]
    """
    table: List[Tuple[int, ...]] = []
    size = 1
    while size <= num_ipus:
        table.extend(tuple(range(first, first + size)) for first in range(0, num_ipus - size + 1, size))
        size *= 2
    return table
