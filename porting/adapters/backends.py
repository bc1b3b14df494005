"""Find the backend of a port: the vendor's PopTorch where there is an IPU, the simulator elsewhere.

`to_ipu`, `porting run` and the pytest plug-in use it.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Callable, NamedTuple, Optional, Tuple, Union

from porting.adapters.backend_protocol import MODULE_NAMES, Executor, list_missing_names
from porting.diagnostics import DeviceError, Finding, OptionError, join_names
from porting.options import DEVICES, load_backend, read_requested_device

__all__ = ["Backend", "find_backend"]

_VENDOR = "poptorch"
_OWN_PACKAGE = __name__.split(".")[0]
_USE_SIMULATOR = (
    "to run on the CPU simulator pass `device='sim'` (`porting run --device sim`), or set PORTING_DEVICE=sim"
)

# Errors that importing a native package raises where it does not fit: libraries are missing, torch has another version
# (PopTorch asserts its own), or torch no longer has a name.
_IMPORT_FAILURES = (ImportError, AssertionError, AttributeError, OSError, RuntimeError)


@dataclass(frozen=True)
class Backend:
    """A module with PopTorch's API, and the device that it runs on; `finding` tells the user why it was chosen.

    `popdist` is the name of the module that tells a program's instances their places.
    """

    module: Any
    name: str
    is_simulator: bool
    device_description: str
    popdist: str = "popdist"
    finding: Optional[Finding] = None

    def start_at_once(self, executor: Executor) -> None:
        """Compile an executor's step without measuring engines before; an IPU has no choice of them."""
        if self.is_simulator:
            executor.device_session.waits_for_engine = False

    def compiled_step(self, executor: Optional[Executor]) -> Any:
        """Return what the simulator's `executor` has compiled: graph, plan, executable.

        None as long as it has not, and for the vendor's executors, which hand nothing out.
        """
        return executor.device_session.compiled if self.is_simulator and executor is not None else None


def find_backend(device: str = "auto", *, simulator: Union[ModuleType, Callable[[], Any]]) -> Backend:
    """Find the module that `device` asks for: "auto", "ipu", "sim", or the name of a backend (`register_backend`).

    `simulator` is the simulator's module, or a function without arguments that imports and returns it. "auto" takes an
    IPU where there is one and the simulator otherwise: then the note D002 in `finding` says why. Raises DeviceError
    D001 when "ipu" is asked for and none can be used, OptionError P002 for a backend that lacks names.
    """
    wanted, finding = read_requested_device(device), None
    if wanted not in DEVICES:
        return _make_registered(wanted)
    if wanted != "sim":
        vendor, absence = _find_vendor()
        if absence is None:
            description = f"IPU (hardware version {vendor.ipuHardwareVersion()}, {_VENDOR} {_read_version(vendor)})"
            return Backend(module=vendor, name=_VENDOR, is_simulator=False, device_description=description)
        if wanted == "ipu":
            help = (absence.remedy, _USE_SIMULATOR)
            raise DeviceError.of("D001", notes=absence.facts, help=help) from absence.cause
        finding = Finding("D002", notes=absence.facts, help=f"for IPUs, {absence.remedy}")
    return Backend(
        module=simulator() if callable(simulator) else simulator,
        name=f"{_OWN_PACKAGE}.simulator",
        is_simulator=True,
        device_description="CPU simulator of an IPU",
        popdist=f"{_OWN_PACKAGE}.simulator.companions.popdist",
        finding=finding,
    )


def _make_registered(name: str) -> Backend:
    """Return the backend that was registered as `name`, if it has all that a backend must have."""
    module = load_backend(name)
    missing = list_missing_names(module, MODULE_NAMES)
    if missing:
        raise OptionError.at_caller(
            "P002",
            message=f"the backend `{name}` has no {join_names(missing, most=3)}",
            notes=f"it is the module `{module.__name__}`",
            help=f"see what it lacks: `porting backend check {module.__name__}`",
        )
    is_simulator = module.__name__ == f"{_OWN_PACKAGE}.simulator"
    return Backend(
        module=module,
        name=module.__name__,
        is_simulator=is_simulator,
        device_description=f"backend {name} ({module.__name__} {_read_version(module)})",
        popdist=f"{_OWN_PACKAGE}.simulator.companions.popdist" if is_simulator else "popdist",
    )


class _Absence(NamedTuple):
    """Why there is no IPU to run on."""

    facts: Tuple[str, ...]
    remedy: str
    cause: Optional[BaseException] = None


def _find_vendor() -> Tuple[Any, Optional[_Absence]]:
    """Import the vendor's module and look for hardware; what prevents its use is returned, not swallowed."""
    try:
        vendor = importlib.import_module(_VENDOR)
    except _IMPORT_FAILURES as error:
        if isinstance(error, ModuleNotFoundError) and error.name == _VENDOR:
            fact = f"{_VENDOR} is not installed for {sys.executable}"
            return None, _Absence((fact,), "install the poptorch wheel of the Poplar SDK into this environment", error)
        facts = (
            f"{_VENDOR} is installed, but importing it failed with {type(error).__name__}: {error}",
            f"the interpreter is {sys.executable}",
        )
        remedy = "source the SDK's `enable` scripts, and use the Python and torch that its poptorch was built for"
        return None, _Absence(facts, remedy, error)
    if vendor.__name__.split(".")[0] == _OWN_PACKAGE:
        fact = f"the module `{_VENDOR}` of this process is the simulator `{vendor.__name__}`"
        return None, _Absence((fact,), "start the program without the simulator standing in for the vendor's module")
    if not vendor.ipuHardwareIsAvailable():
        fact = f"{_VENDOR} {_read_version(vendor)} is installed, but finds no IPU on this machine"
        return None, _Absence((fact,), "see with `gc-info -l` that IPUs are attached and IPUOF_CONFIG_PATH is set")
    return vendor, None


def _read_version(vendor: ModuleType) -> str:
    return str(getattr(vendor, "__version__", "of unknown version"))
