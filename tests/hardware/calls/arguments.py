"""Arguments of a call: how they are bound and taken apart, what must stay the same, and parsers of the user's."""

from __future__ import annotations

import collections
from typing import Any, Callable, Dict, Tuple

import torch
from torch import nn

Pair = collections.namedtuple("Pair", ["a", "b"])
_ONES = torch.ones(2, 3)
_TWOS = torch.full((2, 3), 2.0)


class _Positional(nn.Module):
    def forward(self, x, y=None, *, z=None):  # type: ignore[no-untyped-def]
        return x if y is None else x + y if z is None else x + y * z


class _Defaults(nn.Module):
    def forward(self, x, y=_TWOS, factor=3):  # type: ignore[no-untyped-def]
        return x * factor + y


class _Variadic(nn.Module):
    def forward(self, x, *rest, **named):  # type: ignore[no-untyped-def]
        total = x
        for value in (*rest, *named.values()):
            total = total + value
        return total, named["scale"] * 2 if "scale" in named else total


class _Nested(nn.Module):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return {"sum": x[0] + x[1][0], "pair": Pair(x[0], x[1][0]), "list": [x[0]], "text": "kept", "none": None}


class _Mapping(nn.Module):
    def forward(self, batch):  # type: ignore[no-untyped-def]
        return batch["x"] + batch["y"]


class _Boxed:
    def __init__(self, tensor: Any = None) -> None:
        self.tensor = tensor


class _Unboxed(nn.Module):
    def forward(self, box):  # type: ignore[no-untyped-def]
        return box.tensor * 2.0


class _Same(nn.Module):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return x


def _called(model: Callable[[], nn.Module], *calls: Tuple[Tuple[Any, ...], Dict[str, Any]], setting: Any = None) -> Any:
    """Call an inference model with each of the arguments in turn; return what came back."""

    def call(poptorch: Any) -> Any:
        options = poptorch.Options()
        if setting is not None:
            setting(options)
        executor = poptorch.inferenceModel(model(), options)
        return [executor(*arguments, **named) for arguments, named in calls]

    return call


def _with(*arguments: Any, **named: Any) -> Tuple[Tuple[Any, ...], Dict[str, Any]]:
    return arguments, named


def _parsed(poptorch: Any) -> Any:
    class Parser(poptorch.ICustomArgParser):  # type: ignore[misc]
        def yieldTensors(self, struct: Any) -> Any:
            yield struct.tensor

        def reconstruct(self, original_structure: Any, tensor_iterator: Any) -> Any:
            return _Boxed(next(tensor_iterator))

    poptorch.registerCustomArgParser(_Boxed, Parser())
    try:
        return poptorch.inferenceModel(_Unboxed())(_Boxed(_ONES))
    finally:
        poptorch.registerCustomArgParser(_Boxed, None)


def _unparsed(poptorch: Any) -> Any:
    return poptorch.inferenceModel(_Unboxed())(_Boxed(_ONES))


def _iterations(options: Any) -> None:
    options.deviceIterations(2)


CALLS: Dict[str, Callable[[Any], Any]] = {
    "positions": _called(_Positional, _with(_ONES, _ONES)),
    "positions by name": _called(_Positional, _with(_ONES, y=_ONES)),
    "names in another order": _called(_Positional, _with(y=_ONES * 2, x=_ONES)),
    "a keyword": _called(_Positional, _with(_ONES, _ONES, z=_ONES)),
    "a None in the middle": _called(_Positional, _with(_ONES, None, z=_ONES)),
    "a None that was left out": _called(_Positional, _with(_ONES, None), _with(_ONES)),
    "too many": _called(_Positional, _with(_ONES, _ONES, _ONES, _ONES)),
    "too few": _called(_Positional, _with()),
    "an unknown name": _called(_Positional, _with(_ONES, bad=_ONES)),
    "a name twice": _called(_Positional, _with(_ONES, _ONES, x=_ONES)),
    "defaults": _called(_Defaults, _with(_ONES)),
    "a default tensor replaced": _called(_Defaults, _with(_ONES, _ONES)),
    "a default number replaced": _called(_Defaults, _with(_ONES, factor=2)),
    "another number later": _called(_Defaults, _with(_ONES, factor=2), _with(_ONES, factor=3)),
    "any number of them": _called(_Variadic, _with(_ONES, _ONES, _ONES, more=_ONES)),
    "any number of them, another later": _called(_Variadic, _with(_ONES, _ONES), _with(_ONES)),
    "another name later": _called(_Variadic, _with(_ONES, a=_ONES), _with(_ONES, b=_ONES)),
    "a number by name": _called(_Variadic, _with(_ONES, scale=2)),
    "nested": _called(_Nested, _with((_ONES, [_ONES * 2]))),
    "nested in another way later": _called(_Nested, _with((_ONES, [_ONES])), _with([_ONES, [_ONES]])),
    "nested with another length later": _called(_Nested, _with((_ONES, [_ONES])), _with((_ONES, [_ONES, _ONES]))),
    "a dictionary": _called(_Mapping, _with({"x": _ONES, "y": _ONES * 2})),
    "a dictionary in another order later": _called(
        _Mapping, _with({"x": _ONES, "y": _ONES * 2}), _with({"y": _ONES * 2, "x": _ONES})
    ),
    "a dictionary with another key later": _called(
        _Mapping, _with({"x": _ONES, "y": _ONES}), _with({"x": _ONES, "z": _ONES})
    ),
    "a named tuple": _called(lambda: _Same(), _with(Pair(_ONES, _ONES * 2))),
    "a parser": _parsed,
    "a class without a parser": _unparsed,
    "a parser that is none": lambda p: p.registerCustomArgParser(_Boxed, object()),
    "a parser that was never there": lambda p: p.registerCustomArgParser(_Boxed, None),
    "another shape later": _called(_Same, _with(_ONES), _with(torch.ones(3, 3))),
    "another type of numbers later": _called(_Same, _with(_ONES), _with(torch.ones(2, 3, dtype=torch.int32))),
    "a tensor and then None": _called(_Same, _with(_ONES), _with(None)),
    "rows that do not divide": _called(_Same, _with(torch.ones(3, 2)), setting=_iterations),
    "rows that divide": _called(_Same, _with(torch.ones(4, 2)), setting=_iterations),
    "a scalar and iterations": _called(_Same, _with(torch.tensor(1.0)), setting=_iterations),
    "not contiguous": _called(_Same, _with(torch.arange(6.0).reshape(2, 3).t())),
    "not contiguous twice": _called(_Same, *[_with(torch.arange(6.0).reshape(2, 3).t())] * 2),
    "requires a gradient": _called(_Same, _with(torch.ones(2, 3, requires_grad=True))),
    "64 bit integers": _called(lambda: _Same(), _with(torch.arange(4))),
    "booleans": _called(lambda: _Same(), _with(torch.tensor([True, False]))),
    "halves": _called(lambda: _Same(), _with(torch.ones(2, dtype=torch.float16))),
    "no module": lambda p: p.inferenceModel(lambda x: x + 1.0)(_ONES),
    "no module, to be trained": lambda p: p.trainingModel(lambda x: x + 1.0),
    "a number in its place": lambda p: p.inferenceModel(3),
}
