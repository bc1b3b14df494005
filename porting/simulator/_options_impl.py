"""Define `OptionsDict`, the base of all options: named values with fixed names and types that can be frozen."""

from __future__ import annotations

import copy
from typing import Any, Dict, Optional, TypeVar

_Self = TypeVar("_Self", bound="OptionsDict")

_BASE_ATTRIBUTES = ("_warnings", "_warnings_disabled", "_is_frozen", "_values")


def require(condition: bool, message: str) -> None:
    """Raise the `AssertionError` with which PopTorch refuses a setting, even under ``python -O``."""
    if not condition:
        raise AssertionError(message)


def require_type(value: object, kind: type, what: str) -> None:
    """Refuse a value of another type than `kind`; `what` is the type and the setting, as in "an int for ipu_id"."""
    require(isinstance(value, kind), f"Expected {what} but got {type(value)}")


class Freezable:
    """Settings that are frozen once a model or a loader uses them; a deep copy can be changed again."""

    _is_frozen = False

    def checkIsFrozen(self, option: Optional[str] = None) -> None:
        """Raise `AttributeError` if the options can't be changed any more."""
        if self._is_frozen and option != "_is_frozen":
            raise AttributeError("Can't modify frozen Options")

    def __deepcopy__(self, memo: Dict[int, Any]) -> Any:
        duplicate = type(self).__new__(type(self))
        # before its contents: the groups of `Options` refer to one another
        memo[id(self)] = duplicate
        duplicate.__dict__.update(copy.deepcopy(self.__dict__, memo), _is_frozen=False)
        return duplicate


class OptionsDict(Freezable):
    """Values that are read as attributes and changed only to a value of the same type.

    >>> options = OptionsDict(device_iterations=1)
    >>> options.device_iterations = 4
    >>> options
    OptionsDict(device_iterations=4)
    """

    def __init__(self, **default_values: Any) -> None:
        # PopTorch's attributes, which programs read
        self._warnings: Dict[str, str] = {}
        self._warnings_disabled: set = set()
        self._is_frozen = False
        # Last, because from here on `__setattr__` guards the attributes.
        self._values = default_values

    def set(self: _Self, **kwargs: Any) -> _Self:
        """Change existing options; `AssertionError` for an unknown name or another type."""
        for option, value in kwargs.items():
            self.checkIsFrozen(option)
            require(self.exists(option), f"Invalid option {option}, valid options are {list(self._values)}")
            # True passes for an int here, as it does in PopTorch.
            expected = type(self._values[option])
            message = f"Unexpected type {type(value)} for option {option}. Expected {expected}"
            require(isinstance(value, expected), message)
            self._values[option] = value
        return self

    def createOrSet(self: _Self, **kwargs: Any) -> _Self:
        """Change options, creating those that do not exist."""
        for option, value in kwargs.items():
            if self.exists(option):
                self.set(**{option: value})
            else:
                self.checkIsFrozen(option)
                self._values[option] = value
        return self

    def exists(self, option: str) -> bool:
        """Tell whether the option has a value."""
        return option in self._values

    def deleteIfExists(self, option: str) -> None:
        """Delete the option's value, if there is one."""
        self.checkIsFrozen(option)
        self._values.pop(option, None)

    def update(self, other: Dict[str, Any]) -> Dict[str, Any]:
        """Add the values to ``other`` and return it; `AssertionError` if they have a key in common."""
        require(not (self._values.keys() & other.keys()), "Can't merge dictionaries, they have some keys in common")
        other.update(self._values)
        return other

    def toDict(self) -> Dict[str, Any]:
        """Return the values as a new dictionary."""
        return self.update({})

    def _freeze(self, is_frozen: bool = True) -> None:
        # under both states: `__setattr__` lets this one attribute through
        self._is_frozen = is_frozen
        # the groups that hang off `Options`; a user may keep one of them and set it there
        for attribute in self.__dict__.values():
            if hasattr(attribute, "_is_frozen"):
                attribute._is_frozen = is_frozen

    def _unfreeze(self) -> None:
        self._freeze(is_frozen=False)

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):
            self.set(**{name: value})
            return
        if "_values" in self.__dict__:
            self.checkIsFrozen(name)
            if not hasattr(self, name):
                raise AttributeError(f"Invalid private attribute {name}. Valid attributes: {list(self.__dict__)}")
        object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # Copying and unpickling look attributes up before there are any values.
        values = self.__dict__.get("_values", {})
        if name.startswith("_") or name not in values:
            raise AttributeError(f"Invalid attribute {name}.")
        return values[name]

    def __call__(self, option: str) -> Any:
        return getattr(self, option)

    def __repr__(self) -> str:
        values = [f"{name}={value!r}" for name, value in self._values.items()]
        attributes = [f"{name}={value!r}" for name, value in self.__dict__.items() if name not in _BASE_ATTRIBUTES]
        return f"{type(self).__name__}({', '.join(values + attributes)})"
