"""Apply remedies and substitutes while a model is traced, so that the device can take it, and report their uses.

`LossInForward` traces inside of `Remedies.applied`.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any, Callable, Collection, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import torch
from torch import nn

from porting.diagnostics import Finding, caller_place, refuse
from porting.remedies.device_values import is_on_device
from porting.remedies.entries import Fallback, OperatorSubstitute, Patch, Remedy, Target
from porting.remedies.library_table import list_remedies
from porting.remedies.masked_rows import MaskedRows, answer_masked
from porting.remedies.operator_table import list_substitutes, name_target, order_substitutes
from porting.remedies.patching import find_attribute, is_importable_now, replaced_attribute
from porting.remedies.sources import EditMismatchError, edit_function
from porting.remedies.uses import HostUse, Uses, make_mismatch, refuse_on_host
from porting.structure import flatten_tensors, rebuild
from porting.support.function_modes import Args, Kwargs, SelectiveMode
from porting.support.versions import is_version_between

__all__ = ["Remedies"]


class Remedies:
    """What is changed around a trace: remedies of libraries that the model is made of, and substitutes for operators.

    `without` names remedies that are left out, "all" all of them and all substitutes. `strict` refuses what would run
    on the host. `backend` has PopTorch's `CPU`.
    """

    def __init__(
        self, *, without: Collection[str] = (), strict: bool = False, backend: Optional[ModuleType] = None
    ) -> None:
        self._without = without
        self._strict = strict
        # the class alone: modules cannot be pickled
        self._make_host_call = getattr(backend, "CPU", None)
        self._uses = Uses()
        # functions that an executable calls on the host for as long as it lives
        self._host_calls: List[Any] = []

    def for_backend(self, backend: Optional[ModuleType]) -> Remedies:
        """Make the same for another backend."""
        return Remedies(without=self._without, strict=self._strict, backend=backend)

    @property
    def functions(self) -> Tuple[Callable[..., Any], ...]:
        """All functions that may be called in the place of a library's or torch's."""
        if "all" in self._without:
            return ()
        remedies = list_remedies()
        patches = (patch.replacement for remedy in remedies for patch in remedy.patches)
        return (
            *(entry.compute for entry in list_substitutes()),
            *(function for remedy in remedies for function in remedy.functions.values()),
            *(replacement for replacement in patches if replacement is not None),
        )

    @contextmanager
    def applied(self, model: nn.Module, *, trains: bool) -> Iterator[None]:
        """Change what `model` needs while the context lasts, in which the device traces it."""
        if "all" in self._without:
            yield
            return
        answers = _Answers(
            self._uses, strict=self._strict, make_host_call=self._make_host_call, trains=trains, kept=self._host_calls
        )
        functions: Dict[Any, List[Callable[..., Any]]] = {}
        modules = _collect_code_modules(model)
        with ExitStack() as changes:
            for remedy in self._select_remedies(modules):
                self._apply(remedy, modules, changes)
                for function, compute in remedy.functions.items():
                    functions.setdefault(function, []).append(self._noting(remedy, compute))
            for entry in list_substitutes():
                if isinstance(entry.target, (str, type)):
                    _substitute_attribute(entry, answers, changes)
            changes.enter_context(_OperatorMode(answers, functions))
            yield

    def take_findings(self) -> Iterator[Finding]:
        """Give what took part in the traces since the last time, as findings C022 to C025."""
        return self._uses.take_findings()

    def _select_remedies(self, modules: Set[str]) -> Iterator[Remedy]:
        """Yield the remedies for models written in `modules`; note those that are for another version."""
        libraries = {name.partition(":")[0].partition(".")[0] for name in modules}
        fitting = {remedy.name for remedy in list_remedies() if _fits(remedy)}
        for remedy in list_remedies():
            is_concerned = remedy.library in libraries and (
                bool(remedy.functions) or any(_is_concerned(patch, modules) for patch in remedy.patches)
            )
            if not is_concerned or remedy.name in self._without:
                continue
            if _fits(remedy):
                yield remedy
            elif remedy.name not in fitting:
                version = _read_library_version(remedy.library)
                reason = f"it is tested with {remedy.first} up to, and without, {remedy.below}"
                self._uses.note_mismatch(make_mismatch(remedy, version, reason))

    def _apply(self, remedy: Remedy, modules: Set[str], changes: ExitStack) -> None:
        """Make the patches of a remedy that concern a model written in `modules`."""
        for patch in remedy.patches:
            if not _is_concerned(patch, modules):
                continue
            try:
                owner, name = find_attribute(patch.target)
                made = _make_patch(patch, getattr(owner, name))
            except (AttributeError, EditMismatchError) as error:
                version = _read_library_version(remedy.library)
                self._uses.note_mismatch(make_mismatch(remedy, version, f"`{patch.target}`: {error}"))
                continue
            key = (remedy.name, patch.target)
            noting = self._noting(remedy, made)
            changes.enter_context(replaced_attribute(owner, name, noting, key=key))

    def _noting(self, remedy: Remedy, function: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a changed function, so that its use is noted."""

        def call(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            if result is not Fallback:
                self._uses.note_remedy(remedy, _read_library_version(remedy.library))
            return result

        # the arguments' names are read from it
        call.__wrapped__ = function  # type: ignore[attr-defined]
        return call


def _make_patch(patch: Patch, original: Callable[..., Any]) -> Callable[..., Any]:
    if patch.replacement is None:
        return edit_function(original, patch.edits)
    replacement = patch.replacement

    def call(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    call.__wrapped__ = original  # type: ignore[attr-defined]
    return call


def _fits(remedy: Remedy) -> bool:
    return is_version_between(_read_library_version(remedy.library), remedy.first, remedy.below)


def _is_concerned(patch: Patch, modules: Set[str]) -> bool:
    """Tell whether the code of a patch may run: its class is one of the model's, or it is a function beside them."""
    path = patch.target.partition(":")[2]
    if "." in path and ".models." in patch.module:
        return patch.target.rpartition(".")[0] in modules or _is_no_module(patch.target)
    return patch.module in modules or (".models." not in patch.module and is_importable_now(patch.target))


def _is_no_module(target: str) -> bool:
    """Tell whether "module:Class.method" is there, of a class that is no module and so none of the model's."""
    try:
        owner, _name = find_attribute(target)
    except (AttributeError, KeyError):
        return False
    return not issubclass(owner, nn.Module)


def _collect_code_modules(model: nn.Module) -> Set[str]:
    """List the classes of `model` as "module:Class", and the names of the Python modules that they are written in."""
    classes = {kind for module in model.modules() for kind in type(module).__mro__}
    names = {kind.__module__ for kind in classes}
    return names | {f"{kind.__module__}:{kind.__qualname__}" for kind in classes}


def _read_library_version(library: str) -> str:
    return str(getattr(sys.modules.get(library), "__version__", "of unknown version"))


# -- operators ---------------------------------------------------------------------------------------------------------


class _Answers:
    """Asks the substitutes of an operator for a call with tensors of the device."""

    def __init__(self, uses: Uses, *, strict: bool, make_host_call: Any, trains: bool, kept: List[Any]) -> None:
        self._uses, self._strict, self._make_host_call = uses, strict, make_host_call
        self._trains, self._kept = trains, kept

    def ask(self, target: Target, args: Sequence[Any], kwargs: Kwargs) -> Any:
        """Return what the first substitute of `target` with an answer computes, or `Fallback`."""
        for entry in order_substitutes(target):
            if entry.on_host:
                return self._run_on_host(entry, args, kwargs)
            result = entry.compute(*args, **kwargs)
            if result is not Fallback:
                self._uses.note_operator(entry)
                return result
        return Fallback

    def _run_on_host(self, entry: OperatorSubstitute, args: Sequence[Any], kwargs: Kwargs) -> Any:
        tensors = flatten_tensors((tuple(args), kwargs))
        dtypes = [tensor.dtype for tensor in tensors]

        def compute(*values: torch.Tensor) -> Any:
            # the buffers between device and host may be of another type
            typed = [value.to(dtype) for value, dtype in zip(values, dtypes)]
            some_args, some_kwargs = rebuild((tuple(args), kwargs), typed)
            return entry.compute(*some_args, **some_kwargs)

        name, place = name_target(entry.target), caller_place()
        sent = sum(map(_count_bytes, tensors))
        refusal = "`strict` allows none" if self._strict else "that has no gradient, and this step trains"
        if self._strict or self._trains:
            refuse(refuse_on_host(HostUse(name, place, sent, 0), refusal))
        on_host = self._make_host_call(compute, f"{entry.name}_{len(self._kept)}")
        self._kept.append(on_host)
        result = on_host(*tensors)
        self._uses.note_host(HostUse(name, place, sent, sum(map(_count_bytes, flatten_tensors(result)))))
        return result


def _count_bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * torch.empty(0, dtype=tensor.dtype, device="cpu").element_size()


class _OperatorMode(SelectiveMode):
    """A context in which torch's functions on tensors of the device are answered by their substitutes."""

    def __init__(self, answers: _Answers, functions: Dict[Any, List[Callable[..., Any]]]) -> None:
        super().__init__()
        self._answers, self._functions = answers, functions
        self._targets = {entry.target for entry in list_substitutes()}

    def concerns(self, func: Callable[..., Any], args: Args, kwargs: Kwargs) -> bool:
        """Tell whether something may stand in for it, or some rows of a tensor are an argument."""
        is_known = func in self._targets or func in self._functions
        return is_known or any(isinstance(value, MaskedRows) for value in (*args, *kwargs.values()))

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Optional[Kwargs] = None
    ) -> Any:
        """Ask the remedies' functions, then the operators' substitutes, and pass everything else on."""
        kwargs = kwargs or {}
        if any(isinstance(value, MaskedRows) for value in (*args, *kwargs.values())):
            # here, before modes further out get to see what is no tensor
            return answer_masked(func, args, kwargs)
        for compute in self._functions.get(func, ()):
            result = compute(*args, **kwargs)
            if result is not Fallback:
                return result
        if func in self._targets and is_on_device((args, kwargs)):
            result = self._answers.ask(func, args, kwargs)
            if result is not Fallback:
                return result
        return func(*args, **kwargs)


def _substitute_attribute(entry: OperatorSubstitute, answers: _Answers, changes: ExitStack) -> None:
    """Let a module's `forward`, or a library's function, be answered by the substitutes."""
    target = entry.target
    if isinstance(target, str):
        if not is_importable_now(target):
            return
        owner, name = find_attribute(target)
    else:
        owner, name = target, "forward"

    original = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = answers.ask(target, args, kwargs) if is_on_device((args, kwargs)) else Fallback
        return original(*args, **kwargs) if result is Fallback else result

    call.__wrapped__ = original  # type: ignore[attr-defined]
    changes.enter_context(replaced_attribute(owner, name, call, key=(target, "op")))
