"""Load the weights of a Chainer snapshot into a torch model; every entry finds its tensor or is named in an error.

Users who port code of Chainer call `load_chainer_npz`.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple, Union

import numpy as np
import torch
from torch import nn

from porting.adapters.checkpoints import make_foreign_error
from porting.diagnostics import join_names, take_first_line
from porting.support.data_files import make_file_error, require_file
from porting.torch_insides.modules import BATCH_NORMS

__all__ = ["load_chainer_npz"]

# the arrays of a snapshot by their paths; None for a parameter that never got a value
_Arrays = Dict[str, Optional[np.ndarray]]

_MODEL_OF_TRAINER = "updater/model:main/"
_MODEL_OF_CLASSIFIER = "predictor/"

# what NumPy and zipfile raise, depending on which byte is wrong
_DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, EOFError, KeyError, NotImplementedError, OSError, RuntimeError)


def load_chainer_npz(
    path: Union[str, os.PathLike[str]],
    model: nn.Module,
    *,
    names: Optional[Mapping[str, Optional[str]]] = None,
    prefix: Optional[str] = None,
) -> Dict[str, str]:
    """Copy the weights that `chainer.serializers.save_npz` wrote into `model`; return where each tensor came from.

    `names` says which module a link is, `{"predictor/l1": "layers.0"}`; a link that it does not name is the module of
    the same path, with dots. None for a link leaves it out on purpose. Entries are those below `prefix`, by default the
    model of a trainer's snapshot (`updater/model:main/`), and the predictor of a Classifier.

    Known links are those of linear layers, convolutions and their transposes, embeddings, PReLU, LayerNorm,
    BatchNormalization with its statistics, LSTM (gates a, i, f, o in turns, one bias) and NStepLSTM (eight matrices a
    layer). What is no part of a snapshot has to be set in the model: `eps=2e-5` of BatchNormalization, pooling
    windows (`ceil_mode=True` for Chainer's default `cover_all`), activations.

    Every entry has to find its tensor and every tensor of the model its entry, with the same shape. Otherwise
    CheckpointError K002 names all that do not, and nothing is changed; an entry without a value, of a lazy
    parameter that never saw a batch, is one of them. PortingError F001 names a damaged entry, F002 a missing file.

    >>> import tempfile
    >>> model = nn.Sequential(nn.Linear(2, 1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/linear.npz", **{"l1/W": np.array([[3.0, 4.0]]), "l1/b": np.array([5.0])})
    ...     load_chainer_npz(f"{folder}/linear.npz", model, names={"l1": "0"})
    {'0.weight': 'l1/W', '0.bias': 'l1/b'}
    >>> model(torch.ones(1, 2)).item()
    12.0
    """
    found_prefix, arrays = _read_arrays(path, prefix=prefix)
    copies = _plan_copies(arrays, model, names or {})
    tensors = dict([*model.named_parameters(), *model.named_buffers()])
    problems = [*copies.problems, *_iter_gaps(copies, arrays, tensors, found_prefix)]
    values: Dict[str, np.ndarray] = {}
    for name, source in copies.sources.items():
        parts = [arrays[entry] for entry in source.entries]
        if any(part is None for part in parts):
            entries = join_names(entry for entry, part in zip(source.entries, parts) if part is None)
            problems.append(f"{entries} has no value: the link was saved before its first batch")
            continue
        values[name] = source.convert(*parts)
        if values[name].shape != tuple(tensors[name].shape):
            shapes = f"{list(values[name].shape)}, `{name}` {list(tensors[name].shape)}"
            problems.append(f"`{source.entries[0]}` has the shape {shapes}")
    if problems:
        remedies = (
            "name the module of each link: `names={'link': 'module'}`, and `names={'link': None}` to leave one out",
            "build the model with the sizes that it was trained with",
        )
        raise make_foreign_error(f"`{os.fspath(path)}`", model, tuple(dict.fromkeys(problems)), remedies=remedies)
    with torch.no_grad():
        for name, value in values.items():
            tensors[name].copy_(torch.from_numpy(np.array(value)))
    return {name: ", ".join(source.entries) for name, source in copies.sources.items()}


class _Source(NamedTuple):
    """What a tensor is made from: entries of the snapshot, and how they become its value."""

    entries: Tuple[str, ...]
    convert: Callable[..., np.ndarray]


class _Copies(NamedTuple):
    """Which tensor is made from what, which entries are left out on purpose, and what does not fit."""

    sources: Dict[str, _Source]
    skipped: Set[str]
    problems: List[str]


# -- links and modules -------------------------------------------------------------------------------------------------


def _plan_copies(arrays: _Arrays, model: nn.Module, names: Mapping[str, Optional[str]]) -> _Copies:
    modules = dict(model.named_modules())
    copies = _Copies({}, set(), [])
    links = _collect_links(arrays)
    copies.problems.extend(f"`names` has `{link}`, but there is no such link" for link in names if link not in links)
    for link, entries in links.items():
        target = names.get(link, link.replace("/", "."))
        if target not in modules:
            copies.skipped.update(f"{link}/{entry}".lstrip("/") for entry in entries)
            if target is not None:
                copies.problems.append(f"link `{link}` has no module `{target}` in the model; say which with `names=`")
            continue
        for parameter, source in _collect_sources(modules[target], set(entries)).items():
            tensor = f"{target}.{parameter}".lstrip(".")
            found = tuple(f"{link}/{entry}".lstrip("/") for entry in source.entries)
            copies.sources[tensor] = _Source(found, source.convert)
    return copies


def _collect_links(arrays: _Arrays) -> Dict[str, List[str]]:
    """Name the links and the entries of each; those inside an LSTM, or the layers of an NStepLSTM, are one link's.

    >>> _collect_links({"l/W": None, "rnn/upward/W": None, "rnn/lateral/W": None, "deep/0/w0": None})
    {'l': ['W'], 'rnn': ['upward/W', 'lateral/W'], 'deep': ['0/w0']}
    """
    links: Dict[str, List[str]] = {}
    for path in arrays:
        match = re.fullmatch(r"(.*?)/?((?:upward|lateral)/[Wb]|\d+/[wb]\d|[^/]+)", path)
        link, entry = match.groups() if match else ("", path)
        links.setdefault(link, []).append(entry)
    return links


def _collect_sources(module: nn.Module, entries: Set[str]) -> Dict[str, _Source]:
    """Say how the parameters and statistics of `module` follow from a link's entries."""
    if isinstance(module, nn.LSTM) and any("w0" in entry for entry in entries):
        return dict(_iter_stacked_lstm_sources(module))
    if isinstance(module, (nn.LSTM, nn.LSTMCell)):
        # L.LSTM: one product of the input with a bias (`upward`), one of the state without (`lateral`)
        end = "" if isinstance(module, nn.LSTMCell) else "_l0"
        return {
            f"weight_ih{end}": _Source(("upward/W",), _sort_gates),
            f"bias_ih{end}": _Source(("upward/b",), _sort_gates),
            f"weight_hh{end}": _Source(("lateral/W",), _sort_gates),
            f"bias_hh{end}": _Source(("upward/b",), np.zeros_like),
        }
    if isinstance(module, BATCH_NORMS):
        table = {"weight": "gamma", "bias": "beta", "num_batches_tracked": "N"}
        table.update(running_mean="avg_mean", running_var="avg_var")
    elif isinstance(module, nn.LayerNorm):
        table = {"weight": "gamma", "bias": "beta"}
    else:
        table = {"weight": "W", "bias": "b"}
    own = {name for name, _tensor in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))}
    return {name: _Source((entry,), np.asarray) for name, entry in table.items() if name in own and entry in entries}


def _sort_gates(rows: np.ndarray) -> np.ndarray:
    """Bring rows a, i, f, o of unit 0, then of unit 1, ... into torch's blocks i, f, g (= a), o.

    >>> _sort_gates(np.array(["a0", "i0", "f0", "o0", "a1", "i1", "f1", "o1"])).tolist()
    ['i0', 'i1', 'f0', 'f1', 'a0', 'a1', 'o0', 'o1']
    """
    if rows.shape[0] % 4:
        return rows  # of no LSTM; its shape is what will be named
    gates = rows.reshape(-1, 4, *rows.shape[1:])
    return np.concatenate([gates[:, gate] for gate in (1, 2, 0, 3)])


def _iter_stacked_lstm_sources(module: nn.LSTM) -> Iterator[Tuple[str, _Source]]:
    """L.NStepLSTM: for each layer matrices of i, f, o, a for the input (0 to 3) and for the state (4 to 7)."""
    for layer in range(module.num_layers):
        for kind, first in (("ih", 0), ("hh", 4)):
            order = [first + gate for gate in (0, 1, 3, 2)]
            for name, letter in (("weight", "w"), ("bias", "b")):
                entries = tuple(f"{layer}/{letter}{number}" for number in order)
                yield f"{name}_{kind}_l{layer}", _Source(entries, lambda *parts: np.concatenate(parts))


# -- what does not fit -------------------------------------------------------------------------------------------------


def _iter_gaps(copies: _Copies, arrays: _Arrays, tensors: Mapping[str, Any], prefix: str) -> Iterator[str]:
    """Name entries that nothing is made from, sources that are not in the file, and tensors that get nothing."""
    if not arrays:
        yield f"there are no entries below `{prefix}`" if prefix else "the file has no entries"
    used = {entry for source in copies.sources.values() for entry in source.entries}
    for entry in arrays:
        if entry not in used and entry not in copies.skipped:
            yield f"`{entry}` is in the file, and nothing in the model takes it"
    planned = set(copies.sources)
    for name, source in list(copies.sources.items()):
        missing = [entry for entry in source.entries if entry not in arrays]
        if missing:
            yield f"`{name}` needs `{missing[0]}`, which the file does not have"
            del copies.sources[name]
    for name in tensors:
        # nothing needs a count of batches, which Chainer before version 2 did not save
        is_optional = name.endswith("num_batches_tracked") and tensors[name].dim() == 0
        if name not in planned and not is_optional:
            yield f"`{name}` of the model gets nothing from the file"


# -- files -------------------------------------------------------------------------------------------------------------


def _read_arrays(path: Union[str, os.PathLike[str]], *, prefix: Optional[str] = None) -> Tuple[str, _Arrays]:
    """Read the arrays below `prefix` without unpickling anything; return it, and them by the rest of their names."""
    file = require_file(path, help="save one with `chainer.serializers.save_npz(path, model)`")
    try:
        with zipfile.ZipFile(file) as archive:
            # `save_npz` writes an absolute path where a serializer begins with one
            entries = {re.sub(r"\.npy$", "", record.filename).lstrip("/"): record for record in archive.infolist()}
            prefix = _find_model_entries(entries) if prefix is None else prefix
            wanted = {name: record for name, record in entries.items() if name.startswith(prefix)}
            return prefix, {name[len(prefix) :]: _read_array(file, archive, record) for name, record in wanted.items()}
    except _DAMAGE as error:
        raise make_file_error(file, f"no npz file can be read from it: {error}", location="the archive") from error


def _find_model_entries(names: Iterable[str]) -> str:
    """Return what the names of a model's entries begin with: `updater/model:main/` in a snapshot of a trainer.

    A model that is the `predictor` of a Classifier is found inside of it.

    >>> _find_model_entries(["updater/model:main/predictor/l1/W", "updater/iteration"])
    'updater/model:main/predictor/'
    >>> _find_model_entries(["l1/W", "l1/b"])
    ''
    """
    prefix = _MODEL_OF_TRAINER if any(name.startswith(_MODEL_OF_TRAINER) for name in names) else ""
    inside = [name for name in names if name.startswith(prefix)]
    is_classifier = bool(inside) and all(name.startswith(prefix + _MODEL_OF_CLASSIFIER) for name in inside)
    return prefix + _MODEL_OF_CLASSIFIER if is_classifier else prefix


def _read_array(
    file: Union[str, os.PathLike[str]], archive: zipfile.ZipFile, record: zipfile.ZipInfo
) -> Optional[np.ndarray]:
    """Read one array; None where Chainer has saved Python's None, of which only the type is looked at."""
    try:
        with archive.open(record) as stream:
            version = np.lib.format.read_magic(stream)
            readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, _is_fortran, dtype = readers[version](stream)
        if dtype.hasobject:
            if shape == ():
                return None
            raise ValueError(f"it holds Python objects of shape {shape}")
        with archive.open(record) as stream:
            array: np.ndarray = np.lib.format.read_array(stream, allow_pickle=False)
            # to the end, where the checksum is looked at
            if stream.read(1):
                raise ValueError("there are bytes behind the array")
        return array
    except (*_DAMAGE, SyntaxError, TypeError, MemoryError, AttributeError) as error:
        reason = take_first_line(error, otherwise=type(error).__name__)
        raise make_file_error(file, reason, location=f"entry `{record.filename}`") from error
