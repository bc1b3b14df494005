"""Check whether a module with PopTorch's API runs ported models, for those who bring one: `check_backend`.

Each check trains something small on the module and compares it with plain PyTorch.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import TensorDataset

from .adapters.backend_protocol import EXECUTOR_NAMES, MODULE_NAMES, OPTIONS_NAMES, list_missing_names
from .api import to_ipu
from .diagnostics import PortingWarning
from .options import PortOptions, register_backend

__all__ = ["CHECKS", "CheckOutcome", "check_backend"]

_NAME = "backend_under_check"
_ROWS, _WIDTH, _NUM_CLASSES, _NUM_STEPS = 12, 4, 3, 4
# float32 sums in another order
_RELATIVE, _ABSOLUTE = 1e-4, 1e-6

Batches = List[Tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class CheckOutcome:
    """The result of a check: `fault` is empty where the backend passed."""

    name: str
    fault: str

    @property
    def passed(self) -> bool:
        """Whether there is no fault."""
        return not self.fault


def check_backend(module: ModuleType) -> Iterator[CheckOutcome]:
    """Run all checks of a backend on `module`, one after the other, and yield the result of each.

    A check that raises has failed, with the error as its fault; the next one runs all the same. The first looks for
    names; without them the others are left out.
    """
    missing = list_missing_names(module, MODULE_NAMES) or list_missing_names(module.Options(), OPTIONS_NAMES)
    yield CheckOutcome("names", f"missing: {', '.join(missing)}" if missing else "")
    if missing:
        return
    register_backend(_NAME, module)
    for name, check in CHECKS.items():
        state = torch.get_rng_state()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PortingWarning)
                check()
        except Exception as error:
            yield CheckOutcome(name, f"{type(error).__name__}: {str(error).strip() or 'without a message'}")
        else:
            yield CheckOutcome(name, "")
        finally:
            torch.set_rng_state(state)


def _make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(_WIDTH, 8), nn.Tanh(), nn.Linear(8, _NUM_CLASSES))


_Numbers = Union[float, Sequence[float], torch.Tensor]


def _make_batches(rows: int = _ROWS, steps: int = _NUM_STEPS) -> Batches:
    torch.manual_seed(1)
    return [(torch.randn(rows, _WIDTH), torch.randint(_NUM_CLASSES, (rows,))) for _step in range(steps)]


def _port(model: nn.Module, optimizer: Optional[torch.optim.Optimizer] = None, **options: Any) -> Any:
    options = {"frozen": "allow", "memory": "ignore", **options}
    return to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, options=PortOptions(**options), device=_NAME)


def _train_plain(
    model: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches, gamma: float = 1.0
) -> List[float]:
    losses = []
    for x, y in batches:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        for group in optimizer.param_groups:
            group["lr"] *= gamma
    return losses


def _require_close(found: _Numbers, expected: _Numbers, what: str) -> None:
    found, expected = torch.as_tensor(found), torch.as_tensor(expected)
    if found.shape != expected.shape:
        raise AssertionError(f"{what}: shape {list(found.shape)} instead of {list(expected.shape)}")
    if not torch.allclose(found, expected, rtol=_RELATIVE, atol=_ABSOLUTE):
        raise AssertionError(f"{what} differ from plain PyTorch's by up to {(found - expected).abs().max():.1e}")


def _require_same_weights(ported: nn.Module, model: nn.Module) -> None:
    weights = ported.state_dict()
    for name, tensor in model.state_dict().items():
        _require_close(weights[name], tensor, f"the weights `{name}`")


_OPTIMIZERS: Mapping[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=0.01),
}


def _check_optimizer(make: Callable[[Any], torch.optim.Optimizer]) -> None:
    model, batches = _make_model(), _make_batches()
    plain = copy.deepcopy(model)
    ported = _port(model, make(model.parameters()))
    losses = [ported(*batch)[1].item() for batch in batches]
    _require_close(losses, _train_plain(plain, make(plain.parameters()), batches), "losses")
    _require_same_weights(ported, plain)
    ported.destroy()


def _check_schedule() -> None:
    model, batches = _make_model(), _make_batches()
    plain = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    ported = _port(model, optimizer)
    schedule = ported.scheduler(torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5))
    losses = []
    for batch in batches:
        losses.append(ported(*batch)[1].item())
        schedule.step()
    expected = _train_plain(plain, torch.optim.SGD(plain.parameters(), lr=0.2), batches, gamma=0.5)
    _require_close(losses, expected, "losses under a schedule")
    ported.destroy()


def _check_combined_batch() -> None:
    """Accumulation and device iterations are the steps of the large batches that they stand for."""
    model, batches = _make_model(), _make_batches(rows=8, steps=2)
    plain = copy.deepcopy(model)
    ported = _port(
        model,
        torch.optim.SGD(model.parameters(), lr=0.1),
        micro_batch=4,
        accumulation=2,
        device_iterations=2,
        output_mode="all",
    )
    x, y = (torch.cat(parts) for parts in zip(*batches))
    _output, losses = ported(x, y)
    expected = _train_plain(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)
    _require_close(losses.view(2, 2).mean(dim=1), expected, "losses of accumulated steps")
    _require_same_weights(ported, plain)
    ported.destroy()


def _check_inference() -> None:
    model, batches = _make_model(), _make_batches()
    ported = _port(model, torch.optim.SGD(model.parameters(), lr=0.1))
    ported(*batches[0])
    output = ported.inference()(batches[1][0])
    plain = _make_model()
    plain.load_state_dict(ported.state_dict())
    with torch.no_grad():
        _require_close(output, plain(batches[1][0]), "outputs of inference after a step")
    ported.destroy()


def _check_detach() -> None:
    """Weights and the optimizer's state survive the loss of the device."""
    model, batches = _make_model(), _make_batches()
    plain = copy.deepcopy(model)
    ported = _port(model, torch.optim.Adam(model.parameters(), lr=0.01))
    losses = []
    for batch in batches:
        losses.append(ported(*batch)[1].item())
        ported.detach()
    _require_close(losses, _train_plain(plain, torch.optim.Adam(plain.parameters(), lr=0.01), batches), "losses")
    missing = list_missing_names(ported.device_executor, EXECUTOR_NAMES)
    missing = [name for name in missing if name != "rng_state" or not hasattr(ported.device_executor, name)]
    if missing:
        raise AssertionError(f"the executor has no {', '.join(missing)}")
    ported.destroy()


def _check_state() -> None:
    """The optimizer's state comes back in torch's form, and continues in another port."""
    model, batches = _make_model(), _make_batches()
    plain = copy.deepcopy(model)
    ported = _port(model, torch.optim.Adam(model.parameters(), lr=0.01))
    losses = [ported(*batch)[1].item() for batch in batches[:2]]
    weights, state = ported.state_dict(), ported.optimizer_state_dict()
    ported.destroy()
    other = _make_model()
    other.load_state_dict(weights)
    optimizer = torch.optim.Adam(other.parameters(), lr=0.01)
    optimizer.load_state_dict(state)
    resumed = _port(other, optimizer)
    losses += [resumed(*batch)[1].item() for batch in batches[2:]]
    expected = _train_plain(plain, torch.optim.Adam(plain.parameters(), lr=0.01), batches)
    _require_close(losses, expected, "losses after the optimizer's state was handed over")
    resumed.destroy()


def _check_loader() -> None:
    model = _make_model()
    x, y = (torch.cat(parts) for parts in zip(*_make_batches(rows=8, steps=2)))
    ported = _port(model, torch.optim.SGD(model.parameters(), lr=0.1), micro_batch=2, accumulation=2)
    batches = list(ported.dataloader(TensorDataset(x, y)))
    _require_close(torch.cat([inputs for inputs, _labels in batches]), x, "the samples of the loader")
    if len(batches) != 4:
        raise AssertionError(f"the loader has {len(batches)} batches of 4 instead of 4")
    ported(*batches[0])
    ported.destroy()


def _check_other_shape() -> None:
    """A batch of another shape is refused, and leaves the executable usable."""
    model, batches = _make_model(), _make_batches()
    ported = _port(model, torch.optim.SGD(model.parameters(), lr=0.1))
    ported(*batches[0])
    x, y = batches[1]
    try:
        ported(x[:5], y[:5])
    except Exception:
        ported(x, y)
        ported.destroy()
        return
    raise AssertionError("a batch of 5 rows was taken by an executable for 12")


def _check_destroy() -> None:
    """After `destroy` the model is the plain module that it was, with what was trained."""
    model, batches = _make_model(), _make_batches()
    plain = copy.deepcopy(model)
    ported = _port(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for batch in batches:
        ported(*batch)
    ported.destroy()
    _train_plain(plain, torch.optim.SGD(plain.parameters(), lr=0.1), batches)
    with torch.no_grad():
        _require_close(model(batches[0][0]), plain(batches[0][0]), "outputs of the plain model afterwards")
    if type(model) is not nn.Sequential:
        raise AssertionError(f"the model is still a {type(model).__name__}")


def _make_checks() -> Dict[str, Callable[[], None]]:
    checks: Dict[str, Callable[[], None]] = {}
    for name, make in _OPTIMIZERS.items():
        checks[f"training with {name}"] = lambda make=make: _check_optimizer(make)  # type: ignore[misc]
    checks.update(
        {
            "a learning-rate schedule": _check_schedule,
            "accumulation and device iterations": _check_combined_batch,
            "inference": _check_inference,
            "detaching and attaching": _check_detach,
            "the optimizer's state": _check_state,
            "the loader": _check_loader,
            "a batch of another shape": _check_other_shape,
            "destroying": _check_destroy,
        }
    )
    return checks


CHECKS: Mapping[str, Callable[[], None]] = _make_checks()
"""What is tried, by name, on the backend that is registered as `backend_under_check`."""
