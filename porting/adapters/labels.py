"""Find labels among the arguments of a training call, by position or by name, and keep them from the model.

`LossInForward`, checks of batches, exports and plans use it.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from porting.diagnostics import OptionError, PortingError, join_names

__all__ = ["IGNORE_LABEL", "NO_LABELS", "Key", "LabelKeys", "SplitCall", "check_label_keys", "split_labels"]

IGNORE_LABEL = -100
"""The label that torch's losses ignore by default."""

Key = Union[int, str]
"""A position or a name."""

LabelKeys = Union[Key, Tuple[Key, ...]]
"""Where the label is, or the labels are, among the arguments of a call."""


class _NoLabels:
    def __repr__(self) -> str:
        return "NO_LABELS"


NO_LABELS = _NoLabels()
"""What `SplitCall.labels` is when a call brought none."""


class SplitCall(NamedTuple):
    """The arguments of a call that the model gets, and the labels."""

    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]
    labels: Any


def check_label_keys(label: object) -> None:
    """Raise OptionError P002 unless `label` is a position, a name, or a tuple of some of these."""
    keys = label if isinstance(label, tuple) else (label,)
    if not keys or not all(isinstance(key, (int, str)) and not isinstance(key, bool) for key in keys):
        raise OptionError.at_caller(
            "P002",
            message=f"`label` is {label!r}",
            help="give the label's position (-1 is the last argument) or name, or a tuple of these for several labels",
        )


def split_labels(
    forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], *, label: LabelKeys
) -> SplitCall:
    """Take the labels out of the arguments of a call; `forward` is the model's own, which takes none.

    A name is looked for among the keywords, then among the parameters of `forward`. A position counts positional
    arguments; -1 also finds the only keyword that `forward` does not know. A tuple of keys gives a tuple of labels. A
    call whose arguments fit `forward` only when nothing is taken out brought no labels: `labels` is `NO_LABELS`. Raises
    PortingError L006 for a call that fits neither way; of inputs that are missing beside named labels `forward` tells.

    >>> split_labels(lambda image: image, ["an image", 7], {}, label=-1)
    SplitCall(args=('an image',), kwargs={}, labels=7)
    >>> split_labels(lambda image: image, ["an image"], {}, label=-1).labels
    NO_LABELS
    """
    signature: Optional[inspect.Signature] = None
    with suppress(TypeError, ValueError):  # built in, and without a signature
        signature = inspect.signature(forward)
    keys = label if isinstance(label, tuple) else (label,)
    fits_whole = _fits(signature, args, kwargs)
    spots = [_find_label(key, signature, args, kwargs) for key in keys]
    found = [spot for spot in spots if spot is not None]
    if len(found) == len(keys):
        rest = tuple(value for position, value in enumerate(args) if position not in found)
        named = {name: value for name, value in kwargs.items() if name not in found}
        fits = _fits(signature, rest, named) and (rest or named or not fits_whole)
        if fits or (all(isinstance(key, str) for key in keys) and not _list_unknown(signature, named)):
            labels = tuple(kwargs[spot] if isinstance(spot, str) else args[spot] for spot in found)
            return SplitCall(rest, named, labels if isinstance(label, tuple) else labels[0])
    if fits_whole:
        return SplitCall(tuple(args), dict(kwargs), NO_LABELS)
    raise _make_label_error(keys, spots, signature, args, kwargs)


def _fits(signature: Optional[inspect.Signature], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    if signature is None:
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _list_unknown(signature: Optional[inspect.Signature], names: Iterable[str]) -> List[str]:
    """Return the keywords that `forward` does not take."""
    parameters = signature.parameters if signature is not None else {}
    if signature is None or any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return []
    return [name for name in names if name not in parameters]


def _find_label(
    key: Key, signature: Optional[inspect.Signature], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Optional[Key]:
    """Return the position in `args` or the name in `kwargs` that `key` means; None when it is not there."""
    if isinstance(key, str):
        if key in kwargs:
            return key
        names = list(signature.parameters) if signature else []
        return names.index(key) if key in names and names.index(key) < len(args) else None
    if key == -1:
        unknown = _list_unknown(signature, kwargs)
        if len(unknown) == 1:
            return unknown[0]
    position = key + len(args) if key < 0 else key
    return position if 0 <= position < len(args) else None


def _make_label_error(
    keys: Sequence[Key],
    spots: Sequence[Optional[Key]],
    signature: Optional[inspect.Signature],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> PortingError:
    missing = [repr(key) for key, spot in zip(keys, spots) if spot is None]
    kinds = [parameter.kind for parameter in signature.parameters.values()] if signature is not None else []
    most = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    has_limit = signature is not None and inspect.Parameter.VAR_POSITIONAL not in kinds
    if not missing and has_limit and len(args) > most + len(keys):
        labels = "a label" if len(keys) == 1 else f"{len(keys)} labels"
        return PortingError.at_caller(
            "L006",
            message=f"the call has {len(args)} positional arguments, `forward` takes {most}, and {labels} may follow",
            label="one is too many" if len(args) == most + len(keys) + 1 else "some are too many",
            notes=f"the model's own signature is `forward{signature}`",
            help="leave out what neither the model nor the loss takes",
        )
    keywords = join_names(kwargs) or "none"
    unknown = _list_unknown(signature, [name for name in kwargs if name not in spots])
    if unknown and not any(isinstance(key, str) and spot is None for key, spot in zip(keys, spots)):
        return PortingError.at_caller(
            "L006",
            message=f"`forward` takes no argument called {' or '.join(f'`{name}`' for name in unknown)}",
            label="the keys of a dictionary are the names of `forward`'s arguments",
            notes=f"the model's own signature is `forward{signature}`",
            help="pass a tuple, the model's inputs and then the label, or rename the keys: in the loop, in the dataset "
            "or in the loader's `collate_fn`",
        )
    return PortingError.at_caller(
        "L006",
        message=f"the call has no argument {' and no '.join(missing)} to be the label" if missing else None,
        label="the arguments fit the model's `forward` neither with the label taken out nor as they are",
        notes=(
            f"positional arguments of the call: {len(args)}; keywords: {keywords}",
            f"the model's own signature is `forward{signature}`",
        ),
        help="pass the model's inputs and then the label, or say where it is: `label='name'` or `label=position`",
    )
