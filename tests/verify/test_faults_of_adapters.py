"""A fault in any module of the adapters, or in the port's loader, is on the port's side alone: no proof says PASS."""

from __future__ import annotations

import pkgutil
import sys
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, Mapping

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting import PortOptions, adapters
from porting.adapters import (
    assigned_buffers,
    batch_counts,
    checkpoints,
    cumulative_counts,
    labels,
    loss,
    loss_terms,
    optimizer_state,
    optimizers,
    precision,
    returned_loss,
    schedules,
)
from porting.simulator import DataLoader as DeviceLoader
from porting.verify.certificate import Verdict

# what computes nothing of a training: it refuses, reports, names files, or tells a backend where to compute
WITHOUT_NUMBERS = {
    "backend_protocol": "types of what a backend has",
    "backends": "chooses a backend",
    "batches": "makes the backend's loader, whose faults are below",
    "chainer_weights": "reads weights before there is a training",
    "checkpoint_folder": "names files",
    "derivatives": "refuses what the device cannot differentiate",
    "filled_rows": "fills batches of evaluations, whose rows are left out again",
    "fixed_batch": "a dataset of the user's, that both sides read",
    "followed_state": "shows the device's state to the user's optimizer, which no proof reads",
    "half_ranges": "measures what half precision cannot hold",
    "host_steps": "steps of a plain loop, of which a proof's port makes none",
    "instances": "shares of several processes, of which a proof has one",
    "loader_position": "brings random streams back",
    "loader_report": "counts samples",
    "padding_checks": "warns",
    "sample_audit": "counts what a loader shows, and changes nothing",
    "record_parsers": "tells PopTorch's front end where tensors are, which the simulator finds by itself",
    "replica_buffers": "keeps buffers of other replicas than the first, which no proof reads",
    "stage_calls": "counts calls of modules while a step is traced",
    "stages": "says which IPU computes a layer",
    "tracing_guards": "refuses, and answers questions while a step is traced",
}


class Remembering(nn.Linear):
    """A model that assigns a buffer anew."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = super().forward(x)
        self.mean = 0.9 * self.mean + 0.1 * output.detach().mean(0)
        return output - self.mean


class WithLoss(nn.Linear):
    """A model that returns its loss itself."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> Any:  # type: ignore[override]
        output = super().forward(x)
        return output, F.mse_loss(output, y)


def rows(count: int = 16) -> Any:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(count, 4, generator=generator), torch.randint(3, (count,), generator=generator)


def numbers() -> Any:
    x, y = rows()
    return x, F.one_hot(y, 3).float() * 3


def loader() -> Any:
    return DataLoader(TensorDataset(*rows(32)), batch_size=8)


@dataclass(frozen=True)
class Case:
    """What is trained while a fault is there."""

    model: Callable[[], nn.Module] = lambda: nn.Linear(4, 3)
    loss: Any = nn.CrossEntropyLoss()
    batches: Callable[[], Any] = rows
    optimizer: Callable[[nn.Module], Any] = lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    options: PortOptions = PortOptions()
    more: Mapping[str, Any] = field(default_factory=dict)


def prove(case: Case) -> porting.Certificate:
    torch.manual_seed(5)
    model = case.model()
    return porting.verify(
        model,
        case.loss,
        case.batches(),
        optimizer=case.optimizer(model),
        options=case.options,
        steps=4,
        device="sim",
        **case.more,
    )


def exchange(monkeypatch: pytest.MonkeyPatch, own: Any, other: Any) -> None:
    """Put `other` wherever the product knows `own` by a name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("porting."):
            for attribute, value in list(vars(module).items()):
                if value is own:
                    monkeypatch.setattr(module, attribute, other)


def changing(own: Callable[..., Any], change: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: change(own(*args, **kwargs))


def decayed(model: nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=0.1)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


def cumulative() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, momentum=None), nn.Linear(6, 3))


WEIGHTED = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 5.0]))
TWO_LOSSES = {"a": loss_terms.LossTerm(nn.CrossEntropyLoss()), "b": loss_terms.LossTerm(F.cross_entropy, weight=0.5)}


def exchange_formula(function: Any, formula: Callable[..., Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setitem(loss_terms._FORMULAS, function, formula)


def exchange_all(own: Any, change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: exchange(patch, own, changing(own, change))


def exchange_method(owner: Any, name: str, method: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, method)


def change_loader(change: Callable[[Any], Any]) -> Callable[[pytest.MonkeyPatch], None]:
    own = DeviceLoader.__iter__
    return exchange_method(DeviceLoader, "__iter__", lambda self: iter(change(list(own(self)))))


def doubled(state: Mapping[Any, Any]) -> Any:
    return {weight: {slot: 2 * value for slot, value in slots.items()} for weight, slots in state.items()}


def adding_to_counts(norms: Any, dtype: torch.dtype) -> None:
    for norm in norms:
        norm.num_batches_tracked.data = (norm.num_batches_tracked.data + 3).to(dtype)


def without_weights(terms: Mapping[str, Any]) -> Any:
    return {key: replace(term, weight=1.0) for key, term in terms.items()}


def without_smoothing(input: Any, target: Any, label_smoothing: float = 0.0, **settings: Any) -> torch.Tensor:
    return F.nll_loss(F.log_softmax(input, 1), target)


def without_divisor(input: Any, target: Any, weight: Any = None, **settings: Any) -> torch.Tensor:
    return F.nll_loss(F.log_softmax(input, 1), target, weight, reduction="sum") / len(target)


def without_delta(input: Any, target: Any, delta: float = 1.0, **settings: Any) -> torch.Tensor:
    return F.smooth_l1_loss(input, target, beta=delta)


FAULTS: Dict[str, Any] = {
    "labels": (exchange_all(labels.split_labels, lambda split: split._replace(labels=split.labels.roll(1, 0))), Case()),
    "loss": (exchange_all(loss._mark_loss, lambda value: 1.01 * value), Case()),
    "loss_terms: a term's weight": (
        exchange_all(loss_terms.make_terms, without_weights),
        Case(loss=TWO_LOSSES),
    ),
    "loss_terms: label smoothing": (
        exchange_formula(F.cross_entropy, without_smoothing),
        Case(loss=nn.CrossEntropyLoss(label_smoothing=0.1)),
    ),
    "loss_terms: class weights": (exchange_formula(F.cross_entropy, without_divisor), Case(loss=WEIGHTED)),
    "loss_terms: Huber's delta": (
        exchange_formula(F.huber_loss, without_delta),
        Case(loss=nn.HuberLoss(delta=0.5), batches=numbers),
    ),
    "returned_loss: reduction": (
        exchange_all(returned_loss.make_scalar, lambda value: 0.5 * value),
        Case(loss=nn.MSELoss(reduction="none"), batches=numbers, more={"reduction": "mean"}),
    ),
    "returned_loss: the model's own": (
        exchange_all(returned_loss.find_loss, lambda value: 1.1 * value),
        Case(model=lambda: WithLoss(4, 3), loss=None, batches=numbers),
    ),
    "precision": (
        exchange_all(precision.cast_floats, lambda value: 1.1 * value if isinstance(value, torch.Tensor) else value),
        Case(options=PortOptions(precision="mixed")),
    ),
    "optimizers": (
        exchange_all(optimizers._read_hyper_parameters, lambda found: {**found, "weight_decay": 0.0}),
        Case(optimizer=decayed),
    ),
    "optimizer_state": (exchange_all(optimizer_state.read_torch_state, doubled), Case()),
    "schedules": (
        exchange_method(schedules.SchedulerBridge, "step", lambda self, *args: None),
        Case(more={"scheduler": lambda optimizer: StepLR(optimizer, 1, 0.5)}),
    ),
    "assigned_buffers": (
        exchange_method(assigned_buffers, "list_held_buffers", lambda modules: []),
        Case(model=lambda: Remembering(4, 3)),
    ),
    "batch_counts": (exchange_all(batch_counts._count_uses, lambda uses: {}), Case(model=normed)),
    "cumulative_counts": (
        exchange_method(cumulative_counts, "_exchange_types", adding_to_counts),
        Case(model=cumulative),
    ),
    "checkpoints": (
        exchange_all(
            checkpoints.plain_state_dict,
            lambda state: type(state)((name, value + 1) for name, value in state.items()),
        ),
        Case(),
    ),
    "the loader: labels are shifted": (
        change_loader(lambda batches: [[x, y.roll(1, 0)] for x, y in batches]),
        Case(batches=loader),
    ),
    "the loader: a batch is left out": (change_loader(lambda batches: batches[1:]), Case(batches=loader)),
    "the loader: samples come twice": (
        change_loader(lambda batches: [batch for batch in batches for _ in range(2)]),
        Case(batches=loader),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_no_proof_says_pass(name, monkeypatch):
    plant, case = FAULTS[name]
    assert prove(case).verdict in (Verdict.PASS, Verdict.INCOMPLETE)
    plant(monkeypatch)

    try:
        certificate = prove(case)
    except (porting.PortingError, RuntimeError):
        return  # it cannot even be run

    wanted = Verdict.INCOMPLETE if case.loss is TWO_LOSSES else Verdict.FAIL
    assert certificate.verdict is wanted, str(certificate)


def test_every_module_of_the_adapters_has_its_fault_or_computes_nothing():
    modules = {module.name for module in pkgutil.iter_modules(adapters.__path__)}
    planted = {name.partition(":")[0] for name in FAULTS if not name.startswith("the loader")}

    assert planted | set(WITHOUT_NUMBERS) == modules
    assert not planted & set(WITHOUT_NUMBERS)
