"""Optimizers: constructors, what the device gets of them, their state, and changes after compilation."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

import torch

from tests.hardware.material import batch, regression

_ARGUMENTS: Mapping[str, Sequence[Dict[str, Any]]] = {
    "SGD": (
        {"lr": 0.1},
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"lr": 0.1, "weight_decay": 0.1},
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.5},
        {"lr": 0.1, "use_combined_accum": True, "momentum": 0.5},
        {"lr": 0.1, "velocity_scaling": 2.0},
        {"lr": 0.1, "use_combined_accum": True, "velocity_scaling": 2.0, "momentum": 0.5},
        {"lr": 0.1, "loss_scaling": 4.0},
        {"lr": 0.1, "max_grad_norm": 0.1},
        {"lr": -1.0},
        {"lr": 0.1, "bad": 1},
        {"lr": 0.1, "accum_type": torch.float64},
        {"lr": 0.1, "velocity_accum_type": torch.float64},
        {"lr": "fast"},
        {"lr": torch.tensor(0.1)},
        {"lr": 0.1, "nesterov": True},
        {},
    ),
    "Adam": (
        {},
        {"lr": 0.1, "betas": (0.8, 0.9), "eps": 1e-6},
        {"weight_decay": 0.1},
        {"betas": [0.8, 0.9]},
        {"betas": (0.8,)},
        {"betas": 0.9},
        {"betas": (1.5, 0.9)},
        {"amsgrad": True},
        {"amsgrad": False},
        {"loss_scaling": 8.0},
        {"max_grad_norm": 0.1},
        {"accum_type": torch.int32},
        {"first_order_momentum_accum_type": torch.float64},
        {"lr": torch.tensor(0.1)},
        {"eps": -1.0},
    ),
    "AdamW": (
        {},
        {"lr": 0.1, "betas": (0.8, 0.9)},
        {"weight_decay": 0.0},
        {"bias_correction": False},
        {"betas": [0.8, 0.9]},
        {"amsgrad": True},
        {"second_order_momentum_accum_type": torch.float64},
    ),
    "RMSprop": (
        {},
        {"lr": 0.1, "alpha": 0.9},
        {"centered": True},
        {"momentum": 0.9},
        {"weight_decay": 0.1},
        {"use_tf_variant": True},
        {"use_tf_variant": False},
        {"alpha": -1.0},
        {"accum_type": torch.float64},
    ),
    "LAMB": (
        {},
        {"lr": 0.1, "max_weight_norm": 5.0},
        {"bias_correction": False},
        {"betas": [0.8, 0.9]},
        {"accum_type": torch.float64},
        {"lr": torch.tensor(0.1)},
    ),
}
_UNTRAINED = {"LAMB"}  # the stub has no arithmetic for it


def _device_settings(executor: Any) -> Any:
    return executor._dict_optimizer


def _built(kind: str, arguments: Dict[str, Any], of_torch: bool = False) -> Callable[[Any], Any]:
    """Wrap a model with the optimizer, look at what the device gets, and train twice."""

    def call(poptorch: Any) -> Any:
        model = regression()
        made = getattr(torch.optim if of_torch else poptorch.optim, kind)(model.parameters(), **arguments)
        executor = poptorch.trainingModel(model, optimizer=made)
        settings = _device_settings(executor)
        if kind in _UNTRAINED or arguments.get("use_tf_variant"):
            return settings
        return [settings, [executor(*batch())[1] for _ in range(3)]]

    return call


def _changed(
    change: Callable[[Any], None],
    kind: str = "SGD",
    of_torch: bool = False,
    constants: Tuple[str, ...] = (),
    **arguments: Any,
) -> Callable[[Any], Any]:
    """Train, change the optimizer's settings, hand them over and train again."""

    def call(poptorch: Any) -> Any:
        model = regression()
        made = getattr(torch.optim if of_torch else poptorch.optim, kind)(model.parameters(), **arguments)
        for name in constants:
            made.variable_attrs.markAsConstant(name)
        executor = poptorch.trainingModel(model, optimizer=made)
        losses = [executor(*batch())[1]]
        change(made)
        executor.setOptimizer(made)
        return [*losses, executor(*batch())[1], executor(*batch())[1]]

    return call


def _put(**settings: Any) -> Callable[[Any], None]:
    def change(optimizer: Any) -> None:
        for group in optimizer.param_groups:
            group.update(settings)

    return change


def _replaced(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        model = regression()
        executor = poptorch.trainingModel(model, optimizer=first(poptorch, model.parameters()))
        losses = [executor(*batch())[1]]
        executor.setOptimizer(second(poptorch, model.parameters()))
        return [*losses, executor(*batch())[1], executor(*batch())[1]]

    return call


def _with_attributes(use: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda p: use(p.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9).variable_attrs)


def _marked(poptorch: Any) -> Any:
    attributes = poptorch.optim.VariableAttributes(["lr"], ["lr", "momentum"])
    attributes.markAsVariable("momentum")
    attributes.markAsConstant("lr")
    return [attributes.isConstant("lr"), attributes.isConstant("momentum"), attributes.isConstant("unknown")]


def _groups(poptorch: Any) -> Any:
    model = regression()
    weight, bias = model.parameters()
    made = poptorch.optim.SGD(
        [{"params": [weight], "lr": 0.5}, {"params": [bias], "momentum": 0.5}], lr=0.01, momentum=0.9
    )
    executor = poptorch.trainingModel(model, optimizer=made)
    return [_device_settings(executor), [executor(*batch())[1] for _ in range(3)]]


def _centered_apart(poptorch: Any) -> Any:
    model = regression()
    weight, bias = model.parameters()
    made = poptorch.optim.RMSprop([{"params": [weight], "centered": True}, {"params": [bias]}])
    poptorch.trainingModel(model, optimizer=made)


def _foreign(poptorch: Any) -> Any:
    executor = poptorch.trainingModel(regression(), optimizer=poptorch.optim.SGD(regression().parameters(), lr=0.1))
    try:
        executor(*batch())
    except KeyError:  # its text is an address
        return "KeyError"


def _states(poptorch: Any) -> Any:
    model = regression()
    made = poptorch.optim.Adam(model.parameters(), lr=0.1)
    executor = poptorch.trainingModel(model, optimizer=made)
    before = [made.has_state(), sorted(made.state_dict())]
    executor(*batch())
    state = made.state_dict()
    return [*before, made.has_state(), sorted(state), state["ipu_state"]]


def _carried_over(poptorch: Any) -> Any:
    losses, state = [], None
    model = regression()
    for _ in range(2):
        made = poptorch.optim.Adam(model.parameters(), lr=0.1)
        if state is not None:
            made.load_state_dict(state)
        executor = poptorch.trainingModel(model, optimizer=made)
        losses += [executor(*batch())[1] for _ in range(2)]
        state = made.state_dict()
        executor.destroy()
    return [losses, state["ipu_state"] if state else None]


def _loaded_while_compiled(poptorch: Any) -> Any:
    model = regression()
    made = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    executor = poptorch.trainingModel(model, optimizer=made)
    executor(*batch())
    state = made.state_dict()
    executor(*batch())
    made.load_state_dict(state)
    executor.setOptimizer(made)
    executor(*batch())
    return made.state_dict()["ipu_state"]


def _detached(poptorch: Any) -> Any:
    model = regression()
    made = poptorch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    executor = poptorch.trainingModel(model, optimizer=made)
    executor(*batch())
    executor.detachFromDevice()
    _put(lr=0.5)(made)
    executor.setOptimizer(made)
    executor.attachToDevice()
    return [executor(*batch())[1] for _ in range(2)]


def _scheduled(poptorch: Any) -> Any:
    model = regression()
    made = poptorch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(made, 1, gamma=0.5)
    executor = poptorch.trainingModel(model, optimizer=made)
    rates = []
    for _ in range(3):
        executor(*batch())
        made.step()
        scheduler.step()
        executor.setOptimizer(made)
        rates.append(_device_settings(executor)["groups"][0]["learningRate"])
    return rates


def _half_accumulators(poptorch: Any) -> Any:
    model = regression()
    options = poptorch.Options()
    made = poptorch.optim.Adam(model.parameters(), accum_type=torch.float16)
    executor = poptorch.trainingModel(model, options, made)
    return executor.options.Training.meanAccumulationAndReplicationReductionStrategy


def _half_accumulators_later(poptorch: Any) -> Any:
    model = regression()
    executor = poptorch.trainingModel(model, optimizer=poptorch.optim.Adam(model.parameters()))
    executor(*batch())
    executor.setOptimizer(poptorch.optim.Adam(model.parameters(), accum_type=torch.float16))


def _automatic_loss_scaling(poptorch: Any) -> Any:
    model = regression()
    options = poptorch.Options()
    options.Training.setAutomaticLossScaling(True)
    executor = poptorch.trainingModel(model, options, poptorch.optim.SGD(model.parameters(), lr=0.1))
    return _device_settings(executor)["defaults"]


def _extra_attribute(optimizer: Any) -> None:
    optimizer.extra = 1
    optimizer.param_groups[0]["other"] = 2


class _OfUser(torch.optim.SGD):
    """An optimizer derived from torch's."""


class _OfUserTwice(_OfUser):
    """One that is derived from another of the user's."""


def _derived(cls: Any) -> Callable[[Any], Any]:
    def call(poptorch: Any) -> Any:
        model = regression()
        return poptorch.trainingModel(model, optimizer=cls(model.parameters(), lr=0.1))(*batch())[1]

    return call


def _sgd(poptorch: Any, parameters: Any) -> Any:
    return poptorch.optim.SGD(parameters, lr=0.1)


_MORE: Dict[str, Callable[[Any], Any]] = {
    "variable attributes": _marked,
    "variable attributes that were passed": _with_attributes(
        lambda a: [a.isConstant(n) for n in ("lr", "momentum", "weight_decay")]
    ),
    "mark an unknown attribute as constant": _with_attributes(lambda a: a.markAsConstant("betas")),
    "mark an unknown attribute as variable": _with_attributes(lambda a: a.markAsVariable("betas")),
    "groups": _groups,
    "groups that are centered apart": _centered_apart,
    "parameters of another model": _foreign,
    "no optimizer": lambda p: _device_settings(p.trainingModel(regression())),
    "an optimizer that is none": lambda p: p.trainingModel(regression(), optimizer="SGD"),
    "state before and after training": _states,
    "state carried over to another executor": _carried_over,
    "state loaded while compiled": _loaded_while_compiled,
    "load an empty state": lambda p: p.optim.SGD(regression().parameters(), lr=0.1).set_state_dict({}),
    "load a state of torch": lambda p: p.optim.SGD(regression().parameters(), lr=0.1).load_state_dict(
        torch.optim.SGD(regression().parameters(), lr=0.1).state_dict()
    ),
    "set a state of torch": lambda p: p.optim.SGD(regression().parameters(), lr=0.1).set_state_dict({"state": {}}),
    "another learning rate": _changed(_put(lr=0.5), lr=0.1),
    "another learning rate without a change": _changed(_put(), lr=0.1),
    "another momentum": _changed(_put(momentum=0.5), lr=0.1, momentum=0.9),
    "another constant momentum": _changed(_put(momentum=0.5), lr=0.1, momentum=0.9, constants=("momentum",)),
    "a momentum that was not passed": _changed(_put(momentum=0.5), lr=0.1),
    "torch: another learning rate": _changed(_put(lr=0.5), of_torch=True, lr=0.1),
    "torch: a momentum where there was none": _changed(_put(momentum=0.5), of_torch=True, lr=0.1),
    "torch: another momentum": _changed(_put(momentum=0.5), of_torch=True, lr=0.1, momentum=0.9),
    "torch: a momentum that ends": _changed(_put(momentum=0.0), of_torch=True, lr=0.1, momentum=0.9),
    "torch: other betas": _changed(_put(betas=(0.5, 0.6)), kind="Adam", of_torch=True),
    "other betas": _changed(_put(betas=(0.5, 0.6)), kind="Adam", betas=(0.9, 0.99)),
    "another weight decay that was not passed": _changed(_put(weight_decay=0.1), kind="AdamW"),
    "a learning rate that becomes a tensor": _changed(_put(lr=torch.tensor(0.5)), lr=0.1),
    "betas that become a list": _changed(_put(betas=[0.5, 0.6]), kind="Adam", betas=(0.9, 0.99)),
    "an attribute that appears": _changed(_extra_attribute, lr=0.1),
    "torch: an attribute that appears": _changed(_extra_attribute, of_torch=True, lr=0.1),
    "another loss scaling": _changed(lambda o: setattr(o, "loss_scaling", 4.0), lr=0.1, loss_scaling=2.0),
    "another loss scaling that was not passed": _changed(lambda o: setattr(o, "loss_scaling", 4.0), lr=0.1),
    "another optimizer of the type": _replaced(_sgd, lambda p, w: p.optim.SGD(w, lr=0.5)),
    "torch's optimizer for PopTorch's": _replaced(_sgd, lambda p, w: torch.optim.SGD(w, lr=0.5)),
    "PopTorch's optimizer for torch's": _replaced(lambda p, w: torch.optim.SGD(w, lr=0.1), _sgd),
    "another type of optimizer": _replaced(_sgd, lambda p, w: p.optim.Adam(w)),
    "another learning rate while detached": _detached,
    "a scheduler": _scheduled,
    "half accumulators": _half_accumulators,
    "half accumulators once compiled": _half_accumulators_later,
    "automatic loss scaling": _automatic_loss_scaling,
    "derived from torch's": _derived(_OfUser),
    "derived twice": _derived(_OfUserTwice),
    "of a type that the device lacks": lambda p: p.trainingModel(
        regression(), optimizer=torch.optim.Adagrad(regression().parameters())
    ),
    "for inference": lambda p: p.inferenceModel(regression(), p.Options(), p.optim.SGD(regression().parameters(), 1)),
}


def _calls() -> Dict[str, Callable[[Any], Any]]:
    found: Dict[str, Callable[[Any], Any]] = {}
    for kind, tried in _ARGUMENTS.items():
        for arguments in tried:
            shown = ", ".join(f"{name}={value}" for name, value in arguments.items())
            found[f"{kind}({shown})"] = _built(kind, arguments)
    for kind, arguments in (
        ("SGD", {"lr": 0.1, "momentum": 0.9}),
        ("Adam", {}),
        ("AdamW", {"lr": 0.1}),
        ("RMSprop", {"centered": True}),
        ("SGD", {"lr": torch.tensor(0.1)}),
        ("Adam", {"betas": [0.8, 0.9]}),
        ("Adam", {"amsgrad": True}),
    ):
        shown = ", ".join(f"{name}={value}" for name, value in arguments.items())
        found[f"torch's {kind}({shown})"] = _built(kind, arguments, of_torch=True)
    return {**found, **_MORE}


CALLS = _calls()
