"""These functions make small public models of torchvision, timm and transformers, with random weights.

Nothing is downloaded. Dropout is off, so that the losses of both sides can be compared. The libraries are an optional
extra, and are imported on first use.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from typing import Any, List, Mapping, Tuple

import torch
from torch import nn

from porting.diagnostics import require_extra

__all__ = [
    "load_library",
    "make_classifier",
    "make_language_model",
    "make_segmenter",
    "make_speech_model",
    "require_library",
]

_NUM_CLASSES = 10
_VOCABULARY = 2000

Built = Tuple[nn.Module, Any, Any]
"""Model, loss (None where the model returns its own), and batch."""


def require_library(name: str) -> None:
    """Raise PortingError X001 where a library is not installed; nothing is imported where it is."""
    if importlib.util.find_spec(name) is None:
        load_library(name)


def load_library(name: str) -> Any:
    """Import torchvision, timm or transformers; raises PortingError X001 where it is not installed."""
    if name == "timm" or (name == "transformers" and importlib.util.find_spec("torchvision")):
        # they import torchvision, which may need what is done for it here
        load_library("torchvision")
    message = f"the public models of {name} need {name}, which is not installed"
    try:
        return require_extra(name, extra="public", message=message)
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    _declare_missing_operators()
    return require_extra(name, extra="public", message=message)


def make_classifier(
    name: str, *, rows: int, image_size: int, head: Tuple[str, int] = ("", 0), **settings: object
) -> Built:
    """Make a classifier of images: a variant, as in `timm.vit_tiny_patch16_224`, or a class, as in `timm.MlpMixer`.

    `settings` go to its maker. The batch is images of (rows, 3, image_size, image_size) with labels. `head` names a
    module that a linear layer of so many inputs takes the place of.
    """
    library, _, variant = name.partition(".")
    loaded = load_library(library)
    found = getattr(loaded.models, variant, None)
    kind: Any = found if inspect.isclass(found) else None
    if kind is not None:
        model = kind(num_classes=_NUM_CLASSES, **settings)
    elif library == "timm":
        model = loaded.create_model(variant, pretrained=False, num_classes=_NUM_CLASSES, **settings)
    else:
        model = loaded.models.get_model(variant, weights=None, num_classes=_NUM_CLASSES, **settings)
    place, num_inputs = head
    if place:
        setattr(model, place, nn.Linear(num_inputs, _NUM_CLASSES))
    batch = torch.randn(rows, 3, image_size, image_size), torch.randint(_NUM_CLASSES, (rows,))
    return turn_dropout_off(model), nn.CrossEntropyLoss(), batch


def make_segmenter(name: str, *, rows: int, image_size: int, **settings: object) -> Built:
    """Make a segmentation model of torchvision; the labels are (rows, image_size, image_size)."""
    models = load_library("torchvision").models
    model = models.get_model(name, weights=None, weights_backbone=None, num_classes=_NUM_CLASSES, **settings)
    size = (image_size, image_size)
    batch = torch.randn(rows, 3, *size), torch.randint(_NUM_CLASSES, (rows, *size))
    return turn_dropout_off(model), compute_pixel_loss, batch


def compute_pixel_loss(outputs: Mapping[str, torch.Tensor], labels: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy over all pixels, of what torchvision's models for segmentation return."""
    return nn.functional.cross_entropy(outputs["out"], labels)


def make_language_model(name: str, *, rows: int, length: int, **settings: object) -> Built:
    """Make a class of transformers by its name, with `settings` of its configuration, and token sequences for it.

    Token ids are (rows, length). Labels are classes of whole sequences for classifiers, else tokens.
    """
    model = _make_of_transformers(name, {"vocab_size": _VOCABULARY, "num_labels": _NUM_CLASSES, **settings})
    tokens = torch.randint(3, _VOCABULARY, (rows, length))
    labels = torch.randint(_NUM_CLASSES, (rows,)) if "Classification" in name else tokens
    if name == "ElectraForPreTraining":
        labels = torch.randint(2, (rows, length))
    return model, None, {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": labels}


def make_speech_model(name: str, *, rows: int, shape: Tuple[int, ...], num_tokens: int, **settings: object) -> Built:
    """Make a speech model of transformers; inputs are rows of sound or of spectra of `shape`, labels are tokens."""
    model = _make_of_transformers(name, settings)
    inputs = "input_features" if len(shape) == 2 else "input_values"
    labels = torch.randint(3, model.config.vocab_size, (rows, num_tokens))
    return model, None, {inputs: torch.randn(rows, *shape), "labels": labels}


def turn_dropout_off(model: nn.Module) -> nn.Module:
    """Set the probability of all dropout and drop-path modules to zero."""
    for module in model.modules():
        for attribute in ("p", "drop_prob"):
            if type(module).__name__.startswith(("Drop", "StochasticDepth")) and hasattr(module, attribute):
                setattr(module, attribute, 0.0)
    return model


def _make_of_transformers(name: str, settings: Mapping[str, Any]) -> Any:
    kind = getattr(load_library("transformers"), name)
    plain = kind.config_class().to_dict()
    still = {key: 0.0 for key, value in plain.items() if "drop" in key and isinstance(value, float)}
    return kind(kind.config_class(**{**still, "use_cache": False, **settings})).train()


_kept_libraries: List[Any] = []


def _declare_missing_operators() -> None:
    """Declare operators that a torchvision built for GPUs lacks beside a torch without: its import describes them.

    Detectors use them, and none of the models here does. What was imported up to there is forgotten.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    # an operator lives as long as the object that declared it
    _kept_libraries.append(library)
    for name in [name for name in sys.modules if name.partition(".")[0] in ("torchvision", "timm")]:
        del sys.modules[name]
