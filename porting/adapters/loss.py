"""Define `LossInForward`, a model whose `forward` computes its loss too, since a device compiles whole steps.

`to_ipu` wraps each model in it.
"""

from __future__ import annotations

import copy
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from operator import itemgetter
from types import SimpleNamespace
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import torch
from torch import nn

from porting.adapters.assigned_buffers import keep_assigned_buffers
from porting.adapters.labels import NO_LABELS, Key, LabelKeys, check_label_keys, split_labels
from porting.adapters.loss_terms import (
    Losses,
    LossTerm,
    PortableLosses,
    compute_terms,
    make_terms,
    name_function,
    sum_losses,
)
from porting.adapters.precision import cast_floats, cast_weights
from porting.adapters.returned_loss import find_loss, make_scalar, refuse_second_loss, replace_loss
from porting.adapters.tracing_guards import PrintGuard, announce_tracing, answer_autocast, guard_gradients
from porting.diagnostics import Finding, OptionError, PortingError, say_kind
from porting.remedies import Remedies, settle

__all__ = ["NO_BACKEND", "LossInForward"]

NO_BACKEND = SimpleNamespace(identity_loss=lambda loss, reduction: loss, isRunningOnIpu=lambda: False)
"""Stands for the backend of a `LossInForward` that runs in plain PyTorch."""

Metric = Callable[[Any, Any], Any]

_PARTS = ("output", "labels", "loss", "losses", "metrics")


@dataclass(frozen=True)
class _LossSetup:
    """What `forward` does; kept apart from the module's attributes, which are the wrapped model's own."""

    model: nn.Module
    terms: Optional[Mapping[str, LossTerm]]
    label: LabelKeys
    loss_output: Optional[Key]
    reduction: Optional[str]
    label_transform: Optional[Callable[[Any], Any]]
    metrics: Mapping[str, Metric]
    returns: Tuple[str, ...]
    input_dtype: Optional[torch.dtype]
    loss_dtype: Optional[torch.dtype]
    output_dtype: Optional[torch.dtype]
    identity_loss: Callable[..., torch.Tensor]
    is_on_device: Callable[[], bool]
    allowed: Optional[Tuple[str, ...]] = None
    is_for_training: bool = True
    remedies: Optional[Remedies] = None
    note_output: Optional[Callable[[Any], None]] = None

    @property
    def loss_modules(self) -> Dict[str, nn.Module]:
        """The losses that are modules, by their name among the terms."""
        terms = (self.terms or {}).items()
        return {name: term.function for name, term in terms if isinstance(term.function, nn.Module)}


class LossInForward(nn.Module):
    """A module around `model` that takes the model's arguments and the label, and returns output and loss.

    The model's class is not edited; its parameters, buffers and sub-modules are shared and keep their names, so that
    `state_dict()` is the model's own. Loss modules that own tensors are registered beside them and stay out of it.

    `loss` is a module or function of output and label; a mapping of several (see `LossTerm`), which are added up; or
    None when the model returns its loss itself, at `loss_output` or where `find_loss` looks. Then all arguments are
    the model's, and its result comes back as it is, with the loss marked.

    `label` says which argument is the label: a position, a name, or a tuple of them (see `split_labels`). A call
    without labels returns the model's output. `label_transform` is applied to the labels first. `reduction` ("mean",
    "sum") makes a scalar of a loss that has several elements. `metrics` are functions of output and label by name.
    `returns` orders what a call gives back: "output", "labels", "loss", "losses" (each term by name, its weight
    included), "metrics". It is `("output", "loss")` unless given, followed by "metrics" when there are any.

    The final loss is marked with `backend.identity_loss`, because a device starts from the last marked loss and not
    from what `forward` returns. `input_dtype`, `loss_dtype` and `output_dtype` are the casts of a `PrecisionPlan`; with
    `output_dtype` the loss is computed outside of autocast. With `allowed`, slugs of findings, a trace refuses what
    changes gradients and would be lost (C005, C007), unless it is named there; by default it is lost as on the device.
    `remedies` are applied while a device traces; what took part is kept for `take_findings`. `note_output` gets what a
    trace returns.

    Raises OptionError P002 for arguments that do not go together. A call raises PortingError L002, L003, L004, L006 or
    L007, and CaptureError C010 for printing a tensor while the device traces.

    >>> wrapped = LossInForward(nn.Linear(4, 2), nn.CrossEntropyLoss(), backend=NO_BACKEND)
    >>> output, loss = wrapped(torch.ones(3, 4), torch.tensor([0, 1, 1]))
    >>> tuple(output.shape), tuple(loss.shape), list(wrapped.state_dict())
    ((3, 2), (), ['weight', 'bias'])
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Optional[Losses] = None,
        *,
        backend: Any,
        label: LabelKeys = -1,
        loss_output: Optional[Key] = None,
        reduction: Optional[str] = None,
        label_transform: Optional[Callable[[Any], Any]] = None,
        metrics: Optional[Mapping[str, Metric]] = None,
        returns: Optional[Sequence[str]] = None,
        input_dtype: Optional[torch.dtype] = None,
        loss_dtype: Optional[torch.dtype] = None,
        output_dtype: Optional[torch.dtype] = None,
        allowed: Optional[Sequence[str]] = None,
        remedies: Optional[Remedies] = None,
        note_output: Optional[Callable[[Any], None]] = None,
    ) -> None:
        _check_model(model)
        super().__init__()
        setup = _LossSetup(
            model=model,
            terms=None if loss is None else make_terms(loss),
            label=label,
            loss_output=loss_output,
            reduction=reduction,
            label_transform=label_transform,
            metrics=dict(metrics or {}),
            returns=tuple(returns or (("output", "loss", "metrics") if metrics else ("output", "loss"))),
            input_dtype=input_dtype,
            loss_dtype=loss_dtype,
            output_dtype=output_dtype,
            identity_loss=backend.identity_loss,
            is_on_device=backend.isRunningOnIpu,
            allowed=None if allowed is None else tuple(allowed),
            remedies=remedies,
            note_output=note_output,
        )
        _check_setup(setup, is_returns_given=returns is not None)
        self._loss_setup = setup
        # the model's registries are this module's too: every tensor keeps its name and is exchanged for both at once
        for registry in ("_parameters", "_buffers", "_non_persistent_buffers_set"):
            self.__dict__[registry] = model.__dict__[registry]
        losses, modules = _collect_stateful_losses(setup), model.__dict__["_modules"]
        self.__dict__["_modules"] = type(modules)(chain(modules.items(), losses.items())) if losses else modules
        self.training = model.training

    @property
    def _porting_model_name(self) -> str:
        """What reports call the model: the name of its own class."""
        return type(self._loss_setup.model).__name__

    @property
    def _porting_allowed(self) -> Optional[Tuple[str, ...]]:
        """Slugs that a capture tolerates although the host's autograd differs; None: all that the device does."""
        return self._loss_setup.allowed

    @property
    def _porting_model(self) -> nn.Module:
        """The user's own module, which runs although it is no part of this one."""
        return self._loss_setup.model

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model and its loss; see the class."""
        setup = self._loss_setup
        call = _call_with_own_loss if setup.terms is None else _call_with_added_loss
        if not setup.is_on_device():
            return call(setup, args, kwargs)
        # a device records this: printing is refused, and libraries that ask are told of the trace; losses that the
        # device lacks are computed by other operators, and gradients that it would lose are refused
        with PrintGuard(), PortableLosses(), announce_tracing(), answer_autocast(), ExitStack() as guards:
            if setup.allowed is not None:
                guards.enter_context(guard_gradients(setup.allowed, trains=setup.is_for_training))
            if setup.remedies is not None:
                guards.enter_context(setup.remedies.applied(setup.model, trains=setup.is_for_training))
                returned = settle(call(setup, args, kwargs))
            else:
                returned = call(setup, args, kwargs)
            if setup.note_output is not None:
                setup.note_output(returned)
            return returned

    def take_findings(self) -> Iterator[Finding]:
        """Give what the remedies changed in the traces since the last time, as findings, and forget it."""
        return iter(()) if self._loss_setup.remedies is None else self._loss_setup.remedies.take_findings()

    def find_loss_of(self, output: object, labels: object) -> Optional[torch.Tensor]:
        """Compute the loss of an output as `forward` does, on the host; None for a model that has a loss of its own."""
        setup = self._loss_setup
        if setup.terms is None:
            return None
        labels = labels if setup.label_transform is None else setup.label_transform(labels)
        return sum_losses(_compute_losses(setup, cast_floats(output, setup.loss_dtype), labels))

    def for_inference(self) -> LossInForward:
        """Make a view for inference: it shares everything and lets a model that has its own loss return without one."""
        return self._make_view(is_for_training=False)

    def for_backend(self, backend: Any) -> LossInForward:
        """Make a view for another backend: it shares everything, and marks the loss as that one wants it."""
        remedies = self._loss_setup.remedies
        return self._make_view(
            identity_loss=backend.identity_loss,
            is_on_device=backend.isRunningOnIpu,
            remedies=None if remedies is None else remedies.for_backend(backend),
        )

    def _make_view(self, **changes: Any) -> LossInForward:
        view = copy.copy(self)
        view._loss_setup = replace(self._loss_setup, **changes)
        return view

    @property
    def functions(self) -> Tuple[Callable[..., Any], ...]:
        """What a call may run besides the model: the losses, the metrics, what changes the labels, and remedies."""
        setup = self._loss_setup
        transform = () if setup.label_transform is None else (setup.label_transform,)
        remedies = () if setup.remedies is None else setup.remedies.functions
        return (*(t.function for t in (setup.terms or {}).values()), *setup.metrics.values(), *transform, *remedies)

    @property
    def loss_of(self) -> Callable[[Any], Any]:
        """The function that finds the loss inside what a training call returned."""
        setup = self._loss_setup
        if setup.terms is None:
            return partial(find_loss, loss_output=setup.loss_output)
        return itemgetter(setup.returns.index("loss"))

    @property
    def output_of(self) -> Optional[Callable[[Any], Any]]:
        """The function that finds the model's output inside what a training call returned; None if it is not there."""
        setup = self._loss_setup
        if setup.terms is None:
            return lambda returned: returned
        return itemgetter(setup.returns.index("output")) if "output" in setup.returns else None

    def train(self, mode: bool = True) -> LossInForward:
        """Switch the model and its loss modules, each by its own `train`."""
        self.training = mode
        for module in (self._loss_setup.model, *self._loss_setup.loss_modules.values()):
            module.train(mode)
        return self

    def state_dict(
        self, *args: Any, destination: Optional[Dict[str, Any]] = None, prefix: str = "", keep_vars: bool = False
    ) -> Any:
        """Return the model's own state, which loads into the plain model.

        With `keep_vars=True` the loss's tensors are there too: so backends ask for all tensors, to find the shared
        ones. Positional arguments, which torch deprecates and PopTorch passes, come in the order of the keywords.
        """
        given: Tuple[Any, ...] = (*args, *(destination, prefix, keep_vars)[len(args) :])
        destination, prefix, keep_vars = given
        state = self._loss_setup.model.state_dict(destination=destination, prefix=prefix, keep_vars=keep_vars)
        if keep_vars:
            for name, module in _collect_stateful_losses(self._loss_setup).items():
                module.state_dict(destination=state, prefix=f"{prefix}{name}.", keep_vars=True)
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load the model's own state, with torch's rules and result."""
        # torch 2.0 does not know `assign`
        extra = {"assign": True} if assign else {}
        return self._loss_setup.model.load_state_dict(state_dict, strict=strict, **extra)


def _collect_stateful_losses(setup: _LossSetup) -> Dict[str, nn.Module]:
    """Name the loss modules that own tensors, beside the names that the model uses."""
    modules: Dict[str, nn.Module] = {}
    for name, module in setup.loss_modules.items():
        if any(True for _ in chain(module.parameters(), module.buffers())):
            name = name if len(setup.loss_modules) == 1 and name == "loss" else f"loss_{name}"
            while hasattr(setup.model, name) or name in modules:
                name += "_"
            modules[name] = module
    return modules


def _call_with_own_loss(setup: _LossSetup, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    returned = _call_model(setup, args, kwargs)
    if not setup.is_for_training:
        return returned
    found = find_loss(returned, setup.loss_output)
    loss = make_scalar(found, name="the model's own loss", reduction=setup.reduction)
    if setup.loss_output is None:
        refuse_second_loss(returned, found)
    return replace_loss(returned, _mark_loss(setup, loss), setup.loss_output)


def _call_with_added_loss(setup: _LossSetup, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    args, kwargs, labels = split_labels(setup.model.forward, args, kwargs, label=setup.label)
    output = _call_model(setup, args, kwargs)
    if labels is NO_LABELS:
        return output
    if setup.label_transform is not None:
        labels = setup.label_transform(labels)
    scored = cast_floats(output, setup.loss_dtype)
    with torch.autocast("cpu", enabled=False) if setup.output_dtype is not None else nullcontext():
        losses = _compute_losses(setup, scored, labels)
        with torch.no_grad():
            metrics = {name: metric(scored, labels) for name, metric in setup.metrics.items()}
        loss = _mark_loss(setup, _demote_metrics(sum_losses(losses), metrics))
    parts = {"output": output, "labels": labels, "loss": loss, "losses": losses, "metrics": metrics}
    return tuple(parts[name] for name in setup.returns)


def _compute_losses(setup: _LossSetup, scored: object, labels: object) -> Dict[str, torch.Tensor]:
    return compute_terms(setup.terms or {}, scored, labels, label=setup.label, reduction=setup.reduction)


def _call_model(setup: _LossSetup, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    keeps: ContextManager[None] = keep_assigned_buffers(setup.model) if setup.is_on_device() else nullcontext()
    with keeps, nullcontext() if setup.input_dtype is None else cast_weights(setup.model, setup.input_dtype):
        args, kwargs = cast_floats((tuple(args), dict(kwargs)), setup.input_dtype)
        return cast_floats(setup.model(*args, **kwargs), setup.output_dtype)


def _demote_metrics(loss: torch.Tensor, metrics: Mapping[str, Any]) -> torch.Tensor:
    """Let the metrics lead to the loss without changing it or its gradient."""
    # PopTorch's rule: a built-in loss function counts as a loss wherever it is called, and one that no other loss is
    # computed from is final; a mean squared error as a metric would be a second final loss
    for metric in metrics.values():
        if isinstance(metric, torch.Tensor) and metric.is_floating_point():
            never = torch.zeros_like(loss, dtype=torch.bool, device=loss.device)
            loss = torch.where(never, metric.detach().sum().to(loss.dtype), loss)
    return loss


def _mark_loss(setup: _LossSetup, loss: torch.Tensor) -> torch.Tensor:
    # `requires_grad` of a tensor that a device traces says nothing; there the backend finds a detached loss
    is_detached = not loss.requires_grad and torch.is_grad_enabled() and not setup.is_on_device()
    if setup.is_for_training and is_detached and any(weight.requires_grad for weight in setup.model.parameters()):
        names = ", ".join(name_function(term.function) for term in (setup.terms or {}).values())
        raise PortingError.at_caller(
            "L003",
            notes=f"the loss is computed by {names or 'the model'}",
            help="look for `.detach()`, `.data`, `torch.no_grad()` and integer arithmetic on the way to the loss",
        )
    return setup.identity_loss(loss, reduction="none")


def _check_model(model: object) -> None:
    """Refuse what is no plain module, naming the module inside where there is one."""
    if not isinstance(model, nn.Module):
        fault, remedy = f"`model` is {say_kind(model)}, not a torch.nn.Module", "pass the module itself"
    elif isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        fault = f"`model` is wrapped in {type(model).__name__}"
        remedy = "pass `model.module`; `PortOptions(replicas=N)` is what spreads a batch over N devices"
    elif isinstance(model, LossInForward):
        fault, remedy = "`model` has its loss in `forward` already", "pass the plain model"
    elif isinstance(model, torch.jit.ScriptModule):
        fault, remedy = "`model` is a TorchScript module", "pass the Python module it was made from"
    elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
        fault, remedy = "`model` was compiled with `torch.compile`", "pass the module it was made from"
    elif callable(getattr(model, "copyWeightsToHostIfNeeded", None)):
        fault = f"`model` is {say_kind(model)}, wrapped for training on a device already"
        remedy = "call `destroy()` on the ported model first, or build the model anew"
    else:
        return
    raise OptionError.at_caller("P002", message=fault, help=remedy)


def _check_setup(setup: _LossSetup, *, is_returns_given: bool) -> None:
    check_label_keys(setup.label)
    faults: List[str] = []
    if setup.reduction not in (None, "mean", "sum"):
        faults.append(f"`reduction` is {setup.reduction!r}; it takes None, 'mean' or 'sum'")
    unknown = [name for name in setup.returns if name not in _PARTS]
    if unknown or len(set(setup.returns)) != len(setup.returns) or "loss" not in setup.returns:
        faults.append(f"`returns` is {setup.returns!r}; it takes 'loss' and others of {_PARTS}, each once")
    if "metrics" in setup.returns and not setup.metrics:
        faults.append("`returns` names 'metrics', but there are none")
    if setup.terms is not None and setup.loss_output is not None:
        faults.append("`loss_output` is for models that return their own loss, but `loss` is given")
    if setup.terms is None:
        needless = {
            "label": setup.label != -1,
            "label_transform": setup.label_transform is not None,
            "metrics": bool(setup.metrics),
            "returns": is_returns_given,
        }
        faults += [f"`{name}` has no meaning without `loss`" for name, is_given in needless.items() if is_given]
    if faults:
        raise OptionError.at_caller("P002", message=faults[0], notes=tuple(faults[1:]))
