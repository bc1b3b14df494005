"""The same training twice: by plain PyTorch, and ported to the hardware path."""

from __future__ import annotations

from typing import Any, Callable, Iterable, List, Optional, Tuple

import pytest
import torch
from torch import nn

import porting

Batch = Tuple[torch.Tensor, torch.Tensor]
MakeOptimizer = Callable[[nn.Module], torch.optim.Optimizer]


def small_net(*, norm: bool = False) -> nn.Sequential:
    """Make a classifier of 4 features and 3 classes, the same one each time."""
    torch.manual_seed(0)
    middle = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(4, 8), *middle, nn.ReLU(), nn.Linear(8, 3))


def batches(count: int = 4, *, rows: int = 8) -> List[Batch]:
    """Draw batches for `small_net`, the same ones each time."""
    drawn = torch.Generator().manual_seed(1)
    return [
        (torch.randn(rows, 4, generator=drawn), torch.randint(3, (rows,), generator=drawn)) for _number in range(count)
    ]


def one_batch() -> Batch:
    """Return the first batch."""
    return batches(1)[0]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Make the optimizer that a test takes which is about something else."""
    return torch.optim.SGD(model.parameters(), lr=0.1)


def momentum_sgd(model: nn.Module) -> torch.optim.Optimizer:
    """Make an optimizer with a state."""
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    """Make an optimizer whose state counts steps as well."""
    return torch.optim.Adam(model.parameters(), lr=0.05)


def port(model: nn.Module, *loss: Any, **settings: Any) -> Any:
    """Port to the IPU that the stand-in pretends to be; PortOptions' settings are given as they are."""
    of_port = {
        name: settings.pop(name)
        for name in ("optimizer", "label", "metrics", "returns", "max_grad_norm") & settings.keys()
    }
    return porting.to_ipu(model, *loss, options=porting.PortOptions(**settings), device="ipu", **of_port)


def train_plainly(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    data: Iterable[Batch],
    *,
    loss: Any = nn.functional.cross_entropy,
    clip: Optional[float] = None,
    scheduler: Any = None,
) -> List[float]:
    """Train as PyTorch does and return the losses."""
    losses = []
    for x, y in data:
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        if scheduler is not None:
            scheduler.step()
        losses.append(value.item())
    return losses


def train_ported(ported: Any, data: Iterable[Batch]) -> List[float]:
    """Train on the device and return the losses."""
    return [ported(x, y)[1].item() for x, y in data]


def equal(losses: List[float]) -> Any:
    """Compare with losses up to rounding in float32."""
    return pytest.approx(losses, rel=1e-5, abs=1e-8)


def assert_same_weights(model: nn.Module, expected: nn.Module) -> None:
    """Compare parameters and buffers up to rounding in float32."""
    found, wanted = model.state_dict(), expected.state_dict()
    assert list(found) == list(wanted)
    far = [name for name in wanted if not torch.allclose(found[name], wanted[name], atol=1e-5, rtol=1e-4)]
    assert far == []


def assert_trains_like_plain(
    make_optimizer: MakeOptimizer,
    *,
    loss: Any = nn.functional.cross_entropy,
    data: Optional[List[Batch]] = None,
    clip: Optional[float] = None,
    norm: bool = False,
) -> None:
    """Train both and compare losses and weights."""
    data = batches() if data is None else data
    model, twin = small_net(norm=norm), small_net(norm=norm)
    expected = train_plainly(twin, make_optimizer(twin), data, loss=loss, clip=clip)

    ported = port(model, loss, optimizer=make_optimizer(model), max_grad_norm=clip)

    assert train_ported(ported, data) == equal(expected)
    assert_same_weights(model, twin)


def train_in_parts_like_plain(
    *, num_calls: int = 3, make: Callable[[], nn.Module] = small_net, **settings: Any
) -> Tuple[Any, List[Any]]:
    """Train a call's batch in the parts that the settings ask for; plain PyTorch takes those of a step at once.

    Returns the ported model and what its calls returned.
    """
    options = porting.PortOptions(**settings)
    data, step = batches(num_calls, rows=options.samples_per_call), options.samples_per_step
    model, twin = make(), make()
    train_plainly(twin, momentum_sgd(twin), [pair for x, y in data for pair in zip(x.split(step), y.split(step))])

    ported = port(model, nn.CrossEntropyLoss(), optimizer=momentum_sgd(model), **settings)
    returned = [ported(x, y) for x, y in data]

    assert_same_weights(model, twin)
    return ported, returned


def assert_code(code: str, call: Callable[[], Any]) -> porting.PortingError:
    """Check that a call raises the finding `code`, and return the error."""
    with pytest.raises(porting.PortingError) as caught:
        call()
    assert caught.value.code == code, str(caught.value)
    return caught.value
