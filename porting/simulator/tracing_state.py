"""Tell whether a model is being traced, and keep the hooks that run around tracing; the whole simulator uses it."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import ExitStack, contextmanager
from typing import Any, Callable, ClassVar, Dict, Iterator, List, Type

import torch

__all__ = [
    "_OverwriteContextManager",
    "isDispatchTracing",
    "isRunningOnIpu",
    "post_compile_hooks",
    "pre_compile_hooks",
    "registerPostCompileHook",
    "registerPreCompileHook",
    "tracing",
]

# counted: the end of an inner trace must not end the outer one
_tracing_depth = 0
pre_compile_hooks: Dict[int, Callable[[], Any]] = OrderedDict()
post_compile_hooks: Dict[int, Callable[[], Any]] = OrderedDict()


def isRunningOnIpu() -> bool:
    """Tell whether `forward` is being traced for the device right now; False in any ordinary run on the CPU."""
    return _tracing_depth > 0


# PopTorch asks whether its dispatcher records: the simulator records whatever it traces.
isDispatchTracing = isRunningOnIpu


def registerPreCompileHook(hook: Callable[[], Any]) -> torch.utils.hooks.RemovableHandle:
    """Call `hook()` before each model is traced; the handle's `remove()` removes the hook."""
    return _register_hook(pre_compile_hooks, hook, "Pre")


def registerPostCompileHook(hook: Callable[[], Any]) -> torch.utils.hooks.RemovableHandle:
    """Call `hook()` after each model was traced, also when tracing failed."""
    return _register_hook(post_compile_hooks, hook, "Post")


class _OverwriteContextManager:
    """A context in which the functions that libraries registered replacements for are replaced: that of a trace.

    A library registers a class with two methods: `replace()`, which replaces functions by its own, and `restore()`,
    which restores them.
    """

    _subsitution_manager_types: ClassVar[List[Type[Any]]] = []

    def __init__(self) -> None:
        self.substitution_managers = [kind() for kind in self._subsitution_manager_types]
        self._restores = ExitStack()

    @classmethod
    def registerSubsitutionManager(cls, type: Type[Any]) -> None:
        """Make an object of this class for each trace, whatever the executor; a second time does nothing."""
        if type not in cls._subsitution_manager_types:
            cls._subsitution_manager_types.append(type)

    def __enter__(self) -> _OverwriteContextManager:
        # a replacement that fails takes back those that went before it
        with ExitStack() as restores:
            for manager in self.substitution_managers:
                manager.replace()
                restores.callback(manager.restore)
            self._restores = restores.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._restores.close()


def _register_hook(hooks: Dict[int, Callable[[], Any]], hook: Callable[[], Any], when: str) -> Any:
    if not callable(hook):
        raise RuntimeError(f"{when}-compile hook must be callable")
    handle = torch.utils.hooks.RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


@contextmanager
def tracing() -> Iterator[None]:
    """Mark the run of `forward` under capture, with the hooks before and after it; they see replaced functions, too."""
    # Hooks run inside the replacements: they belong to the libraries that made them.
    global _tracing_depth
    with _OverwriteContextManager():
        _tracing_depth += 1
        try:
            for hook in list(pre_compile_hooks.values()):
                hook()
            yield
        finally:
            try:
                # a copy: a hook may remove itself
                for hook in list(post_compile_hooks.values()):
                    hook()
            finally:
                _tracing_depth -= 1
