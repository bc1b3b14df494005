"""Configurations by name: a family's variant, with single fields changed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Mapping, TypeVar

__all__ = ["configure"]

Config = TypeVar("Config")


def configure(variants: Mapping[str, Config], variant: str, changes: Mapping[str, Any]) -> Config:
    """Return the configuration called `variant`, with the fields in `changes` replaced.

    A name that is not in `variants` is a ValueError that lists those that are; a field that the configuration does not
    have is a TypeError that lists its fields.

    >>> from porting.models.mlp import VARIANTS
    >>> configure(VARIANTS, "mnist", {"sizes": (784, 30, 10)})
    MLPConfig(sizes=(784, 30, 10))
    """
    if variant not in variants:
        raise ValueError(f"there is no variant {variant!r}; there are {', '.join(map(repr, variants))}")
    config: Any = variants[variant]
    names = [field.name for field in fields(config)]
    unknown = [name for name in changes if name not in names]
    if unknown:
        raise TypeError(f"{type(config).__name__} has no field {unknown[0]!r}; it has {', '.join(map(repr, names))}")
    changed: Config = replace(config, **changes)
    return changed
