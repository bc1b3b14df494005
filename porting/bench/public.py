"""These are the public models that are measured, their sizes, and the speed-up that each must reach.

`porting bench public` runs them: `public.json` has what makes each, and `public_models` makes them.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, Iterable, Mapping

import torch

from porting.bench import public_models as models
from porting.bench.workloads import Parts, SuiteEntry
from porting.options import PortOptions

__all__ = ["DEMANDED_MEAN", "PUBLIC"]

DEMANDED_MEAN = 1.4
"""The geometric mean of the speed-ups over the best eager side that is asked of the whole suite."""

_DEMANDED = {"float32": 1.0}
_SETTINGS: Mapping[str, Any] = {
    "against": ("plain", "fused", "channels-last", "compile"),
    **dict.fromkeys(("memory", "data", "limits"), False),
}
# Some of these programs take a compiler minutes on a busy machine; beside a training it has even longer.
_OPTIONS = PortOptions(tuning_seconds=600.0)
_MAKERS: Mapping[str, Callable[..., models.Built]] = {
    "classifier": models.make_classifier,
    "segmenter": models.make_segmenter,
    "language_model": models.make_language_model,
    "speech_model": models.make_speech_model,
}
_LIBRARIES = {"segmenter": "torchvision", "language_model": "transformers", "speech_model": "transformers"}
_NEEDED = {"torchvision": ("torchvision",), "timm": ("torchvision", "timm"), "transformers": ("transformers",)}


def _make_entry(kind: str, name: str, title: str, batch: int, settings: Mapping[str, Any]) -> SuiteEntry:
    """Make an entry of what the file says; the library is that of the kind, or the first part of the name."""
    # JSON has no tuples, which some of the libraries ask for
    given = {key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()}

    def make_parts(rows: int) -> Parts:
        model, loss, data = _MAKERS[kind](name, rows=rows, **given)
        return model, loss, data, _make_sgd if "image_size" in settings else _make_adamw

    needs = _NEEDED[_LIBRARIES.get(kind, name.partition(".")[0])]
    return SuiteEntry(title, batch, make_parts, _DEMANDED, options=_OPTIONS, settings=_SETTINGS, needs=needs)


def _make_sgd(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    # small enough for a few images not to be learnt by heart: rounding would decide the losses then
    return torch.optim.SGD(parameters, lr=1e-6, momentum=0.9)


def _make_adamw(parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-4)


# A ResNet has `zero_init_residual`, as it is trained: with branches that begin at full size, rounding alone decides the
# losses. Language models have four layers of width 256, or less.
_MODELS: Mapping[str, Any] = json.loads(Path(__file__).with_name("public.json").read_text(encoding="utf-8"))

PUBLIC: Mapping[str, SuiteEntry] = MappingProxyType(
    {f"public_{name}": _make_entry(**model) for name, model in _MODELS.items()}
)
"""The suite by name, in the order in which it runs: torchvision's models, timm's, and those of transformers."""
