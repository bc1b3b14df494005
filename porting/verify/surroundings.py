"""Describe the surroundings of a proof: versions, device, threads and seeds, and hashes of its parts.

With them a reader can tell whether a run elsewhere was the same one, and what was different if it was not.
"""

from __future__ import annotations

import hashlib
import inspect
import platform
from importlib import metadata
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple, cast

import torch
from torch import nn

from porting.api.ported_model import PortedModel
from porting.diagnostics import is_user_file
from porting.executables.machine import collect_versions, describe_processor
from porting.options import PortOptions
from porting.support.process import usable_cores

__all__ = [
    "Hasher",
    "describe_surroundings",
    "flatten_values",
    "hash_options",
    "hash_source",
    "hash_values",
    "list_hash_differences",
    "list_surrounding_differences",
]

_BLOCK_BYTES = 1 << 24
_SHOWN_DIGITS = 12

_NAMES = {
    "is_simulator": "simulated",
    "num_calls": "training calls counted by the device",
    "num_compilations": "compilations",
    "num_ipus": "IPUs",
    "poptorch": "PopTorch",
    "python": "Python",
}


def describe_surroundings(
    ported: Optional[PortedModel] = None, *, seeds: Optional[Mapping[str, int]] = None
) -> Dict[str, Any]:
    """Describe the surroundings as plain values; `ported` is a port that has run, which proves its device.

    >>> describe_surroundings(seeds={"torch": 3})["seeds"]
    {'torch': 3}
    """
    versions = {**collect_versions(), "python": platform.python_version(), "poptorch": _find_version("poptorch")}
    return {
        "versions": {name: version for name, version in versions.items() if version},
        "device": {} if ported is None else _prove_device(ported),
        "processor": describe_processor()["name"],
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "seeds": dict(seeds or {}),
    }


def hash_source(model: nn.Module, *functions: object) -> str:
    """Hash what a model is made of: its modules with their settings, and the source of every class of the user's.

    `functions` are others that belong to it, such as its loss; what a library brings is known by its name.
    """
    hasher = Hasher()
    described: Dict[str, Any] = {}
    for name, module in model.named_modules():
        kind = type(module)
        hasher.add([name, _name_of(kind), module.extra_repr()])
        described.update({_name_of(base): base for base in kind.__mro__})
    for function in functions:
        own = function if inspect.isroutine(function) or inspect.isclass(function) else type(function)
        described[_name_of(own)] = own
        hasher.add([_name_of(own), function.extra_repr() if isinstance(function, nn.Module) else ""])
    hasher.add({name: _read_source(made) for name, made in sorted(described.items())})
    return hasher.digest


def hash_values(values: Iterable[object]) -> str:
    """Hash some values, one after the other: of tensors types, shapes and every bit, in blocks."""
    hasher = Hasher()
    for value in values:
        hasher.add(value)
    return hasher.digest


def hash_options(
    options: Optional[PortOptions], optimizer: Optional[torch.optim.Optimizer] = None, **settings: object
) -> str:
    """Hash the options of a port, the optimizer's kind and hyper-parameters, and other settings."""
    values: List[object] = [None if options is None else dict(sorted(vars(options).items()))]
    if optimizer is not None:
        groups = [{**group, "params": len(group["params"])} for group in optimizer.param_groups]
        values += [_name_of(type(optimizer)), groups]
    return hash_values([*values, settings])


class Hasher:
    """A hash that grows with each value that is added: tensors bit by bit, lists and mappings with what is in them.

    What is no plain value counts with its type alone, so that the hash is the same in every process.

    >>> one, other = Hasher(), Hasher()
    >>> one.add((torch.zeros(2), {"rows": 2}))
    >>> other.add((torch.zeros(2), {"rows": 3}))
    >>> one.digest == other.digest
    False
    """

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The hash of everything so far, 64 hexadecimal digits."""
        return self._sum.hexdigest()

    def add(self, value: object) -> None:
        """Let `value` change the hash."""
        if isinstance(value, torch.Tensor):
            self._add_tensor(value)
        elif isinstance(value, Mapping):
            self._add_text(f"mapping {len(value)}")
            for key, item in value.items():
                self.add(key)
                self.add(item)
        elif isinstance(value, (list, tuple)):
            self._add_text(f"list {len(value)}")
            for item in value:
                self.add(item)
        elif value is None or isinstance(value, (str, bytes, bool, int, float, complex, torch.dtype)):
            self._add_text(f"{type(value).__name__} {value!r}")
        else:
            self._add_text(_name_of(value if inspect.isroutine(value) or inspect.isclass(value) else type(value)))

    def _add_text(self, text: str) -> None:
        # with its length, so that no two rows of texts are one
        content = text.encode("utf-8", "backslashreplace")
        self._sum.update(f"{len(content)}:".encode() + content)

    def _add_tensor(self, value: torch.Tensor) -> None:
        self._add_text(f"{value.dtype} {list(value.shape)} {value.layout}")
        if value.layout != torch.strided or value.is_quantized or value.is_meta:
            value = value.to_dense() if value.is_sparse else torch.empty(0)
        for block in _iter_blocks(value.detach().cpu().resolve_conj().resolve_neg()):
            content: Any = block.view(torch.uint8).numpy()
            self._sum.update(content)


def list_surrounding_differences(theirs: Mapping[str, Any], own: Mapping[str, Any]) -> List[str]:
    """Say in words what differs between the surroundings of two certificates, `theirs` the earlier one's.

    >>> list_surrounding_differences({"threads": 2, "versions": {"torch": "2.0"}}, {"threads": 1})
    ['threads: 2 there, 1 here', 'torch: 2.0 there, not known here']
    """
    there, here = ({path[-1]: value for path, value in flatten_values(side)} for side in (theirs, own))
    return [
        f"{_NAMES.get(name, name)}: {_say_value(there.get(name))} there, {_say_value(here.get(name))} here"
        for name in {**there, **here}
        if there.get(name) != here.get(name) and name != "compiled_at"
    ]


def list_hash_differences(theirs: Mapping[str, str], own: Mapping[str, str]) -> List[str]:
    """Say which hashes of two certificates differ: what was not the same in both runs.

    >>> list_hash_differences({"weights": "ab", "data": "cd"}, {"weights": "ab", "data": "ef"})
    ['the data is not the same: cd there, ef here']
    """
    return [
        f"the {name} {'are' if name.endswith('s') else 'is'} not the same: "
        f"{theirs.get(name, 'not known')[:_SHOWN_DIGITS]} there, {own.get(name, 'not known')[:_SHOWN_DIGITS]} here"
        for name in {**theirs, **own}
        if theirs.get(name) != own.get(name)
    ]


def _prove_device(ported: PortedModel) -> Dict[str, Any]:
    """Say where a port has run, and how many calls the device has counted."""
    report = ported.report()
    training = next((record for record in report.executors if record.name == "training"), None)
    return {
        "device": report.device,
        "backend": report.backend,
        "is_simulator": report.is_simulator,
        "num_ipus": report.num_ipus,
        "num_calls": report.num_training_calls,
        "num_compilations": 0 if training is None else training.num_compilations,
        "engine": "" if training is None or training.engine is None else str(training.engine),
    }


def _find_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def _name_of(made: object) -> str:
    return f"{getattr(made, '__module__', '')}.{getattr(made, '__qualname__', type(made).__qualname__)}"


def _read_source(made: object) -> str:
    """Return the source of a class or function of the user's; nothing for a library's, or one that was typed in."""
    try:
        file = inspect.getsourcefile(cast(Any, made))
        return inspect.getsource(cast(Any, made)) if file is not None and is_user_file(file) else ""
    except (OSError, TypeError):
        return ""


def _iter_blocks(value: torch.Tensor) -> Iterator[torch.Tensor]:
    """List the numbers of a tensor in their order, some megabytes at a time; one that is laid out so is not copied."""
    if not value.numel():
        return
    most = _BLOCK_BYTES // value.element_size()
    if value.is_contiguous() or value.numel() <= most:
        yield from value.reshape(-1).split(most)
        return
    # a row at a time: a whole copy of a large one would cost as much again
    yield from (block for row in value for block in _iter_blocks(row))


def flatten_values(values: Mapping[str, Any], before: Tuple[str, ...] = ()) -> Iterator[Tuple[Tuple[str, ...], Any]]:
    """List all values with the names that lead to them, through mappings of mappings.

    >>> list(flatten_values({"threads": 2, "versions": {"torch": "2.0"}}))
    [(('threads',), 2), (('versions', 'torch'), '2.0')]
    """
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from flatten_values(value, (*before, name))
        else:
            yield (*before, name), value


def _say_value(value: object) -> str:
    return "not known" if value is None else str(value)
