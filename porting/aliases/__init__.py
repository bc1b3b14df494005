"""Provide modules under the names that programs import: `poptorch` and its companions become parts of this package.

One object has two names, nothing is loaded twice: `poptorch.optim` is `porting.simulator.optim`, so classes are the
same whichever name they were reached by, and pickles name the place where a class is really defined. Nothing is
imported before a program asks for it; this module needs little more than the standard library, because every process
that a simulated program starts loads it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from importlib.machinery import ModuleSpec
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, Optional, Sequence, cast

from porting.support.process import this_instance

if TYPE_CHECKING:
    from importlib.metadata import DistributionFinder

__all__ = ["COMPANIONS", "VENDOR", "AliasFinder", "install_aliases", "stand_for"]

VENDOR: Mapping[str, str] = MappingProxyType({"poptorch": "porting.simulator"})
"""The vendor's module, which the simulator replaces whether the vendor's is installed or not."""

COMPANIONS: Mapping[str, str] = MappingProxyType(
    {
        name: f"porting.simulator.companions.{name}"
        for name in ("examples_utils", "horovod", "libpvti", "popart", "popdist")
    }
)
"""Modules that programs import beside it; a stand-in takes the place of one that is not installed."""

_TOLD = "PORTING_STAND_INS"


def install_aliases(*, replace: Mapping[str, str], provide: Mapping[str, str]) -> None:
    """Let imports find aliases in this process: `replace` wins over installed modules, `provide` adds missing ones.

    Both map a top-level name to its module. Installing the same aliases again changes nothing.

    >>> install_aliases(replace={}, provide={"sums": "math"})
    >>> import sums, math
    >>> sums is math
    True
    """
    installed = [finder for finder in sys.meta_path if isinstance(finder, AliasFinder)]
    if not any(finder.covers(replace, provide) for finder in installed):
        finder: Any = AliasFinder(replace=replace, provide=provide)
        sys.meta_path.insert(0, finder)
        importlib.invalidate_caches()


def stand_for(alias: str, module: str) -> None:
    """Let `alias`, a package that is being imported, be the package `module`, with all its modules.

    A file that is found by two paths would otherwise be two modules, and the classes of one no classes of the other.
    """
    install_aliases(replace={}, provide={alias: module})
    sys.modules[alias] = importlib.import_module(module)


class AliasFinder:
    """Finds modules under their other names, and the vendor's version for `importlib.metadata`."""

    def __init__(self, *, replace: Mapping[str, str], provide: Mapping[str, str]) -> None:
        """Map top-level names to their modules."""
        self._replace = dict(replace)
        self._provide = dict(provide)

    def covers(self, replace: Mapping[str, str], provide: Mapping[str, str]) -> bool:
        """Tell whether this finder has all of these aliases."""
        return replace.items() <= self._replace.items() and provide.items() <= self._provide.items()

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]] = None, target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        """Return the import spec of an alias's module; None for other names, and where there is no such module."""
        name = self._find_real_name(fullname)
        if name is None:
            return None
        real = importlib.util.find_spec(name)
        if real is None:
            return None
        spec = ModuleSpec(fullname, cast(Any, _AliasLoader(real)), origin=real.origin)
        spec.submodule_search_locations = real.submodule_search_locations
        spec.has_location = real.has_location
        return spec

    def _find_real_name(self, fullname: str) -> Optional[str]:
        top, dot, rest = fullname.partition(".")
        if top in self._replace:
            return self._replace[top] + dot + rest
        if top not in self._provide:
            return None
        if dot:
            parent = sys.modules.get(top)
            is_alias = parent is not None and parent.__name__ == self._provide[top]
            return self._provide[top] + dot + rest if is_alias else None
        others = [finder for finder in sys.meta_path if not isinstance(finder, AliasFinder)]
        specs = (finder.find_spec(top, None) for finder in others if hasattr(finder, "find_spec"))
        # an installed package has precedence over a folder without an `__init__.py`, and so it has here
        is_installed = any(spec is not None and spec.loader is not None and spec.origin is not None for spec in specs)
        return None if is_installed else self._provide[top]

    def find_distributions(self, context: DistributionFinder.Context) -> Iterator[Any]:
        """Give the vendor's module a version while it is replaced; no list of installed packages has it."""
        if context.name in self._replace:
            distribution = importlib.import_module("porting.aliases.distribution")
            yield distribution.AliasedDistribution(context.name, self._replace[context.name])

    def invalidate_caches(self) -> None:
        """Do nothing: there is no cache, and old versions of Python ask every finder."""


class _AliasLoader:
    """Returns the module of an alias itself, loading it under its own name if need be."""

    def __init__(self, real: ModuleSpec) -> None:
        self._real = real
        self._own_spec: Optional[ModuleSpec] = real

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real.name)
        self._own_spec = module.__spec__
        if spec.name in COMPANIONS:
            # announced once, in whichever process comes first
            told: List[str] = os.environ.get(_TOLD, "").split()
            if spec.name not in told and this_instance().index == 0:
                fact = f"simulated: `{spec.name}` is not installed; a stand-in, {self._real.name}, answers for it"
                print(fact, file=sys.stderr)  # noqa: T201
            os.environ[_TOLD] = " ".join([*told, spec.name])
        return module

    def exec_module(self, module: ModuleType) -> None:
        # the import system has just marked the module as one of the alias's
        module.__spec__ = self._own_spec

    def __getattr__(self, name: str) -> Any:
        """Read the attributes that tools use of a loader (source, code, resources) from the module's own loader."""
        if name.startswith("__"):
            raise AttributeError(name)
        method = getattr(self._real.loader, name)
        if name not in ("get_code", "get_filename", "get_source", "is_package", "get_resource_reader"):
            return method
        return lambda _alias=None: method(self._real.name)
