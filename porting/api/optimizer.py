"""Keep the user's optimizer on the host and the device's one up to date with each other.

Ported models, runners and checkpoints use a `PortOptimizer`.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, MutableMapping, Optional, Protocol, Sequence

import torch

from ..adapters import default_optimizer, sync_hyper_parameters, to_torch_state
from ..adapters.backend_protocol import BackendOptimizer
from ..adapters.followed_state import FollowedState
from ..adapters.host_steps import HostSteps
from ..adapters.optimizer_state import collect_slots, name_parameters, read_entries, set_entries
from ..adapters.optimizers import list_foreign_hooks, require_same_parameters
from ..diagnostics import Finding, PortingError, Severity, UnsupportedOptimizerError, caller_place, notify
from ..torch_insides.optimizers import list_step_hooks, mark_stepped
from .port import Port

if TYPE_CHECKING:
    from ..adapters import SchedulerBridge

__all__ = ["PortOptimizer", "refuse_backward", "say_host_step_is_needless", "stop_watching"]

_logger = logging.getLogger("porting")

# Hooks by optimizer: an optimizer that is ported again must come without the earlier port's.
_HOOKS: MutableMapping[torch.optim.Optimizer, List[Any]] = weakref.WeakKeyDictionary()

_LEFT_OVER = "remove `zero_grad()`, `backward()` and `step()` from the loop"


class _HasGroups(Protocol):
    """An optimizer, torch's or the device's."""

    param_groups: List[Dict[str, Any]]


Upload = Callable[[Any], None]


class PortOptimizer:
    """What the user gave as optimizer, its counterpart on the device, and how many steps that has made.

    `given` is the user's, None without one. `device` is what the device uses: the same object where that is one of the
    backend's, None as long as none was given nor needed. `num_steps` includes the steps before a checkpoint.
    """

    def __init__(self, port: Port, given: Optional[torch.optim.Optimizer], device: Any) -> None:
        """Keep both; nothing is uploaded yet."""
        self.given = given
        self._state = FollowedState(given, device, port.wrapped) if given is not None and given is not device else None
        self._host_steps: Optional[HostSteps] = None
        self.device = device
        self.num_steps = 0
        self._port = port
        # weakly: a bridge refers to the ported model
        self._bridges: List[Callable[[], Optional[SchedulerBridge]]] = []
        self._given_settings: Any = None
        self._uploaded_settings: Any = None
        self._settings_of_state: Any = None
        self._hooks: List[Mapping[Any, Any]] = []
        self._known_hooks: List[Any] = []
        self._said_hooks: List[Any] = []

    @property
    def source(self) -> Optional[torch.optim.Optimizer]:
        """The user's optimizer where the device's is another object, else None."""
        return None if self.given is self.device else self.given

    def require(self) -> Any:
        """Return the device's optimizer; without one, make and announce the default."""
        if self.device is None:
            self.device = default_optimizer(self._port.wrapped, backend=self._port.backend.module)
            _logger.warning("no optimizer was given: the device uses its default, SGD with a learning rate of 0.01")
        return self.device

    def require_users(self) -> Any:
        """Return the optimizer that the user holds; without one, the device's."""
        return self.require() if self.given is None else self.given

    def note_step(self) -> None:
        """Count the steps of a call, and let torch's schedulers see that the optimizer has stepped, on the device."""
        count = self._port.options.device_iterations
        self.num_steps += count
        if self._state is not None:
            self._state.num_unseen += count
            mark_stepped(self.given)
        elif self._host_steps is not None:
            self._host_steps.num_unseen += count

    # -- settings ------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Bring the device's optimizer up to date, and note the settings that a compilation begins with.

        Raises UnsupportedOptimizerError O003 where the model has lost parameters that the optimizer still holds.
        """
        name_parameters(self.require(), self._port.wrapped)
        if self._state is not None:
            self._state.bring_together()
        if self._host_steps is not None:
            self._host_steps.follow()
        self._look_at_hooks()
        # What is loaded overrides the settings of today, so a state is left without those that have changed since it
        # was kept. The device warns of each that a state lacks: they are left in as long as they are right.
        if self._settings_of_state is not None and _has_changed(self.require_users(), self._settings_of_state):
            self.set_device_state(self.device.state_dict()["ipu_state"])
        self._uploaded_settings = _copy_settings(self.match_before_compilation())
        if self.given is not None:
            self._given_settings = _copy_settings(self.given)

    def match_before_compilation(self) -> Any:
        """Bring the device's optimizer up to date with the user's, and return it."""
        optimizer = self.require()
        if self.source is not None:
            sync_hyper_parameters(self.source, optimizer, is_compiled=False)
        return optimizer

    def sync(self, upload: Upload) -> None:
        """Let the device see what was changed on the host's optimizer since the last call."""
        given, state = self.given, self._state
        if state is not None and (state.shown.is_seen or state.source.state is not state.shown):
            state.follow()
        if self._host_steps is not None:
            self._host_steps.follow()
        if [*map(tuple, self._hooks)] != self._known_hooks:
            self._look_at_hooks()
        if given is not None and _has_changed(given, self._given_settings):
            require_same_parameters(given, self._given_settings)
            self._given_settings = _copy_settings(given)
            sync_hyper_parameters(given, self.device, is_compiled=True)
        if _has_changed(self.device, self._uploaded_settings):
            self.upload(self.device, upload)

    def upload(self, optimizer: BackendOptimizer, upload: Upload) -> None:
        """Hand the settings of the device's `optimizer` over by `upload`."""
        self._uploaded_settings = _copy_settings(optimizer)
        upload(optimizer)

    # -- schedulers ----------------------------------------------------------------------------------------------------

    def connect(self, bridge: SchedulerBridge) -> None:
        """Remember a scheduler that was connected, for checkpoints."""
        self._bridges.append(weakref.ref(bridge))

    def list_schedulers(self, handed_over: Sequence[Any]) -> List[Any]:
        """List the schedulers that are connected and those that are handed over, each once."""
        connected = [bridge for bridge in (reference() for reference in self._bridges) if bridge is not None]
        known = {id(inner) for bridge in connected for inner in (bridge, bridge.scheduler)}
        return [*connected, *(scheduler for scheduler in handed_over if id(scheduler) not in known)]

    # -- state ---------------------------------------------------------------------------------------------------------

    def state_dict(self) -> Dict[str, Any]:
        """Return the device's state as the user's optimizer would have it."""
        if self.source is None:
            return dict(self.require().state_dict())
        self.follow_state()
        return to_torch_state(self.device.state_dict(), self.source, self._port.wrapped)

    def follow_state(self) -> None:
        """Let the device go on with what was changed of the state on the host; O005 for one of the wrong shape."""
        if self._state is not None:
            self._state.follow()

    def read_device_state(self) -> Dict[str, torch.Tensor]:
        """Return the state tensors of the device by its own names; empty before its first step."""
        return read_entries(self.device)

    def set_device_state(self, state: Mapping[str, torch.Tensor]) -> None:
        """Let the device go on with `state` and the settings that its optimizer has."""
        if self._state is None:
            set_entries(self.device, state)
        else:
            self._state.set_entries(state)

    def keep_state(self) -> None:
        """Let the device's state count as loaded, so that the next executable starts with it."""
        state = self.device.state_dict() if self.device is not None else {}
        self._settings_of_state = None
        if state.get("ipu_state") is not None:
            self.device.set_state_dict({name: state[name] for name in ("ipu_state", "ipu_param")})
            self._settings_of_state = _copy_settings(self.require_users())

    # -- what the user does with the optimizer on the host -------------------------------------------------------------

    def watch(self, *, is_on_device: Callable[[], bool]) -> None:
        """Say so when the user's optimizer steps on the host, or gets hooks for its steps (O007).

        A step with a closure is refused (UnsupportedOptimizerError O004): the closure would make the device's steps.

        Only while `is_on_device()`: afterwards the optimizer may train the plain model. It must not keep the ported
        model alive.
        """
        if self.given is not None:
            self._hooks = list_step_hooks(self.given)
        stop_watching(self.given)
        optimizer = self.source
        if optimizer is None:
            if self.given is not None and collect_slots(self.given):
                self._host_steps = HostSteps(self.given, self._port.wrapped)
                _HOOKS[self.given] = self._host_steps.hooks
            return
        hooks = _HOOKS.setdefault(optimizer, [])
        warned: List[bool] = []

        def on_step(_optimizer: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
            if self.num_steps and not is_on_device():
                return
            if any(callable(value) for value in (*args[1:], *kwargs.values())):
                raise UnsupportedOptimizerError.at_caller(
                    "O004",
                    message="`optimizer.step(closure)` is called on the optimizer of a ported model",
                    notes="a call of the ported model runs forward, backward and the optimizer's step",
                    help="call the ported model instead: `output, loss = ported(x, y)`",
                )
            if not warned and is_on_device():
                warned.append(True)
                say_host_step_is_needless("`optimizer.step()` does nothing")

        hooks.append(optimizer.register_step_pre_hook(on_step))

    def _look_at_hooks(self) -> None:
        """Say (O007) that step hooks which are new are not run."""
        self._known_hooks = [*map(tuple, self._hooks)]
        hooks = list_foreign_hooks(self._hooks)
        if any(hook not in self._said_hooks for hook in hooks):
            say_host_step_is_needless(
                "the optimizer's step hooks are not run", help="remove the hook, and do after a call what it does"
            )
        self._said_hooks = hooks


def stop_watching(optimizer: Optional[torch.optim.Optimizer]) -> None:
    """Remove the hooks that `PortOptimizer.watch` has added."""
    if isinstance(optimizer, torch.optim.Optimizer):
        for hook in _HOOKS.pop(optimizer, []):
            hook.remove()


def say_host_step_is_needless(fault: str, *, help: str = _LEFT_OVER) -> None:
    """Warn (O007) of a part of a plain training loop that is left over."""
    message = f"{fault}: the device made the step inside the call"
    notify(Finding("O007", message=message, place=caller_place(), help=help))


def refuse_backward(*_args: object, **_kwargs: object) -> None:
    """Refuse `loss.backward()` on the loss of a call, with the line and the remedy."""
    raise PortingError.of(
        "O007",
        message="`loss.backward()` is called on the loss of a ported model",
        severity=Severity.ERROR,
        place=caller_place(),
        notes=("the device has differentiated the loss and made the optimizer's step inside the call",),
        help=_LEFT_OVER,
    )


def _copy_settings(optimizer: _HasGroups) -> List[Dict[str, Any]]:
    """Copy the settings and parameters of each group; tensors, which torch allows for some settings, as numbers."""
    return [
        {
            name: value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value
            for name, value in (*group.items(), ("params", [*group["params"]]))
        }
        for group in optimizer.param_groups
    ]


def _has_changed(optimizer: _HasGroups, settings: Sequence[Mapping[str, Any]]) -> bool:
    """Tell whether the parameter groups are no longer as `_copy_settings` found them; every call asks."""
    groups = optimizer.param_groups
    try:
        return len(groups) != len(settings) or any(
            len(group) != len(copied) or [*map(group.get, copied)] != [*copied.values()]
            for group, copied in zip(groups, settings)
        )
    except RuntimeError:
        # only parameters that are others are compared by their values, which gives no answer
        return True
