"""Evidence of one step, made of numbers: what a hypothesis looks at, without a port that has run."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import torch
from torch import nn

from porting.verify.certificate import Measured
from porting.verify.fault_location.cases import Case
from porting.verify.fault_location.evidence import Evidence
from porting.verify.fault_location.traced_steps import StateParts, StepTrace
from porting.verify.plain_training import PlainTraining


def make_training(model=None, loss=None, optimizer=None, **settings):
    """Return a plain training of a linear layer."""
    model = nn.Linear(5, 4) if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if optimizer is None else optimizer
    return PlainTraining(model, loss or nn.CrossEntropyLoss(), optimizer, **settings)


def make_evidence(plain=None, *, replicas=1, loss_scaling=1.0, model=None, **parts):
    """Return evidence whose port is no more than its options, its optimizer's loss scaling and perhaps a model."""
    plain = make_training() if plain is None else plain
    ported = SimpleNamespace(
        options=SimpleNamespace(replicas=replicas),
        optimizer=SimpleNamespace(loss_scaling=loss_scaling),
        model=plain.model if model is None else model,
    )
    return Evidence(plain, ported, Measured("loss", "loss", 1, 1.0, 1.0, 0.0), **parts)


# -- losses ------------------------------------------------------------------------------------------------------------


def make_loss_case(compute, *, parts=1, model=None, loss=None, labels=None):
    """Return the case of losses that `compute` makes in the port, of model, loss, inputs and labels."""
    torch.manual_seed(0)
    plain = make_training(model, loss)
    inputs = [torch.randn(6, 5) for _ in range(parts)]
    labels = [torch.randint(4, (6,)) for _ in range(parts)] if labels is None else labels
    micro_batches = [((x, y), {}) for x, y in zip(inputs, labels)]
    evidence = make_evidence(plain, micro_batches=micro_batches)
    sides = []
    for make in (lambda model, loss, x, y: loss(model(x), y), compute):
        torch.set_rng_state(evidence.random_state)
        with torch.no_grad():
            own = [make(copy.deepcopy(plain.model), plain.loss, x, y).double() for x, y in zip(inputs, labels)]
        sides.append({"loss": torch.stack(own)})
    return Case(sides[0], sides[1], ["loss"], evidence, tolerance=1e-4)


# -- gradients ---------------------------------------------------------------------------------------------------------


def make_gradient_case(weights, *, replicas=1, loss_scaling=1.0, ratios=None):
    """Return the case of a step whose micro-batches count `weights` times in the port's gradient."""
    generator = torch.Generator().manual_seed(0)
    own = [{name: torch.randn(4, 3, generator=generator) for name in ("weight", "other")} for _ in weights]
    names = list(own[0])
    plain = {name: sum(part[name] for part in own) / len(own) for name in names}
    ported = {name: sum(weight * part[name] for weight, part in zip(weights, own)) / len(own) for name in names}
    evidence = make_evidence(
        replicas=replicas,
        loss_scaling=loss_scaling,
        micro_batches=[((), {})] * len(own),
        step=StepTrace(own_gradients=own),
        ratios={} if ratios is None else {"gradient": ratios},
    )
    return Case(plain, ported, names, evidence)


# -- updates -----------------------------------------------------------------------------------------------------------


def make_update_case(make_optimizer, change, *, steps=3, ratios=None, names=("weight", "bias")):
    """Return the case of the last of `steps`, which `change` makes of the model and the optimizer before it."""
    torch.manual_seed(0)
    model = nn.Linear(5, 4)
    optimizer = make_optimizer(model.parameters())
    for _ in range(steps - 1):
        model(torch.randn(6, 5)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    model(torch.randn(6, 5)).square().sum().backward()
    of = {parameter: name for name, parameter in model.named_parameters()}
    slots = {of[p]: {k: v for k, v in own.items() if v is not None} for p, own in optimizer.state.items()}
    before = StateParts.of(model.named_parameters(), {}, slots)
    gradients = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    twin, twins_optimizer = copy.deepcopy((model, optimizer))
    for name, parameter in twin.named_parameters():
        parameter.grad = gradients[name].clone()
    optimizer.step()
    change(twin, twins_optimizer)
    plain, ported = (
        {name: parameter.detach() - before.parameters[name] for name, parameter in side.named_parameters()}
        for side in (model, twin)
    )
    evidence = make_evidence(
        make_training(model, optimizer=optimizer),
        step=StepTrace(before=before, gradients=gradients),
        ratios={} if ratios is None else {"update": ratios},
    )
    return Case(plain, ported, list(names), evidence)
