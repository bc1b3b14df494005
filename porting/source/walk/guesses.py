"""Guesses of what a name stands for: by its uses, and as the last resort by what it is called."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Dict, Optional, Set

from porting.source.facts import Kind

__all__ = ["Uses", "find_uses", "guess_kind", "guess_kind_by_name", "is_loss_name", "name_expression"]


@dataclass
class Uses:
    """What is done with each name and attribute of `self` in a scope."""

    methods: Dict[str, Set[str]] = field(default_factory=dict)
    called: Set[str] = field(default_factory=set)


def find_uses(scope: ast.AST) -> Uses:
    """Find what is done with the names of a scope, in the functions in it, too; attributes as `self.model`."""
    uses = Uses()
    for node in ast.walk(scope):
        if isinstance(node, ast.Call):
            _add_call(uses, node)
    return uses


def _add_call(uses: Uses, node: ast.Call) -> None:
    name = name_expression(node.func)
    if name:
        uses.called.add(name)
    if isinstance(node.func, ast.Attribute):
        owner = name_expression(node.func.value)
        if owner:
            uses.methods.setdefault(owner, set()).add(node.func.attr)


def name_expression(node: ast.AST) -> str:
    """Name a variable or an attribute of one: `model`, `self.model`; empty for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""


def guess_kind(uses: Uses, name: str) -> Optional[Kind]:
    """Guess what a name stands for by what is done with it; None where that does not tell."""
    methods = uses.methods.get(name, set())
    if methods & {"parameters", "named_parameters", "load_state_dict"} and methods & _MODULE_METHODS:
        return Kind.MODULE
    if methods & {"zero_grad", "add_param_group"} and "step" in methods:
        return Kind.OPTIMIZER
    if methods & {"unscale_"} or {"scale", "step", "update"} <= methods:
        return Kind.SCALER
    if methods & {"parameters", "named_parameters"} or (methods & _MODULE_METHODS and name in uses.called):
        return Kind.MODULE
    if "backward" in methods:
        return Kind.LOSS
    if methods & {"get_last_lr", "get_lr"}:
        return Kind.SCHEDULER
    if methods & {"add_scalar", "add_scalars", "add_image", "add_histogram"}:
        return Kind.WRITER
    return None


_MODULE_METHODS = {"train", "eval", "parameters", "named_parameters", "cuda", "half", "requires_grad_", "zero_grad"}

_NAMES = (
    (
        r"(train|trn|tr|val|valid|validation|test|eval|dev|data|batch|calib)?_?(data_?)?(loader|iterator)s?(_\w+)?",
        Kind.LOADER,
    ),
    (r"(train|val|valid|test|eval)_?dl|\w+_(data_?)?loader", Kind.LOADER),
    (r"(train|val|valid|validation|test|eval)?_?(data_?set|ds)", Kind.DATASET),
    (
        r"criterion\w*|loss_?(fn|func|function|fct|module|criterion|obj)|(\w+_)?(criterion|loss_fn|loss_func|lossfn)",
        Kind.CRITERION,
    ),
    (r"\w*(lr_)?sched(uler)?(_\w+)?", Kind.SCHEDULER),
    (r"optim|optims?_\w+|\w*optimi[zs]er\w*", Kind.OPTIMIZER),
    (r"(grad_|loss_|amp_)?scaler", Kind.SCALER),
    (
        r"(\w+_)?(model|net|network|module|backbone|classifier|generator|discriminator|encoder|decoder)(_ema|_ddp|_without_ddp)?|net[GDgd]|ddp_model|unet|resnet",
        Kind.MODULE,
    ),
    (r"(train|avg|total)?_?loss", Kind.LOSS),
    (r"(tb_?|summary_)?writer", Kind.WRITER),
    (r"device", Kind.DEVICE),
    (r"(mini_?)?batch(_data|_dict)?", Kind.BATCH),
    (r"sampler|\w+_sampler", Kind.SAMPLER),
)
_COMPILED = tuple((re.compile(pattern), kind) for pattern, kind in _NAMES)


def guess_kind_by_name(name: str) -> Optional[Kind]:
    """Guess what a parameter is by the name that people usually give it.

    >>> guess_kind_by_name("train_loader")
    <Kind.LOADER: 'loader'>
    """
    return next((kind for pattern, kind in _COMPILED if pattern.fullmatch(name)), None)


def is_loss_name(name: str) -> bool:
    """Tell whether a variable or function is called after a loss.

    >>> is_loss_name("dice_loss"), is_loss_name("lossless")
    (True, False)
    """
    return bool(_LOSS_NAME.search(name))


_LOSS_NAME = re.compile(
    r"(^|_|[a-z](?=L))(loss(es)?|Loss|criterion|objective)(_|\d|$|[A-Z])|(Loss|Criterion)(\d\w?)?$|^err[DG]|^nll$|^bce$|^elbo$"
)
