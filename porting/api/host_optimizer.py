"""The torch optimizer that a port was made from: what the user does with it on the host is not lost unseen."""

from __future__ import annotations

import weakref
from typing import Any, Callable, Dict, List, Mapping, MutableMapping, Optional, Sequence

import torch

from ..adapters import carry_state, to_torch_state
from ..diagnostics import Finding, PortingError, Severity, UnsupportedOptimizerError, caller_place, notify
from .parts import Parts

__all__ = [
    "drop_old_settings",
    "keep_state",
    "note_device_step",
    "refuse_backward",
    "say_host_step_is_needless",
    "settings_of",
    "stop_watching",
    "watch_optimizer",
]

# Hooks by optimizer: an optimizer that is ported again must come without the earlier port's.
_HOOKS: MutableMapping[torch.optim.Optimizer, List[Any]] = weakref.WeakKeyDictionary()


def watch_optimizer(optimizer: torch.optim.Optimizer, parts: Parts, *, is_on_device: Callable[[], bool]) -> None:
    """Say so when `optimizer` steps on the host (O007); its state is the device's, both when saved and when loaded.

    A step with a closure is refused (UnsupportedOptimizerError O004): the closure would make the device's steps.

    Only while `is_on_device()`: afterwards the optimizer may train the plain model. It must not keep the ported model
    alive.
    """
    stop_watching(optimizer)
    hooks = _HOOKS.setdefault(optimizer, [])
    warned: List[bool] = []
    reading: List[bool] = []

    def on_step(_optimizer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if any(callable(value) for value in (*args[1:], *kwargs.values())):
            raise _closure_error()
        if is_on_device() and not warned:
            warned.append(True)
            say_host_step_is_needless("`optimizer.step()` does nothing")

    def on_load(loaded: torch.optim.Optimizer) -> None:
        if loaded is not parts.optimizer:
            _take_over_state(loaded, parts)

    def on_save(saved: torch.optim.Optimizer, state_dict: Dict[str, Any]) -> Any:
        if saved is parts.optimizer or not is_on_device() or reading:
            return None
        reading.append(True)  # the adapter asks the optimizer for its groups by the same method
        try:
            return to_torch_state(parts.optimizer.state_dict(), saved, parts.wrapped)
        finally:
            reading.clear()

    hooks.append(optimizer.register_step_pre_hook(on_step))
    if hasattr(optimizer, "register_state_dict_post_hook"):
        hooks.append(optimizer.register_state_dict_post_hook(on_save))
        hooks.append(optimizer.register_load_state_dict_post_hook(on_load))
    else:
        hooks.append(_MethodHook(optimizer, "state_dict", on_save))
        hooks.append(_MethodHook(optimizer, "load_state_dict", lambda loaded, _result: on_load(loaded)))


class _MethodHook:
    """Calls `hook(optimizer, result)` after a method of one optimizer, where torch (before 2.1) has no hooks for it.

    What the hook returns takes the place of the result, unless it is None.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, name: str, hook: Callable[[Any, Any], Any]) -> None:
        # weak: the table of hooks must not keep its own key alive
        self._optimizer, self._name = weakref.ref(optimizer), name
        own, method = self._optimizer, getattr(type(optimizer), name)

        def called(*args: Any, **kwargs: Any) -> Any:
            running = own()
            result = method(running, *args, **kwargs)
            changed = hook(running, result)
            return result if changed is None else changed

        setattr(optimizer, name, called)

    def remove(self) -> None:
        """Give the optimizer its method back."""
        optimizer = self._optimizer()
        if optimizer is not None:
            vars(optimizer).pop(self._name, None)


def _closure_error() -> UnsupportedOptimizerError:
    return UnsupportedOptimizerError.of(
        "O004",
        message="`optimizer.step(closure)` is called on the optimizer of a ported model",
        place=caller_place(),
        notes=("a call of the ported model runs forward, backward and the optimizer's step",),
        help="call the ported model instead: `output, loss = ported(x, y)`",
    )


def settings_of(optimizer: Any) -> List[Dict[str, Any]]:
    """Copy the settings of each parameter group; tensors, which torch allows for some, as numbers."""
    return [
        {name: _plain(value) for name, value in group.items() if name != "params"} for group in optimizer.param_groups
    ]


def keep_state(parts: Parts) -> Optional[List[Dict[str, Any]]]:
    """Let the device's state count as loaded, so that the next executable starts with it; return today's settings."""
    state = parts.optimizer.state_dict() if parts.optimizer is not None else {}
    if state.get("ipu_state") is None:
        return None
    parts.optimizer.set_state_dict({name: state[name] for name in ("ipu_state", "ipu_param")})
    return _users_settings(parts)


def drop_old_settings(parts: Parts, settings_of_state: Optional[List[Dict[str, Any]]]) -> None:
    """Leave settings that have changed since `keep_state` out of the state: what is loaded overrides today's.

    The device warns of each that a state lacks, so that they are left in as long as they are right.
    """
    if settings_of_state is not None and settings_of_state != _users_settings(parts):
        state = parts.optimizer.state_dict()["ipu_state"]
        parts.optimizer.set_state_dict({"ipu_state": state, "ipu_param": {}})


def _users_settings(parts: Parts) -> List[Dict[str, Any]]:
    return settings_of(parts.optimizer if parts.torch_optimizer is None else parts.torch_optimizer)


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def note_device_step(parts: Parts) -> None:
    """Count the steps of a call, and let torch's schedulers see that the optimizer has stepped: the device did it."""
    parts.num_steps += parts.options.device_iterations
    if parts.has_counterpart and parts.torch_optimizer is not None:
        parts.torch_optimizer._opt_called = True  # type: ignore[attr-defined]


def refuse_backward(*_args: Any, **_kwargs: Any) -> None:
    """Refuse `loss.backward()` on the loss of a call, with the line and the remedy."""
    raise PortingError.of(
        "O007",
        message="`loss.backward()` is called on the loss of a ported model",
        severity=Severity.ERROR,
        place=caller_place(),
        notes=("the device has differentiated the loss and made the optimizer's step inside the call",),
        help="remove `zero_grad()`, `backward()` and `step()` from the loop",
    )


def stop_watching(optimizer: Any) -> None:
    """Remove what `watch_optimizer` added."""
    if isinstance(optimizer, torch.optim.Optimizer):
        for hook in _HOOKS.pop(optimizer, []):
            hook.remove()


def say_host_step_is_needless(fault: str) -> None:
    """Warn (O007) of a part of a plain training loop that is left over."""
    notify(
        Finding(
            "O007",
            message=f"{fault}: the device made the step inside the call",
            place=caller_place(),
            help="remove `zero_grad()`, `backward()` and `step()` from the loop",
        )
    )


def _take_over_state(loaded: torch.optim.Optimizer, parts: Parts) -> None:
    """Give the device the state of `loaded`, and zeros where that has none."""
    before = parts.optimizer.state_dict()["ipu_state"] or {}
    if before:
        zeros = {name: torch.zeros_like(tensor) for name, tensor in before.items()}
        parts.optimizer.set_state_dict({"ipu_state": zeros, "ipu_param": {}})
        carry_state(loaded, parts.optimizer, parts.wrapped)
        state = {**zeros, **parts.optimizer.state_dict()["ipu_state"]}
        parts.optimizer.set_state_dict({"ipu_state": state, "ipu_param": {}})
    else:
        carry_state(loaded, parts.optimizer, parts.wrapped)
