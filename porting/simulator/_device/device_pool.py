"""The simulated IPUs of this process as a limited supply, for programs whose devices count as hardware.

Each executor that is attached holds a `Claim` on some IPUs; `release` gives them back, and so does the collection of
a forgotten executor. Without hardware (the default) there is no shortage, and nothing is claimed.
"""

from __future__ import annotations

import gc
import os
import threading
from typing import List, Optional, Sequence, Set, Tuple

from .._logging import cpp_log
from ..errors import native_error
from ..options import Options
from .device_target import counts_as_hardware, num_simulated_ipus

__all__ = ["Claim", "claim_device", "device_table", "refusal", "reserved_ipus", "waits_for_ipus"]

# A waiting executor looks again this often: an executor that is garbage gives its IPUs back without a word.
_SECONDS_BETWEEN_LOOKS = 1.0

# Re-entrant, because a claim may be collected, and so released, while this thread holds it.
_changed = threading.Condition(threading.RLock())
_taken: Set[int] = set()


class Claim:
    """Some IPUs that one executor holds."""

    def __init__(self, ipus: Sequence[int]) -> None:
        """Hold the IPUs with these numbers, which are marked as taken."""
        self.ipus = tuple(ipus)
        self._is_held = True

    def release(self) -> None:
        """Give the IPUs back; a second time does nothing."""
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
    wanted = reserved_ipus(num_ipus, may_round=options.auto_round_num_ipus)
    device_id = options.ipu_id if options.exists("ipu_id") else None
    table = device_table(num_simulated_ipus())
    # a device of the table that has another size than the model needs cannot be had by its number either
    chosen = table if device_id is None else table[device_id : device_id + 1] if device_id >= 0 else []
    candidates = [ipus for ipus in chosen if len(ipus) == wanted]
    has_warned = False
    with _changed:
        while True:
            ipus = _find_free(candidates)
            # Executors that nobody can reach any more may still hold theirs.
            if ipus is None and gc.collect():
                ipus = _find_free(candidates)
            if ipus is not None:
                _taken.update(ipus)
                return Claim(ipus)
            if not candidates or not waits_for_ipus():
                total = num_simulated_ipus()
                reason = f"the simulated machine has {total} (PORTING_SIM_IPUS), {len(_taken)} of them attached"
                if device_id is None:
                    raise native_error(refusal(f"{wanted} IPU(s)", reason))
                what = f"device Id {device_id} with {wanted} IPU(s)"
                raise native_error(refusal(what, f"maybe the device is already attached? {reason}"))
            if not has_warned:
                cpp_log("warning", "No IPU available, sleeping until one is free (POPTORCH_WAIT_FOR_IPU is set)")
                has_warned = True
            _changed.wait(_SECONDS_BETWEEN_LOOKS)


def _find_free(candidates: Sequence[Tuple[int, ...]]) -> Optional[Tuple[int, ...]]:
    return next((ipus for ipus in candidates if _taken.isdisjoint(ipus)), None)


def waits_for_ipus() -> bool:
    """Tell whether the environment says that executors wait for IPUs that others hold."""
    return os.environ.get("POPTORCH_WAIT_FOR_IPU", "0").strip() not in ("", "0")


def refusal(what: str, reason: str) -> str:
    """Return the message for a device that cannot be had."""
    return f"Failed to acquire {what}: {reason}"


def reserved_ipus(num_ipus: int, *, may_round: bool) -> int:
    """Return how many IPUs are reserved for a model on `num_ipus`: a power of two.

    Raises `poptorch.Error` if that is another number and the options do not allow to round.

    >>> reserved_ipus(3, may_round=True)
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


def device_table(num_ipus: int) -> List[Tuple[int, ...]]:
    """Return the IPUs behind each device number: first every single one, then the pairs, the fours and so on.

    >>> device_table(4)
    [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 1, 2, 3)]
    """
    table: List[Tuple[int, ...]] = []
    size = 1
    while size <= num_ipus:
        table.extend(tuple(range(first, first + size)) for first in range(0, num_ipus - size + 1, size))
        size *= 2
    return table
