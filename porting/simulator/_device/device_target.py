"""Choose a model's device: the simulator's, simulated IPUs that count as hardware, the IPU model, or an absent one.

The environment decides, as it does for PopTorch:

* ``POPTORCH_IPU_MODEL``, ``POPTORCH_SMALL_IPU_MODEL``: non-zero asks for the IPU model, whose generation
  ``POPTORCH_IPU_MODEL_VERSION`` names; ``Options.useIpuModel`` has the last word. It computes like any device here.
* ``PORTING_SIM_HARDWARE``: ``1`` or ``bow`` makes the simulated devices count as hardware for this program;
  ``gc200`` (or ``2``) names the older generation. ``PORTING_SIM_IPUS`` says how many there are, 64 by default.
"""

from __future__ import annotations

import os

from .._logging import cpp_log
from ..enums import ConnectionType
from ..errors import native_error
from ..options import Options

__all__ = [
    "CLOCK_HERTZ",
    "check_target",
    "counts_as_hardware",
    "find_hardware_version",
    "is_offline",
    "num_simulated_ipus",
    "read_simulated_version",
    "refuse_to_run",
    "uses_ipu_model",
]

# The clock of the IPUs by architecture, from the vendor's data sheets: GC200 and Bow.
CLOCK_HERTZ = {2: 1.33e9, 21: 1.85e9}
# A Pod64: as many as one process can use.
_DEFAULT_NUM_IPUS = 64
_GC200, _BOW = 2, 21
_VERSIONS = {
    **dict.fromkeys(["", "0"], 0),
    **dict.fromkeys(["1", "bow", "21", "ipu21"], _BOW),
    **dict.fromkeys(["2", "gc200", "ipu2", "mk2"], _GC200),
}
# The generations that the IPU model can be asked to imitate.
_MODEL_VERSIONS = ("ipu1", "ipu2", "ipu21")


def is_offline(options: Options) -> bool:
    """Tell whether the model is compiled for a device that is not there."""
    return bool(options.connection_type == ConnectionType.Never)


def uses_ipu_model(options: Options) -> bool:
    """Tell whether the IPU model is asked for: the option decides, and the environment where it is not set."""
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
    if _find_model_variable() or num_ipus > num_simulated_ipus():
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


def num_simulated_ipus() -> int:
    """Return how many simulated IPUs the machine has."""
    text = os.environ.get("PORTING_SIM_IPUS", "")
    if not text:
        return _DEFAULT_NUM_IPUS
    if not text.isdigit() or int(text) < 1:
        raise native_error(f"PORTING_SIM_IPUS must be a number of IPUs from 1 on, got {text!r}")
    return int(text)


def check_target(options: Options) -> None:
    """Raise `poptorch.Error` for settings of the device that contradict each other; log what decided about the model.

    Caching, which the IPU model does not have, is a warning.
    """
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
    """Return the variable that asks for the IPU model; the full model goes before the small one."""
    names = ("POPTORCH_IPU_MODEL", "POPTORCH_SMALL_IPU_MODEL")
    return next((name for name in names if os.environ.get(name, "0").strip() not in ("", "0")), "")
