"""Read the parts of a program that can be ported from what its function returns: a tuple, a dictionary or an object.

The program loader uses it.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Tuple, Union

import torch
from torch import nn

from porting.diagnostics import ExecutableError, Place, say_kind
from porting.options import PortOptions
from porting.structure import flatten_tensors, map_tensors

__all__ = ["LoadedProgram", "read_parts"]

_PARTS = ("model", "loss", "batch", "optimizer", "options")
_MORE_PARTS = ("scheduler", "ported")
_LOSS_SETTINGS = ("label", "label_transform", "loss_output", "reduction")
_SETTINGS = (
    *(*_LOSS_SETTINGS, "compute_loss", "max_grad_norm"),
    *("schedule_every", "each_epoch", "also", "save", "load"),
)
_EXAMPLE = (
    "return `(model, loss, batch)`, where `batch` is `(input, ..., labels)` or a dictionary of arguments; an optimizer "
    "and `PortOptions` may follow",
    "a dictionary or an object with these names does as well; it may have `loader`, `scheduler` and `ported` besides",
)


@dataclass(frozen=True)
class LoadedProgram:
    """A model that can be ported: the arguments of `to_ipu`, and those of one micro-batch.

    `batch` holds the arguments of a call: by position, labels last, or a dictionary by name. `loss` is None for a model
    that returns its own. `batches` are those of a training, a list or a loader, with the `scheduler` of the optimizer,
    `ported`, which is or makes a port, and `settings`, other keywords of `verify`, such as how the loss gets its
    arguments: only a dictionary or an object has these. `name` is the text that it was loaded by, `made` what was found
    under it or what the function there returned, which makes its parts at `places`. That was called with the keywords
    `call`; None where it is none.
    """

    model: nn.Module
    loss: Any
    batch: Union[Tuple[Any, ...], Mapping[str, Any]]
    optimizer: Optional[torch.optim.Optimizer] = None
    options: Optional[PortOptions] = None
    batches: Any = None
    scheduler: Any = None
    ported: Any = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    made: Any = None
    places: Mapping[str, Place] = field(default_factory=dict)
    call: Optional[Mapping[str, Any]] = None

    @property
    def loss_settings(self) -> Mapping[str, Any]:
        """The settings that say how the loss gets its arguments, which `to_ipu` takes."""
        return {name: value for name, value in self.settings.items() if name in _LOSS_SETTINGS}

    @property
    def rows(self) -> int:
        """The samples of `batch`: the rows of its first tensor that has any, 1 when there is none."""
        return next((tensor.shape[0] for tensor in flatten_tensors(self.batch) if tensor.dim()), 1)

    def batch_of(self, rows: int) -> Union[Tuple[Any, ...], Mapping[str, Any]]:
        """Return `batch` with `rows` samples: cut, or repeated from the start.

        Tensors without samples (scalars, and those with another number of rows) stay as they are.
        """
        present = self.rows
        indices = torch.arange(rows) % present

        def resize(tensor: torch.Tensor) -> torch.Tensor:
            has_samples = tensor.dim() > 0 and tensor.shape[0] == present
            return tensor.index_select(0, indices) if has_samples and rows != present else tensor

        resized: Union[Tuple[Any, ...], Mapping[str, Any]] = map_tensors(resize, self.batch)
        return resized


def read_parts(made: object, name: str, place: Optional[Place], *, draws_batch: bool = False) -> LoadedProgram:
    """Read the parts that the program `name` has returned; raises ExecutableError E022 with its place for others."""
    fault, kind = "", say_kind(made)
    values: Dict[str, Any] = {}
    more: Dict[str, Any] = {}
    if isinstance(made, (tuple, list)) and not hasattr(made, "_fields"):
        values = dict(zip(_PARTS, made))
        fault = "" if 3 <= len(made) <= len(_PARTS) else f"{len(made)} values"
    elif isinstance(made, nn.Module) or made is None:
        fault = kind
    else:
        get = made.get if isinstance(made, Mapping) else lambda part: getattr(made, part, None)
        values, more = {part: get(part) for part in _PARTS}, _read_more_parts(get)
        if draws_batch and values["batch"] is None and more["batches"] is not None:
            values["batch"] = _draw_first(more["batches"])
        absent = [part for part in ("model", "batch") if values[part] is None]
        fault = f"{kind} without {' and '.join(absent)}" if absent else _find_misspelt(made)
    if fault:
        raise ExecutableError.of("E022", message=f"`{name}` gives {fault}", place=place, help=_EXAMPLE)
    batch = values["batch"]
    if not isinstance(batch, Mapping):
        batch = tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)
    parts = {**values, "batch": batch}
    for part, (wanted, is_right) in _EXPECTED.items():
        if not is_right(parts.get(part)):
            message = f"the {part} of `{name}` is {say_kind(values[part])}, not {wanted}"
            raise ExecutableError.of("E022", message=message, place=place, help=_EXAMPLE)
    return LoadedProgram(**parts, **more, name=name)


def _find_misspelt(made: object) -> str:
    """Return a message about a dictionary's name that is nearly that of a part, and would be ignored; or ""."""
    known = [*_PARTS, *_MORE_PARTS, *_SETTINGS, "loader", "batches"]
    named = made if isinstance(made, Mapping) else {}
    for name in named:
        # names of the user's own are left alone
        near = [] if name in known else difflib.get_close_matches(str(name), known, n=1, cutoff=0.8)
        if near and near[0] not in named:
            return f"a `{name}`, which is ignored: did you mean `{near[0]}`"
    return ""


def _read_more_parts(get: Callable[[str], Any]) -> Dict[str, Any]:
    loader = get("loader")
    settings = {setting: get(setting) for setting in _SETTINGS}
    return {
        **{part: get(part) for part in _MORE_PARTS},
        "batches": get("batches") if loader is None else loader,
        "settings": {setting: value for setting, value in settings.items() if value is not None},
    }


def _draw_first(batches: Iterable[Any]) -> Any:
    """Take the first batch, and leave the random stream of a loader that shuffles as it was."""
    with torch.random.fork_rng(devices=[]):
        return next(iter(batches), None)


_EXPECTED: Mapping[str, Tuple[str, Callable[[Any], bool]]] = {
    "model": ("a torch.nn.Module", lambda value: isinstance(value, nn.Module)),
    "loss": (
        "a module, a function, a mapping of them, or None",
        lambda value: value is None or callable(value) or isinstance(value, Mapping),
    ),
    "batch": ("tensors: `(inputs, labels)`", lambda value: bool(flatten_tensors(value))),
    "optimizer": (
        "a torch.optim.Optimizer, or None",
        lambda value: isinstance(value, (torch.optim.Optimizer, type(None))),
    ),
    "options": ("porting.PortOptions, or None", lambda value: isinstance(value, (PortOptions, type(None)))),
}
