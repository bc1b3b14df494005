"""Names of what is called and of what stands in the source, as rules compare them."""

from __future__ import annotations

import ast
import re

from porting.source.facts import Call

__all__ = [
    "is_backward",
    "is_for_ports",
    "is_in_place",
    "joins_processes",
    "name_last",
    "name_unsupported_optimizer",
    "write_dotted",
]


_VENDORS = ("poptorch", "poptorch_geometric", "poptorch_experimental_addons", "popdist", "porting")
# models and data for plain programs as well as for ports
_FOR_PLAIN_PROGRAMS = ("porting.data", "porting.models", "porting.recipe_chain", "porting.recipes")


def is_for_ports(module: str) -> bool:
    """Tell whether only programs with a port import a module.

    >>> is_for_ports("popdist.poptorch"), is_for_ports("porting.models.cnn"), is_for_ports("porting")
    (True, False, True)
    """
    is_plain = any(f"{module}.".startswith(f"{name}.") for name in _FOR_PLAIN_PROGRAMS)
    return module.partition(".")[0] in _VENDORS and not is_plain


def is_backward(call: Call) -> bool:
    """Tell whether a call makes a backward pass."""
    if call.name in ("torch.autograd.backward", "timm.utils.NativeScaler"):
        return call.name.startswith("torch") or bool(call.receiver)
    return call.is_method("backward", "manual_backward")


def is_in_place(call: Call) -> bool:
    """Tell whether a call changes what it is called on: `.add_`, but not `.requires_grad_`."""
    is_method = call.name.startswith(".") and call.name.endswith("_") and not call.name.endswith("__")
    return is_method and call.name not in _CHANGING_NOTHING


# an accelerator's or an engine's clipping has lines of its own
_CHANGING_NOTHING = (".requires_grad_", ".unscale_", ".retain_grad_", ".clip_grad_norm_", ".clip_grad_value_")


_JOINING = re.compile(
    r"torch\.distributed\.(\w+\.)*init_process_group|popdist\.(get\w+|isPopdistEnvSet|init)|horovod\.\w+\.init"
    r"|mpi4py\..*|\.Get_rank|porting\.(\w+\.)*this_instance"
)


def joins_processes(call: Call) -> bool:
    """Tell whether a call asks which of several processes this is, or joins them."""
    return any(_JOINING.fullmatch(name) for name in (call.name, *call.other_names))


def name_last(name: str) -> str:
    """Take the last part of a qualified name, or a method's name.

    >>> name_last("torch.optim.SGD"), name_last(".step")
    ('SGD', 'step')
    """
    return name.rpartition(".")[2]


def write_dotted(node: ast.AST) -> str:
    """Write a name or a chain of attributes as it stands in the source; empty for what is neither.

    >>> write_dotted(ast.parse("self.opt.step", mode="eval").body)
    'self.opt.step'
    """
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{write_dotted(node.value)}.{node.attr}"
    if isinstance(node, (ast.Subscript, ast.Call)):
        return write_dotted(node.value if isinstance(node, ast.Subscript) else node.func)
    return ""


_SUPPORTED = {"SGD", "Adam", "AdamW", "RMSprop", "LAMB", "Optimizer", "ZeroRedundancyOptimizer"}
_OPTIMIZERS = re.compile(
    r"((torch|poptorch|porting\.simulator)\.optim"
    r"|torch_optimizer|lion_pytorch|apex|bitsandbytes|timm\.optim|transformers)\.(\w+\.)*(?P<name>[A-Z]\w+)"
)


def name_unsupported_optimizer(name: str) -> str:
    """Name the optimizer that the device does not have; empty for one that it has, and for what is none.

    >>> name_unsupported_optimizer("torch.optim.Adagrad"), name_unsupported_optimizer("torch.optim.SGD")
    ('Adagrad', '')
    """
    match = _OPTIMIZERS.fullmatch(name)
    return match["name"] if match and match["name"] not in _SUPPORTED else ""
