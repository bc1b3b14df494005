"""Ports with one fault each, as people make them, and the kind of quantity that a proof finds first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Optional

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

import porting
from porting import PortedTraining, PortOptions


class Net(nn.Module):
    """Convolution, BatchNorm, LayerNorm, two linear layers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.hidden = nn.Linear(4 * 16, 16)
        self.layer_norm = nn.LayerNorm(16)
        self.last = nn.Linear(16, 3)
        self.register_buffer("scale", torch.full((16,), 2.0))

    def forward(self, x):
        x = self.norm(self.conv(x)).relu().flatten(1)
        return self.last(self.layer_norm(self.hidden(x)).tanh() * self.scale)


class Tied(nn.Module):
    """An embedding whose weight is that of the last layer."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 8)
        self.last = nn.Linear(8, 7, bias=False)
        self.last.weight = self.embedding.weight

    def forward(self, x):
        return self.last(self.embedding(x).mean(1))


class Counting(Net):
    """The same with a count of the samples, in whole numbers."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.tensor(0))

    def forward(self, x):
        self.seen.add_(len(x))
        return super().forward(x)


class Dropping(Net):
    """The same with Dropout."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return self.dropout(super().forward(x))


def sgd(model, **changes):
    return torch.optim.SGD(model.parameters(), **{"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3, **changes})


def adam(model, **changes):
    return torch.optim.AdamW(model.parameters(), **{"lr": 1e-3, "weight_decay": 0.1, **changes})


def steps_of(optimizer, **changes):
    return StepLR(optimizer, **{"step_size": 3, "gamma": 0.5, **changes})


def make_images(rows=16, seed=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 1, 6, 6, generator=generator), torch.randint(3, (rows,), generator=generator)


def make_words(rows=16):
    generator = torch.Generator().manual_seed(3)
    return torch.randint(7, (rows, 5), generator=generator), torch.randint(7, (rows,), generator=generator)


@dataclass(frozen=True)
class Fault:
    """A fault: what the user trains, how it is ported wrongly, and where that must show first."""

    kind: str
    step: Optional[int]
    port: Callable[[nn.Module], Any]
    model: Callable[[], nn.Module] = Net
    optimizer: Callable[[nn.Module], Any] = sgd
    scheduler: Any = None
    loss: Any = F.cross_entropy
    batches: Any = None
    max_grad_norm: Optional[float] = None


def ported(
    model, *, optimizer=None, loss=F.cross_entropy, change=None, scheduler=None, call=None, batches=None, **settings
):
    """Port `model` rightly, but for what is given; `change` is one of the model."""
    options = settings.pop("options", PortOptions(keep_gradients=True))
    if change is not None:
        model = change(model) or model
    optimizer = sgd(model) if optimizer is None else optimizer(model)
    port = porting.to_ipu(model, loss, optimizer=optimizer, options=options, device="sim", **settings)
    schedule = None if scheduler is None else port.scheduler(scheduler(optimizer))
    return PortedTraining(port, schedule, batches=batches, call=call)


def with_(**settings):
    return lambda model: ported(model, **settings)


def set_to(path, value):
    """Return a change of a model: an attribute, by its path."""

    def change(model):
        *parents, name = path.split(".")
        owner = model
        for parent in parents:
            owner = getattr(owner, parent)
        setattr(owner, name, value)

    return change


def freeze(model):
    model.hidden.requires_grad_(False)


def untie(model):
    model.last.weight = nn.Parameter(model.embedding.weight.detach().clone())


def without_decay_of_biases(model):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.SGD(
        [{"params": decayed}, {"params": others, "weight_decay": 0.0}], lr=0.05, momentum=0.9, weight_decay=0.1
    )


def decay_of_all(model):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.SGD([{"params": decayed}, {"params": others}], lr=0.05, momentum=0.9, weight_decay=0.1)


def scaled_gradient(model):
    own = model.hidden.forward
    model.hidden.forward = lambda x: own(x * 1.01 + (x - x * 1.01).detach())


def without_bias_gradient(model):
    layer = model.hidden
    layer.forward = lambda x: F.linear(x, layer.weight, layer.bias.detach())


def evaluate_first(port, *args, **kwargs):
    """Train the statistics of BatchNorm once more, as an evaluation in training mode does."""
    returned = port(*args, **kwargs)
    with torch.no_grad():
        port.model.norm.running_mean.mul_(0.9)
        port.copy_weights_to_device()
    return returned


def stretched(num_calls):
    """Return a port whose first calls move the weights twice as far, whatever the optimizer's settings are."""

    def port(model):
        made = with_(call=call, optimizer=slow_sgd)(model)
        made.model.num_stretched = 0
        return made

    def call(port, *args, **kwargs):
        before = [parameter.detach().clone() for parameter in port.model.parameters()]
        returned = port(*args, **kwargs)
        port.num_stretched += 1
        if port.num_stretched <= num_calls:
            with torch.no_grad():
                for parameter, old in zip(port.model.parameters(), before):
                    parameter.add_(parameter - old)
            port.copy_weights_to_device()
        return returned

    return port


def slow_sgd(model):
    return sgd(model, lr=0.005)


def saving_other_statistics(model):
    made = ported(model)
    save, mean = made.model.save, made.model.model.norm.running_mean

    def save_others(path, **settings):
        with torch.no_grad():
            mean.add_(1.0)
            save(path, **settings)
            mean.sub_(1.0)

    made.model.save = save_others
    return made


def shifted_schedule(model):
    made = ported(model, scheduler=steps_of)
    made.scheduler.step()
    return made


def swapped_labels(model):
    x, y = make_images()
    y = y.clone()
    y[[0, 1]] = y[[1, 0]] if y[0] != y[1] else (y[[1, 0]] + torch.tensor([1, 0])) % 3
    return ported(model, batches=[(x, y)])


def other_order(model):
    x, y = make_images()
    return ported(model, batches=[(x.flip(0), y)])


def sum_of_losses(outputs, labels):
    return F.cross_entropy(outputs, labels, reduction="sum")


def smoothed(outputs, labels):
    return F.cross_entropy(outputs, labels, label_smoothing=0.01)


def stale_scale(model):
    model.scale.fill_(1.0)


def losing_a_replica(model):
    def loss(outputs, labels):
        value = F.cross_entropy(outputs, labels, reduction="none")
        return value[: len(value) // 2].sum() / len(value)

    return ported(model, loss=loss)


def evaluating_with_training(model):
    made = ported(model)
    made.model.eval = lambda: made.model  # goes on training
    return made


def forgotten_last_bias(model):
    own = model.last
    own.forward = lambda x: F.linear(x, own.weight)


PARTS = PortOptions(micro_batch=4, accumulation=4, keep_gradients=True, output_mode="all")


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3))


LOADER_BATCHES = DataLoader(TensorDataset(*make_images(rows=44)), batch_size=8)

FAULTS = {
    "the loss is a sum": Fault("loss", 1, with_(loss=sum_of_losses)),
    "label smoothing": Fault("loss", 1, with_(loss=smoothed)),
    "accumulated by a sum": Fault("gradient", 1, with_(options=PARTS.replace(reduction="sum")), model=mlp),
    "a bias's gradient is lost": Fault("gradient", 1, with_(change=without_bias_gradient)),
    "a gradient is scaled": Fault("gradient", 1, with_(change=scaled_gradient)),
    "two labels are swapped": Fault("samples", 1, swapped_labels),
    "labels are transformed": Fault("loss", 1, with_(label_transform=lambda y: (y + 1) % 3)),
    "samples and labels in other orders": Fault("samples", 1, other_order),
    "other momentum": Fault("setting", 1, with_(optimizer=lambda m: sgd(m, momentum=0.8))),
    "no momentum": Fault("setting", 1, with_(optimizer=lambda m: sgd(m, momentum=0))),
    "Nesterov's momentum": Fault("setting", 1, with_(optimizer=lambda m: sgd(m, nesterov=True))),
    "dampening": Fault("setting", 1, with_(optimizer=lambda m: sgd(m, dampening=0.1))),
    "other rate": Fault("learning rate", 1, with_(optimizer=lambda m: sgd(m, lr=0.0501))),
    "no weight decay": Fault("setting", 1, with_(optimizer=lambda m: sgd(m, weight_decay=0))),
    "weight decay of biases": Fault("setting", 1, with_(optimizer=decay_of_all), optimizer=without_decay_of_biases),
    "Adam's epsilon": Fault("setting", 1, with_(optimizer=lambda m: adam(m, eps=1e-7)), optimizer=adam),
    "Adam's first beta": Fault("setting", 1, with_(optimizer=lambda m: adam(m, betas=(0.85, 0.999))), optimizer=adam),
    "Adam's second beta": Fault("setting", 1, with_(optimizer=lambda m: adam(m, betas=(0.9, 0.99))), optimizer=adam),
    "Adam for AdamW": Fault(
        "setting",
        1,
        with_(optimizer=lambda m: torch.optim.Adam(m.parameters(), lr=1e-3, weight_decay=0.1)),
        optimizer=adam,
    ),
    "the schedule is ignored": Fault("learning rate", 4, with_(), scheduler=steps_of),
    "the schedule is shifted": Fault("learning rate", 3, shifted_schedule, scheduler=steps_of),
    "the schedule has another factor": Fault(
        "learning rate", 4, with_(scheduler=lambda o: steps_of(o, gamma=0.4)), scheduler=steps_of
    ),
    "clipping is forgotten": Fault("setting", 1, with_(), max_grad_norm=0.1),
    "clipping is another": Fault("setting", 1, with_(max_grad_norm=0.2), max_grad_norm=0.1),
    "BatchNorm's epsilon": Fault("output", 1, with_(change=set_to("norm.eps", 1e-3))),
    "BatchNorm's momentum": Fault("buffer", 1, with_(change=set_to("norm.momentum", 0.01))),
    "BatchNorm in evaluation": Fault("output", 1, with_(change=lambda m: m.norm.eval() and None)),
    "LayerNorm's epsilon": Fault("output", 1, with_(change=set_to("layer_norm.eps", 1e-6))),
    "a frozen layer": Fault("gradient", 1, with_(change=freeze)),
    "a stale buffer": Fault("buffer", 0, with_(change=stale_scale)),
    "a layer that is left out": Fault("parameter", 0, with_(change=set_to("layer_norm", nn.Identity()))),
    "a bias that is not used": Fault("output", 1, with_(change=forgotten_last_bias)),
    "weights are untied": Fault("parameter", 0, with_(change=untie), model=Tied, batches=make_words()),
    "other weights": Fault("parameter", 0, with_(change=lambda m: m.last.reset_parameters())),
    "another rate of Dropout": Fault("output", 1, with_(change=set_to("dropout.p", 0.25)), model=Dropping),
    "no Dropout": Fault("output", 1, with_(change=set_to("dropout.p", 0.0)), model=Dropping),
    "a replica's gradients are lost": Fault("loss", 1, losing_a_replica),
    "statistics change between calls": Fault("buffer", 1, with_(call=evaluate_first)),
    "updates are stretched": Fault("update", 1, stretched(99), optimizer=slow_sgd),
    "one update is stretched": Fault("update", 1, stretched(1), optimizer=slow_sgd),
    "other statistics are saved": Fault("evaluation", None, saving_other_statistics),
    "a count is not kept": Fault("buffer", 1, with_(), model=Counting),
    "evaluation goes on training": Fault("evaluation", None, evaluating_with_training),
    "the last samples of an epoch are dropped": Fault(
        "samples", 1, with_(options=PARTS.replace(micro_batch=1, accumulation=2)), batches=LOADER_BATCHES
    ),
}


def prove(fault: Fault, steps: int = 6):
    """Return the certificate of a faulty port."""
    torch.manual_seed(5)
    model = fault.model()
    return porting.verify(
        model,
        fault.loss,
        make_images() if fault.batches is None else fault.batches,
        optimizer=fault.optimizer(model),
        scheduler=fault.scheduler,
        max_grad_norm=fault.max_grad_norm,
        ported=fault.port,
        steps=steps,
        device="sim",
    )
