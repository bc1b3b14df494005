"""Define PopTorch's optimizers: torch's own with the device's extra arguments, and LAMB.

The device reads their settings and does the arithmetic itself; `step` is for training the same model on the CPU.
"""

from __future__ import annotations

import math
from typing import Any, Callable, ClassVar, Dict, Iterable, List, Mapping, Optional, Tuple, Union

import torch

from porting.simulator._logging import logger
from porting.simulator._options_impl import require

__all__ = ["LAMB", "SGD", "Adam", "AdamW", "Optimizer", "RMSprop", "VariableAttributes"]

Parameters = Union[Iterable[torch.Tensor], Iterable[Dict[str, Any]]]

_MOMENT_TYPES = ["accum_type", "first_order_momentum_accum_type", "second_order_momentum_accum_type"]
# Of the arguments that torch's classes lack; the accumulation types are float32.
_DEVICE_DEFAULTS = {
    "loss_scaling": 1.0,
    "velocity_scaling": 1.0,
    "max_grad_norm": math.inf,
    "bias_correction": True,
    "use_combined_accum": False,
    "use_tf_variant": False,
}
_LAMB_DEFAULTS = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 1e-2, "max_weight_norm": 65500.0}


class VariableAttributes:
    """The settings that may change after compiling; the others are constants of the compiled program.

    >>> attributes = VariableAttributes(["lr"], ["lr", "momentum"])
    >>> attributes.markAsVariable("momentum")
    >>> attributes.isConstant("momentum")
    False
    """

    def __init__(self, variable_attributes: List[str], allowed_attributes: List[str]) -> None:
        self._variable_attributes = variable_attributes
        self._allowed_attributes = allowed_attributes

    def isConstant(self, attr: str) -> bool:
        """Tell whether the setting is not marked as variable, which holds for unknown names too."""
        return attr not in self._variable_attributes

    def markAsConstant(self, attr: str) -> None:
        """Make the setting a constant; `AssertionError` for an unknown name."""
        self._refuse_unknown(attr)
        if attr in self._variable_attributes:
            self._variable_attributes.remove(attr)

    def markAsVariable(self, attr: str) -> None:
        """Make the setting changeable; `AssertionError` for an unknown name."""
        self._refuse_unknown(attr)
        if attr not in self._variable_attributes:
            self._variable_attributes.append(attr)

    def _refuse_unknown(self, attr: str) -> None:
        message = f"Unknown attribute {attr}, allowed values: {self._allowed_attributes}"
        require(attr in self._allowed_attributes, message)


class Optimizer:
    """The part that PopTorch's optimizers add to torch's: the state on the device.

    ``_child_only`` names the arguments that torch's class lacks, ``_group_vars`` those that each parameter group has
    its own value of.
    """

    _child_vars: ClassVar[List[str]] = ["loss_scaling"]
    _child_only: ClassVar[List[str]] = []
    _group_vars: ClassVar[List[str]] = []

    bias_correction: bool
    # Of torch's optimizer, which every derived class has as a base too.
    defaults: Dict[str, Any]
    param_groups: List[Dict[str, Any]]

    def __init__(self) -> None:
        # The host's copy of the device's state; the flags say which of the two is out of date.
        self._state_dict: Dict[str, Any] = {"ipu_state": None, "ipu_param": None}
        self.ipu_state_is_dirty = False
        self.host_state_is_dirty = False

    def state_dict(self) -> Dict[str, Any]:
        """Return the device's state (``ipu_state``, ``ipu_param``) and torch's (``state``, ``param_groups``)."""
        return self.get_state_dict()

    def get_state_dict(self) -> Dict[str, Any]:
        """Return the state as it was last read from the device, without reading it."""
        return {**self._state_dict, **torch.optim.Optimizer.state_dict(self)}  # type: ignore[arg-type]

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Take over torch's part of the state now and the device's part with the next run.

        Raises torch's errors for a state without parameter groups (`KeyError`) or with other ones, and `RuntimeError`
        for one that is not a device's: torch's part has been taken over then.
        """
        # in this order, as in PopTorch: torch's errors come first
        torch.optim.Optimizer.load_state_dict(self, state)  # type: ignore[arg-type]
        self.set_state_dict(state)

    def set_state_dict(self, state: Dict[str, Any]) -> None:
        """Take over the device's part of a state; `RuntimeError` if it is empty or not one of a device."""
        if not state:
            raise RuntimeError("Cannot load optimizer state dictionary because it is empty.")
        if "ipu_state" not in state or "ipu_param" not in state:
            raise RuntimeError("Only IPU optimizer states can be loaded onto the IPU.")
        self._state_dict = {"ipu_state": state["ipu_state"], "ipu_param": state["ipu_param"]}
        self.ipu_state_is_dirty = True
        self.host_state_is_dirty = False

    def has_state(self) -> bool:
        """Tell whether there is a state for the device."""
        return self._state_dict["ipu_state"] is not None and self._state_dict["ipu_param"] is not None

    def _start(self, base: Any, arguments: Mapping[str, Any], **defaults: Any) -> None:
        """Initialise `base`, torch's class, with those of `arguments` that it knows; `defaults` are of others."""
        passed = {name: value for name, value in arguments.items() if name != "self" and value is not None}
        of_torch = {name: value for name, value in passed.items() if name not in ("params", *self._child_only)}
        Optimizer.__init__(self)
        if base is torch.optim.Optimizer:
            of_torch = {"defaults": {**defaults, **of_torch}}
        base.__init__(self, arguments["params"], **of_torch)
        betas = self.defaults.get("betas")
        for group in (self.defaults, *self.param_groups):
            for name, value in defaults.items():
                group.setdefault(name, passed.get(name, value))
            # Newer versions of torch make a tuple of a list, which the device refuses: keep what was passed.
            if "betas" in passed and group["betas"] is betas:
                group["betas"] = passed["betas"]
        for name in self._child_only:
            if name.endswith("accum_type"):
                dtype = passed.get(name, torch.float32)
                is_known = dtype in (torch.float16, torch.float32)
                require(is_known, "Accumulation types must be either torch.float32 or torch.float16")
                setattr(self, name, dtype)
            else:
                setattr(self, name, passed.get(name, _DEVICE_DEFAULTS[name]))
        # What the user left out may be compiled in as a constant.
        self.variable_attrs = VariableAttributes(list(passed), [*self.defaults, *self._child_vars])

    def __getstate__(self) -> Dict[str, Any]:
        # torch's own part leaves out every attribute but three
        of_torch: Dict[str, Any] = torch.optim.Optimizer.__getstate__(self)  # type: ignore[arg-type]
        own = {name: self.__dict__[name] for name in (*self._child_only, "variable_attrs") if name in self.__dict__}
        # A copy has no device: its state, if there is one, has to go to the next.
        return {
            **of_torch,
            **own,
            "_state_dict": self._state_dict,
            "ipu_state_is_dirty": self.has_state(),
            "host_state_is_dirty": False,
        }


class SGD(Optimizer, torch.optim.SGD):
    """Stochastic gradient descent with momentum.

    ``loss_scaling`` multiplies the loss and is divided out of the gradients; ``max_grad_norm`` clips the norm of all
    gradients; ``use_combined_accum`` keeps gradient and velocity in one tensor, scaled by ``velocity_scaling``;
    ``accum_type`` and ``velocity_accum_type`` are the types these are stored in, float16 or float32.
    """

    _child_only: ClassVar[List[str]] = (
        "loss_scaling velocity_scaling use_combined_accum accum_type velocity_accum_type max_grad_norm".split()
    )
    _group_vars: ClassVar[List[str]] = ["lr", "momentum", "dampening", "weight_decay", "nesterov", "velocity_scaling"]

    def __init__(
        self,
        params: Parameters,
        lr: float,
        momentum: Optional[float] = None,
        dampening: Optional[float] = None,
        weight_decay: Optional[float] = None,
        nesterov: Optional[bool] = None,
        maximize: Optional[bool] = None,
        foreach: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        velocity_scaling: Optional[float] = None,
        use_combined_accum: Optional[bool] = None,
        accum_type: Optional[torch.dtype] = None,
        velocity_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[float] = None,
    ) -> None:
        # only this form has it in its groups: PopTorch refuses to mark it as variable otherwise
        self._start(torch.optim.SGD, locals(), **({"velocity_scaling": 1.0} if use_combined_accum else {}))
        if velocity_scaling is not None and not use_combined_accum:
            logger.warning(
                "velocity_scaling value ignored when using the separate variant (use_combined_accum=False) of the SGD "
                "optimizer"
            )


class Adam(Optimizer, torch.optim.Adam):
    """Adam with L2 weight decay.

    ``loss_scaling`` and ``max_grad_norm`` are those of `SGD`; the types are of the gradient accumulator and of the
    two moments, float16 or float32. The device has no ``amsgrad``.
    """

    _child_only: ClassVar[List[str]] = ["loss_scaling", *_MOMENT_TYPES, "max_grad_norm"]
    _group_vars: ClassVar[List[str]] = ["lr", "betas", "eps", "weight_decay", "amsgrad"]

    def __init__(
        self,
        params: Parameters,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        amsgrad: Optional[bool] = None,
        foreach: Optional[bool] = None,
        maximize: Optional[bool] = None,
        capturable: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        fused: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[float] = None,
    ) -> None:
        self._start(torch.optim.Adam, locals())


class AdamW(Optimizer, torch.optim.AdamW):
    """Adam with decoupled weight decay; the arguments are those of `Adam` and ``bias_correction``."""

    _child_only: ClassVar[List[str]] = ["loss_scaling", "bias_correction", *_MOMENT_TYPES, "max_grad_norm"]
    _group_vars: ClassVar[List[str]] = ["lr", "betas", "weight_decay", "eps", "amsgrad"]

    def __init__(
        self,
        params: Parameters,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        amsgrad: Optional[bool] = None,
        maximize: Optional[bool] = None,
        foreach: Optional[bool] = None,
        capturable: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        fused: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        bias_correction: Optional[bool] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        max_grad_norm: Optional[float] = None,
    ) -> None:
        self._start(torch.optim.AdamW, locals())


class RMSprop(Optimizer, torch.optim.RMSprop):
    """RMSprop, plain or centred; ``use_tf_variant`` adds ``eps`` inside the root, as TensorFlow does.

    On the CPU `step` knows only torch's formula.
    """

    _child_only: ClassVar[List[str]] = ["loss_scaling", *_MOMENT_TYPES, "use_tf_variant"]
    _group_vars: ClassVar[List[str]] = ["lr", "momentum", "weight_decay", "alpha", "eps", "centered"]

    def __init__(
        self,
        params: Parameters,
        lr: Optional[float] = None,
        alpha: Optional[float] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        momentum: Optional[float] = None,
        centered: Optional[bool] = None,
        foreach: Optional[bool] = None,
        maximize: Optional[bool] = None,
        differentiable: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
        use_tf_variant: Optional[bool] = None,
    ) -> None:
        self._start(torch.optim.RMSprop, locals())


class LAMB(Optimizer, torch.optim.Optimizer):
    """Layer-wise adaptive moments for large batches: Adam's direction, scaled to the norm of each weight.

    With g the gradient, w the weight and t the number of the update, counted from 1::

        m = beta1 * m + (1 - beta1) * g            c1 = 1 - beta1 ** t
        v = beta2 * v + (1 - beta2) * g ** 2       c2 = 1 - beta2 ** t
        u = (m / c1) / (sqrt(v) / sqrt(c2) + eps) + weight_decay * w
        w = w - lr * trust * u                     trust = min(norm(w), max_weight_norm) / norm(u), 1 if either is 0

    Without ``bias_correction`` c1 and c2 are 1.
    """

    _child_only: ClassVar[List[str]] = ["loss_scaling", "bias_correction", *_MOMENT_TYPES]
    _group_vars: ClassVar[List[str]] = ["lr", "weight_decay", "betas", "eps", "max_weight_norm"]

    def __init__(
        self,
        params: Parameters,
        lr: Optional[float] = None,
        betas: Optional[Tuple[float, float]] = None,
        eps: Optional[float] = None,
        weight_decay: Optional[float] = None,
        bias_correction: Optional[bool] = None,
        loss_scaling: Optional[float] = None,
        max_weight_norm: Optional[float] = None,
        accum_type: Optional[torch.dtype] = None,
        first_order_momentum_accum_type: Optional[torch.dtype] = None,
        second_order_momentum_accum_type: Optional[torch.dtype] = None,
    ) -> None:
        self._start(torch.optim.Optimizer, locals(), **_LAMB_DEFAULTS)
        self.max_weight_norm = self.defaults["max_weight_norm"]

    def __getstate__(self) -> Dict[str, Any]:
        return {**super().__getstate__(), "max_weight_norm": self.max_weight_norm}

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], float]] = None) -> Optional[float]:  # type: ignore[override]
        """Update the parameters on the CPU from their gradients and return what ``closure`` returns, if given."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._update_weight(weight, group)
        return loss

    def _update_weight(self, weight: torch.Tensor, group: Mapping[str, Any]) -> None:
        gradient, state = weight.grad, self.state[weight]
        if gradient is None or gradient.is_sparse:
            raise RuntimeError("LAMB does not support sparse gradients.")
        # made with the first gradient, as torch's optimizers do: parameters without one have no state
        if not state:
            state.update(step=0, exp_avg=torch.zeros_like(weight), exp_avg_sq=torch.zeros_like(weight))
        beta1, beta2 = group["betas"]
        state["step"] += 1
        state["exp_avg"].mul_(beta1).add_(gradient, alpha=1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        correction1 = 1 - beta1 ** state["step"] if self.bias_correction else 1.0
        correction2 = 1 - beta2 ** state["step"] if self.bias_correction else 1.0

        denominator = state["exp_avg_sq"].sqrt().div_(math.sqrt(correction2)).add_(group["eps"])
        direction = (state["exp_avg"] / correction1 / denominator).add_(weight, alpha=group["weight_decay"])
        weight_norm = weight.norm().clamp(max=self.max_weight_norm)
        direction_norm = direction.norm()
        # a weight of zeros, and one that does not move, is scaled by 1
        trust = float(weight_norm / direction_norm) if weight_norm > 0 and direction_norm > 0 else 1.0
        weight.add_(direction, alpha=-float(group["lr"]) * trust)
