"""Name the private parts of modules: hooks, and base classes of layers; whatever walks through a model uses them."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from functools import partial
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from torch import nn

from .parts import Parts

__all__ = [
    "BATCH_NORMS",
    "CONVOLUTIONS",
    "DROPOUTS",
    "EVERY_BACKWARD_HOOK",
    "EVERY_BACKWARD_PRE_HOOK",
    "EVERY_FORWARD_HOOK",
    "EVERY_FORWARD_PRE_HOOK",
    "LOSSES",
    "NORMS_WITH_STATE",
    "PARTS",
    "IncompatibleKeys",
    "copy_versions",
    "find_parallel_module",
    "list_forward_hooks",
    "loads_in_own_way",
    "note_versions",
    "probe",
    "read_backward_hooks",
    "read_backward_pre_hooks",
    "read_forward_hooks",
    "read_forward_pre_hooks",
    "read_load_hooks",
    "read_state_hooks",
]

PARTS = Parts("no step can be captured")
probe = PARTS.probe


def _find_layers(place: str, *public: type) -> Any:
    """Return torch's base class of some layers; the public ones where it is gone."""
    return PARTS.find(f"torch.nn.modules.{place}", instead=public, loses="layers derived from it are not recognised")


BATCH_NORMS: Any = _find_layers("batchnorm:_BatchNorm", nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
NORMS_WITH_STATE: Any = _find_layers(
    "batchnorm:_NormBase",
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
    *(nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d),
)
CONVOLUTIONS: Any = _find_layers("conv:_ConvNd", nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d)
DROPOUTS: Any = _find_layers("dropout:_DropoutNd", nn.Dropout, nn.Dropout2d, nn.Dropout3d)
LOSSES: Any = _find_layers("loss:_Loss", nn.CrossEntropyLoss, nn.MSELoss, nn.L1Loss, nn.NLLLoss, nn.BCEWithLogitsLoss)
"""What `isinstance` takes to tell the layers of a kind."""

_EXAMPLE = nn.Identity()
_Hooks = Dict[int, Callable[..., Any]]


def _find_reader(name: str) -> Callable[[Any], _Hooks]:
    reader: Callable[[Any], _Hooks] = PARTS.reader(
        name, of=_EXAMPLE, instead=lambda _module: {}, loses="hooks of this kind are not looked for"
    )
    return reader


read_forward_hooks = _find_reader("_forward_hooks")
read_forward_pre_hooks = _find_reader("_forward_pre_hooks")
read_backward_hooks = _find_reader("_backward_hooks")
read_backward_pre_hooks = _find_reader("_backward_pre_hooks")
read_load_hooks = _find_reader("_load_state_dict_pre_hooks")
read_state_hooks: Callable[[Any], Dict[Any, Callable[..., Any]]] = _find_reader("_state_dict_hooks")
"""Functions that return the hooks of a module, which are registered there."""


def _find_global(name: str) -> _Hooks:
    found: _Hooks = PARTS.find(
        f"torch.nn.modules.module:{name}", instead={}, loses="hooks of all modules are not looked for"
    )
    return found


EVERY_FORWARD_HOOK = _find_global("_global_forward_hooks")
EVERY_FORWARD_PRE_HOOK = _find_global("_global_forward_pre_hooks")
EVERY_BACKWARD_HOOK = _find_global("_global_backward_hooks")
EVERY_BACKWARD_PRE_HOOK = _find_global("_global_backward_pre_hooks")
"""The hooks that torch calls for every module, as they are now."""


def list_forward_hooks(modules: Iterable[nn.Module]) -> List[Any]:
    """List the hooks that run around the `forward` of modules, without those of a capture."""
    own = [read(module) for module in modules for read in (read_forward_hooks, read_forward_pre_hooks)]
    hooks = [hook for table in (*own, EVERY_FORWARD_HOOK, EVERY_FORWARD_PRE_HOOK) for hook in table.values()]
    return [hook for hook in hooks if not str(getattr(hook, "__module__", "")).startswith("porting.")]


find_parallel_module: Callable[[], Optional[nn.Module]] = partial(
    PARTS.reader(
        "_active_ddp_module",
        of=nn.parallel.DistributedDataParallel,
        instead=lambda _wrapper: None,
        loses="a port inside of DistributedDataParallel is not refused",
    ),
    nn.parallel.DistributedDataParallel,
)
"""Return the wrapper for several processes whose `forward` is running; None where none is."""

IncompatibleKeys: Callable[..., Tuple[Any, Any]] = PARTS.find(
    "torch.nn.modules.module:_IncompatibleKeys",
    instead=namedtuple("_IncompatibleKeys", ["missing_keys", "unexpected_keys"]),
    loses="what `load_state_dict` returns prints in another way",
)
"""What `load_state_dict` returns."""

# functions that a capture exchanges
PARTS.find(
    "torch.nn.modules.transformer:_detect_is_causal_mask",
    instead=None,
    loses="a mask of `nn.Transformer` is compared with the causal one, which is refused",
)
PARTS.find(
    "torch.distributions:Distribution._validate_args",
    instead=None,
    loses="distributions check their parameters in `forward`, which is refused",
)

_load = PARTS.find(
    "torch.nn:Module._load_from_state_dict", instead=None, loses="models that load older keys may be refused"
)


def loads_in_own_way(module: nn.Module) -> bool:
    """Tell whether a module's class has a way of its own to load its part of a state dictionary."""
    return getattr(type(module), "_load_from_state_dict", None) is not _load


def note_versions(state: OrderedDict[str, Any], modules: Iterable[Tuple[str, nn.Module]]) -> Any:
    """Note in a state dictionary the versions of modules' formats by their names, as torch does, and return it."""
    versions = OrderedDict((name, {"version": getattr(module, "_version", 1)}) for name, module in modules)
    vars(state).update(_metadata=versions)
    return state


def copy_versions(state: Mapping[str, Any], made: object) -> Any:
    """Take the versions of a model's modules over, which torch keeps, and pickles, beside the entries."""
    if hasattr(state, "_metadata"):
        vars(made).update(_metadata=state._metadata)
    return made
