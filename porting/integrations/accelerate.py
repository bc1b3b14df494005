"""Run accelerate's models on a device: `prepare` of this `Accelerator` sends their calls there.

`backward`, `clip_grad_norm_`, `accumulate`, `no_sync`, `save_state` and trackers are the library's: gradients and
weights are on the host, where they work as they do without a device.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

from torch import nn

from ..diagnostics import OptionError, require_extra
from ..options import PortOptions
from .device_calls import DeviceCalls

__all__ = ["Accelerator"]

_accelerate = require_extra(
    "accelerate", extra="accelerate", message="`porting.integrations.accelerate` needs accelerate"
)
_Accelerator: Any = _accelerate.Accelerator

_ONE = "leave it out: one process drives one device"
_PRECISION = "leave it out, and say `Accelerator(port_options=PortOptions(precision='mixed'))`, or 'bfloat16'"
_REFUSED = {
    "mixed_precision": _PRECISION,
    "dynamo_backend": "leave it out: the model is compiled for the device",
    "dynamo_plugin": "leave it out: the model is compiled for the device",
    "deepspeed_plugin": _ONE,
    "deepspeed_plugins": _ONE,
    "fsdp_plugin": _ONE,
    "megatron_lm_plugin": _ONE,
    "torch_tp_plugin": _ONE,
    "parallelism_config": _ONE,
}


class Accelerator(_Accelerator):
    """accelerate's `Accelerator`: prepared models run on the device, and stay the same objects.

    `port_options`, `port_device` and `modules` are those of `DeviceCalls`. Raises OptionError P002 for settings
    that the device does in another way.
    """

    def __init__(
        self,
        *args: Any,
        port_options: Optional[PortOptions] = None,
        port_device: str = "auto",
        modules: Sequence[str] = (),
        **kwargs: Any,
    ) -> None:
        """Take the library's arguments, and those of the port."""
        for name, advice in _REFUSED.items():
            if kwargs.get(name) not in (None, "no"):
                _refuse_setting(f"`Accelerator({name}=...)` is for another device", advice)
        super().__init__(*args, **{**kwargs, "cpu": True})
        if self.mixed_precision != "no":  # by the environment or a file of settings
            _refuse_setting(f"a mixed precision of {self.mixed_precision} is configured for accelerate", _PRECISION)
        if self.num_processes != 1:
            _refuse_setting(f"accelerate has started {self.num_processes} processes", "start one: it drives one device")
        self._port_settings: Dict[str, Any] = {"options": port_options, "device": port_device, "modules": modules}
        self.device_calls: List[DeviceCalls] = []

    def prepare_model(self, model: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        """Return the model itself, whose calls run on the device from now on."""
        prepared: nn.Module = super().prepare_model(model, *args, **kwargs)
        if all(calls.model is not prepared for calls in self.device_calls):
            self.device_calls.append(DeviceCalls(prepared, **self._port_settings))
        for calls in self.device_calls:
            if calls.model is prepared:
                calls.install()
        return prepared

    def free_memory(self, *objects: Any) -> Any:
        """Do as the library's, and let the models run on the host again."""
        for calls in self.device_calls:
            calls.destroy()
        self.device_calls.clear()
        return super().free_memory(*objects)


def _refuse_setting(fault: str, remedy: str) -> None:
    raise OptionError.at_caller("P002", message=fault, help=remedy)
