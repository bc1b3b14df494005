"""Write and read checkpoints: plain tensors and containers, written whole or not at all, and checked before loading.

Ports and `fit` use it, and programs without a port can.
"""

from __future__ import annotations

import copy
import os
import pickle
import re
import zipfile
from collections import Counter, OrderedDict
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from porting.adapters.backend_protocol import HasState
from porting.diagnostics import CheckpointError, OptionError, say_kind, take_first_line
from porting.support.atomic_files import replacing_file
from porting.torch_insides.modules import copy_versions, loads_in_own_way, note_versions, read_load_hooks

__all__ = [
    "Checkpoint",
    "check_shapes",
    "explain_write_errors",
    "load_checkpoint",
    "load_weights",
    "make_foreign_error",
    "plain_state_dict",
    "read_tensors",
    "save_checkpoint",
]

Path = Union[str, "os.PathLike[str]"]

_FORMAT = "porting-checkpoint"
_VERSION = 1
_COUNTER = "porting-counter"
_CHUNK_BYTES = 1 << 20
_ZIP_START = b"PK\x03\x04"
_FOLDER = 0x10
_MAX_LISTED = 10
_REMEDIES = ("build the model with the settings it was saved with, or load the checkpoint that belongs to it",)


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds: state dictionaries as torch makes them, the step, and what else was put in.

    `training` is what `ported.save` adds, to go on exactly: random streams, the device's state, the place in the epoch.
    """

    model: Mapping[str, Any]
    optimizer: Optional[Dict[str, Any]] = None
    scheduler: Optional[Dict[str, Any]] = None
    step: Optional[int] = None
    extra: Any = None
    training: Optional[Dict[str, Any]] = None

    @property
    def epoch(self) -> Optional[int]:
        """The epochs that were complete, where that was saved."""
        return None if self.training is None else self.training.get("epoch")


def plain_state_dict(model: nn.Module) -> OrderedDict[str, Any]:
    """Return a snapshot of a model's state: plain contiguous CPU tensors that no training changes any more.

    Tensors that the model has under several names stay one.

    >>> plain_state_dict(nn.Linear(1, 1, bias=False))["weight"].requires_grad
    False
    """
    copies: Dict[int, torch.Tensor] = {}
    state = _note_versions(OrderedDict(), model)
    for (name, value), kept in zip(model.state_dict().items(), model.state_dict(keep_vars=True).values()):
        if isinstance(value, torch.Tensor):
            state[name] = copies.setdefault(id(kept), _make_plain_tensor(value, is_copy=True))
        else:
            state[name] = value
    return state


def save_checkpoint(
    path: Path,
    *,
    model: Union[nn.Module, Mapping[str, Any]],
    optimizer: Union[HasState, Mapping[str, Any], None] = None,
    scheduler: Union[HasState, Mapping[str, Any], None] = None,
    step: Optional[int] = None,
    extra: object = None,
    training: Optional[Mapping[str, Any]] = None,
) -> None:
    """Write a checkpoint that plain `torch.load` reads without this package: all of it, or the old file stays.

    `model`, `optimizer` and `scheduler` are objects with a `state_dict`, or such dictionaries; `extra` is anything made
    of tensors, numbers, strings and containers. `training` comes from `ported.save`, which also saves what a training
    needs to go on exactly. Raises OptionError P002 that names the entry which is something else, and CheckpointError
    K008 for a file that cannot be written.
    """
    content = {
        "format": _FORMAT,
        "version": _VERSION,
        "model": _make_plain(_read_state(model), "model"),
        "optimizer": _make_plain(_read_state(optimizer), "optimizer"),
        "scheduler": _make_plain(_read_state(scheduler), "scheduler"),
        "step": step,
        "extra": _make_plain(extra, "extra"),
        "training": _make_plain(training, "training"),
    }
    with explain_write_errors(path), replacing_file(path) as file:
        torch.save(content, file)


@contextmanager
def explain_write_errors(path: Path) -> Iterator[None]:
    """Turn what keeps `path` from being written into CheckpointError K008; what was there before stays."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # torch ends its archive after an error too, and raises a second one about that
        cause = error if isinstance(error, OSError) else error.__context__
        if not isinstance(cause, OSError):
            raise
        raise CheckpointError.at_caller(
            "K008",
            message=f"`{os.fspath(path)}` cannot be written: {cause.strerror or cause}",
            notes="nothing of it was written; what was there before stays, and so does the training",
            help="choose a folder that is there, that you may write to, and that has room",
        ) from error


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a file of `save_checkpoint`, or one that holds a plain `model.state_dict()`, onto the CPU.

    Raises CheckpointError K001 that says what is wrong with a damaged file, or with one that is something else, and
    OSError for one that cannot be opened.
    """
    content = read_tensors(path)
    if not isinstance(content, dict):
        raise _make_damaged_error(path, f"it holds {say_kind(content)}, not the state of a model")
    if content.get("format") != _FORMAT:
        has_tensors = not content or any(isinstance(value, torch.Tensor) for value in content.values())
        if not all(isinstance(name, str) for name in content) or not has_tensors:
            raise _make_damaged_error(path, "it is neither a checkpoint nor the `state_dict()` of a model")
        return Checkpoint(model=content)
    version = content.get("version")
    if version != _VERSION:
        raise _make_damaged_error(path, f"it has version {version}; this package reads version {_VERSION}")
    missing = [name for name in ("model", "optimizer", "scheduler", "step", "extra") if name not in content]
    if missing or not isinstance(content["model"], dict):
        raise _make_damaged_error(path, f"its {', '.join(missing) or 'model'} is missing")
    restored = _restore_counters(content)
    # earlier versions wrote no `training`
    return Checkpoint(**{field.name: restored.get(field.name) for field in fields(Checkpoint)})


def load_weights(model: nn.Module, weights: Union[Path, Checkpoint, Mapping[str, Any]]) -> None:
    """Load the weights of a checkpoint, its file, or a state dictionary into `model`: all of them or none.

    Raises CheckpointError: K001 for a damaged file, K002 that lists the missing, unexpected and differently shaped
    entries when the weights are another model's. `model` is unchanged then.
    """
    if isinstance(weights, Mapping):
        state, source = weights, "the state dictionary"
    elif isinstance(weights, Checkpoint):
        state, source = weights.model, "the checkpoint"
    else:
        state, source = load_checkpoint(weights).model, f"`{os.fspath(weights)}`"
    differences = _list_differences(model, state)
    if not _loads_its_own_way(model):
        if differences:
            raise make_foreign_error(source, model, differences)
        model.load_state_dict(state)
        return
    before = _note_versions(OrderedDict(), model)
    for name, value in model.state_dict(keep_vars=True).items():
        if not is_lazy(value):
            # the tensors of a model that PopTorch holds are of classes that `deepcopy` cannot make
            is_tensor = isinstance(value, torch.Tensor)
            before[name] = _make_plain_tensor(value, is_copy=True) if is_tensor else copy.deepcopy(value)
    try:
        model.load_state_dict(state)
    except Exception as error:
        model.load_state_dict(before, strict=False)
        raise make_foreign_error(source, model, differences or [str(error)]) from error


def _note_versions(state: OrderedDict[str, Any], model: nn.Module) -> OrderedDict[str, Any]:
    """Note in `state` the versions of the modules' formats, as torch does: some modules load nothing without theirs."""
    # the modules are asked, because the state dictionary of a model that PopTorch holds lacks the versions
    return note_versions(state, model.named_modules(remove_duplicate=False))


def check_shapes(model: nn.Module, state: Mapping[str, Any]) -> None:
    """Refuse (CheckpointError K002) a state with an entry of `model`'s that has another shape; names do not matter."""
    different = [line for line in _list_differences(model, state) if line.startswith("shape")]
    if different:
        raise make_foreign_error("the state dictionary", model, different)


def _read_state(value: object) -> Any:
    return value.state_dict() if hasattr(value, "state_dict") else value


def _make_plain(value: object, path: str) -> Any:
    """Make `value` what `torch.load(weights_only=True)` reads in every version since torch 2.0."""
    if isinstance(value, torch.Tensor):
        return _make_plain_tensor(value)
    if value is None or isinstance(value, (bool, int, float, str, torch.dtype)):
        return value
    if isinstance(value, Counter):
        return {_COUNTER: [[_make_plain(key, path), count] for key, count in value.items()]}
    if isinstance(value, Mapping):
        for key in value:
            if key is not None and not isinstance(key, (bool, int, float, str)):
                raise _make_kind_error(key, f"a key of {path}")
        kind = OrderedDict if isinstance(value, OrderedDict) else dict
        return copy_versions(value, kind((key, _make_plain(item, f"{path}[{key!r}]")) for key, item in value.items()))
    if isinstance(value, (tuple, list)):
        elements = [_make_plain(item, f"{path}[{index}]") for index, item in enumerate(value)]
        return elements if isinstance(value, list) else tuple(elements)
    raise _make_kind_error(value, path)


def _make_kind_error(value: object, path: str) -> OptionError:
    return OptionError.at_caller(
        "P002",
        message=f"`{path}` is a {type(value).__module__}.{type(value).__qualname__}, which a checkpoint does not hold",
        notes="a checkpoint holds tensors, numbers, strings, None, and lists, tuples and dictionaries of these",
        help="leave it out, or save what it is made of",
    )


def _make_plain_tensor(tensor: torch.Tensor, *, is_copy: bool = False) -> torch.Tensor:
    plain = tensor.detach().as_subclass(torch.Tensor).cpu()
    is_part = plain.untyped_storage().nbytes() != plain.numel() * plain.element_size()
    if is_copy or is_part or not plain.is_contiguous():
        return plain.clone(memory_format=torch.contiguous_format)
    return plain


def _restore_counters(value: object) -> Any:
    """Undo what `_make_plain` did to counters."""
    if isinstance(value, dict):
        if set(value) == {_COUNTER}:
            return Counter({key: count for key, count in value[_COUNTER]})
        return copy_versions(value, type(value)((key, _restore_counters(item)) for key, item in value.items()))
    if isinstance(value, (tuple, list)):
        return type(value)(_restore_counters(item) for item in value)
    return value


def _list_differences(model: nn.Module, state: Mapping[str, Any]) -> List[str]:
    own = model.state_dict(keep_vars=True)
    missing = [f"missing: `{name}`" for name in own if name not in state]
    unexpected = [f"unexpected: `{name}`" for name in state if name not in own]
    shapes = [
        f"shape of `{name}`: {_describe_shape(state[name])} instead of {_describe_shape(value)}"
        for name, value in own.items()
        if name in state and not is_lazy(value) and _describe_shape(state[name]) != _describe_shape(value)
    ]
    listed: List[str] = []
    for kind, lines in (("missing", missing), ("unexpected", unexpected), ("shape", shapes)):
        listed += lines[:_MAX_LISTED]
        if len(lines) > _MAX_LISTED:
            listed.append(f"{kind}: and {len(lines) - _MAX_LISTED} more")
    return listed


def _describe_shape(value: object) -> Any:
    return list(value.shape) if isinstance(value, torch.Tensor) else None


def _loads_its_own_way(model: nn.Module) -> bool:
    """Tell whether some module translates older keys or shapes when it loads, which only loading can find out."""
    return any(
        read_load_hooks(module)
        or loads_in_own_way(module)
        or type(module).load_state_dict is not nn.Module.load_state_dict
        for module in model.modules()
    )


def make_foreign_error(
    source: str, model: nn.Module, differences: Sequence[str], *, remedies: Sequence[str] = _REMEDIES
) -> CheckpointError:
    """Make the error K002 for weights that are another model's."""
    return CheckpointError.at_caller(
        "K002",
        message=f"{source} does not fit `{type(model).__name__}`; nothing was loaded",
        notes=tuple(differences),
        help=tuple(remedies),
    )


def read_tensors(path: Path) -> Any:
    """Load `path` onto the CPU with `weights_only=True`.

    Raises CheckpointError K001 that says what is wrong with the file, and OSError when it cannot be opened.
    """
    with open(path, "rb") as file:
        start = file.read(len(_ZIP_START))
    if not start:
        raise _make_damaged_error(path, "it is empty")
    if start == _ZIP_START:
        _check_archive(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        found = re.search(r"(?:GLOBAL|class) ([\w.]+\.\w+)", str(error))
        if found is None:
            reason = f"it is no file of `torch.save`, or corrupt: {take_first_line(error, otherwise='no details')}"
            raise _make_damaged_error(path, reason) from error
        reason = f"it holds an object of {found.group(1)}, not only tensors; loading that would run code from the file"
        remedy = "save the weights alone, `torch.save(model.state_dict(), path)`, where the file was made"
        raise _make_damaged_error(path, reason, remedy=remedy) from error
    except Exception as error:
        # damaged bytes lead torch's readers to any error: KeyError, EOFError, UnicodeDecodeError, OSError, ...
        reason = f"torch cannot read it: {type(error).__name__}: {take_first_line(error, otherwise='no details')}"
        raise _make_damaged_error(path, reason) from error


def _make_damaged_error(
    path: Path, reason: str, *, remedy: str = "use another copy, or an earlier checkpoint"
) -> CheckpointError:
    """Make the error K001 for the file at `path`."""
    return CheckpointError.at_caller("K001", message=f"`{os.fspath(path)}` cannot be loaded", notes=reason, help=remedy)


def _check_archive(path: Path) -> None:
    """Read every record against its checksum: torch.load would hand out weights with flipped bits."""
    try:
        with zipfile.ZipFile(path) as archive:
            for record in archive.infolist():
                # torch reads nothing of a folder, and gives out memory as it was
                if record.external_attr & _FOLDER:
                    raise zipfile.BadZipFile(f"{record.filename!r} is marked as a folder")
                # torch writes 0 where checksums are switched off
                if record.CRC:
                    with archive.open(record) as file:
                        while file.read(_CHUNK_BYTES):
                            pass
    except Exception as error:
        # damaged names, sizes and methods lead to any error: NotImplementedError, UnicodeDecodeError, zlib.error, ...
        raise _make_damaged_error(
            path, f"the archive is cut off or corrupt: {take_first_line(error, otherwise='no details')}"
        ) from error
