"""Train a LightningModule, unchanged, on a device: `Trainer(strategy=make_strategy())`.

Loops, optimizers, schedulers, callbacks, loggers and checkpoints are Lightning's and see the module itself. In its
steps the outermost modules that it calls run on the device, see `DeviceCalls`. Clipping, accumulation, several
optimizers and manual optimization are arithmetic on gradients, which are on the host.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Type

import torch
from torch import nn

from ..api import RunReport
from ..diagnostics import OptionError, require_extra
from ..options import PortOptions
from .device_calls import DeviceCalls

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer

__all__ = ["make_strategy"]

# two names of one library, whose classes are not each other's
_PACKAGES = ("lightning.pytorch", "pytorch_lightning")

# as a Trainer may write it; all of them are one where there is no other accelerator
_ONE_DEVICE = ("auto", 1, "1", [0], -1, "-1")


def make_strategy(
    options: Optional[PortOptions] = None,
    *,
    device: str = "auto",
    modules: Sequence[str] = (),
    package: Optional[str] = None,
) -> Any:
    """Return a strategy for `Trainer(strategy=...)` that runs the modules of a LightningModule on the device.

    `options`, `device` and `modules` are those of `DeviceCalls`. The strategy's `reports()` list the calls.
    `package` is "lightning.pytorch" or "pytorch_lightning"; without it, the one that is imported already.

    Raises PortingError X001 where neither is installed, OptionError P002 where both are imported. A Trainer with a
    `precision`, `devices`, `num_nodes` or `sync_batchnorm` that are not the device's raises P002 when it begins.
    """
    package = package or _find_package()
    strategies = require_extra(
        f"{package}.strategies", extra="lightning", message=f"a strategy of Lightning needs `{package}`"
    )
    settings: Dict[str, Any] = {"options": options, "device": device, "modules": modules}
    return _define_class(strategies.SingleDeviceStrategy)(functools.partial(DeviceCalls, **settings))


def _find_package() -> str:
    imported = [package for package in _PACKAGES if package in sys.modules]
    if len(imported) == 2:
        raise OptionError.at_caller(
            "P002",
            message="`lightning.pytorch` and `pytorch_lightning` are both imported",
            notes="a Trainer of one of them does not know the strategies of the other",
            help="say which of them the Trainer is from: `make_strategy(package='pytorch_lightning')`",
        )
    if imported:
        return imported[0]
    installed = [package for package in _PACKAGES if _is_installed(package)]
    return (installed or list(_PACKAGES))[0]


def _is_installed(package: str) -> bool:
    try:
        __import__(package.partition(".")[0])
    except ModuleNotFoundError:
        return False
    return True


@functools.lru_cache(maxsize=None)
def _define_class(single_device_strategy: Type[Any]) -> Type[Any]:
    """Define the strategy as a subclass of the package's own."""
    return type("DeviceStrategy", (_DeviceSteps, single_device_strategy), {"strategy_name": "porting"})


class _DeviceSteps:
    """The change to Lightning's strategy for one device: its steps call the device.

    To Lightning it is a strategy of the CPU, where the weights are whenever they are read.
    """

    lightning_module: Any
    precision_plugin: Any

    def __init__(self, make_calls: Callable[..., Any]) -> None:
        super().__init__(device=torch.device("cpu"))  # type: ignore[call-arg]
        # by which Lightning chooses the accelerator where the Trainer's is "auto", and refuses another one
        self.parallel_devices = [torch.device("cpu")]
        self._make_calls = make_calls
        self._calls: Optional[DeviceCalls] = None
        self._called: Optional[nn.Module] = None

    def setup_environment(self) -> None:
        """Refuse settings that the device does not support."""
        super().setup_environment()  # type: ignore[misc]
        _refuse_settings(self.lightning_module, self.precision_plugin)

    def setup(self, trainer: Trainer) -> None:
        """Find the modules: by now the LightningModule has made them all."""
        super().setup(trainer)  # type: ignore[misc]
        if self._called is not self.lightning_module:
            self._called = self.lightning_module
            self._calls = self._make_calls(self.lightning_module)

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `training_step`, its calls on the device."""
        with self._active_calls().active():
            return super().training_step(*args, **kwargs)  # type: ignore[misc]

    def validation_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `validation_step`, its calls on the device."""
        with self._active_calls().active():
            return super().validation_step(*args, **kwargs)  # type: ignore[misc]

    def test_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `test_step`, its calls on the device."""
        with self._active_calls().active():
            return super().test_step(*args, **kwargs)  # type: ignore[misc]

    def predict_step(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's `predict_step`, its calls on the device."""
        with self._active_calls().active():
            return super().predict_step(*args, **kwargs)  # type: ignore[misc]

    def reports(self) -> List[RunReport]:
        """Return the reports of the device, one for each module and shape of batch."""
        return [] if self._calls is None else self._calls.reports()

    def list_device_modules(self) -> List[str]:
        """List the names of the modules that have run on the device."""
        return [] if self._calls is None else self._calls.list_device_modules()

    def _active_calls(self) -> DeviceCalls:
        assert self._calls is not None
        return self._calls


def _refuse_settings(module: LightningModule, precision_plugin: object) -> None:
    """Raise OptionError P002 for settings of the Trainer that would not have their usual effect."""
    trainer = module.trainer
    asked = trainer._accelerator_connector
    fault, remedy = "", "leave it out: this strategy runs one process with one device"
    if type(precision_plugin).__name__ != "Precision":
        fault = f"`Trainer(precision={trainer.precision!r})` casts on the host"
        remedy = "leave it out, and say `make_strategy(PortOptions(precision='mixed'))`, or 'bfloat16'"
    elif asked._devices_flag not in _ONE_DEVICE:
        fault = f"`Trainer(devices={asked._devices_flag!r})` asks for several processes"
    elif asked._num_nodes_flag != 1:
        fault = f"`Trainer(num_nodes={asked._num_nodes_flag})` asks for several machines"
    elif asked._layer_sync is not None:
        fault = "`Trainer(sync_batchnorm=True)` is for several processes"
    elif getattr(module, "_compiler_ctx", None) is not None:
        fault = "the LightningModule comes from `torch.compile`"
        remedy = "pass the module itself: what it calls is compiled for the device"
    if fault:
        raise OptionError.at_caller("P002", message=fault, help=remedy)
