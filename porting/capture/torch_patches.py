"""Parts of torch that would look at values or devices where a graph has none, exchanged while `forward` is captured."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, Callable, Iterator, Optional, Sequence, Tuple, Type, Union

import torch
import torch.nn.modules.transformer
import torch.utils.checkpoint
from torch.autograd.function import FunctionCtx
from torch.overrides import handle_torch_function
from torch.utils.checkpoint import CheckpointFunction
from torch.utils.hooks import BackwardHook

from ..diagnostics import refuse
from ..structure import flatten_tensors
from ..support.function_modes import Args, Kwargs
from ..torch_insides.autograd import current_transform, has_own_setup_context, intercept_custom_functions
from ..torch_insides.exchanged import exchanged
from ..torch_insides.modes import DisableTorchFunction, is_torch_function_disabled
from .device_tensor import IPU, DeviceTensor, is_device
from .errors import Refusal, host_read_error
from .recording.custom_functions import record_with_backward
from .recording.recorder import Recorder
from .torch_functions import constant_from_data, note_forced_factory

__all__ = ["patch_torch"]

_Exchange = Tuple[Any, str, Callable[[Any], Any]]


@contextmanager
def patch_torch(recorder: Recorder) -> Iterator[None]:
    """Patch torch while the context lasts; calls that have nothing to do with device tensors see no difference."""
    # an older torch lacks some of them
    patches = [
        (owner, name, partial(_make_with, make, recorder)) for owner, name, make in _PATCHES if name in vars(owner)
    ]
    originals = [(owner, name, partial(_take_original, vars(owner)[name])) for owner, name, _make in patches]
    trace_function = partial(_trace_custom_function, recorder, threading.get_ident())
    with intercept_custom_functions(trace_function), _exchange_all(patches):
        # what is imported while torch is patched would keep the replacements
        recorder.fake_mode.around_loading = partial(_exchange_all, originals)
        try:
            yield
        finally:
            recorder.fake_mode.around_loading = nullcontext


@contextmanager
def _exchange_all(exchanges: Sequence[_Exchange]) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, make in exchanges:
            stack.enter_context(exchanged(owner, name, make))
        yield


def _make_with(make: Callable[[Any, Recorder], Any], recorder: Recorder, original: object) -> Any:
    return make(original, recorder)


def _take_original(original: object, _exchanged: object) -> Any:
    return original


def _trace_custom_function(
    recorder: Recorder,
    thread: int,
    apply: Callable[..., Any],
    function: Type[torch.autograd.Function],
    args: Args,
    kwargs: Kwargs,
) -> Any:
    """Apply a custom function: `forward` is recorded, and where the capture computes it, `backward` too.

    Where nothing is differentiated the backward does not matter, nor does it for checkpointed functions, which only
    compute again in the backward pass. Otherwise it is refused, or the device differentiates what `forward` does.
    """
    # other threads may transform functions of the host
    is_transformed = current_transform() is not None and threading.get_ident() == thread
    tensors = [value for value in flatten_tensors((args, kwargs)) if isinstance(value, DeviceTensor)]
    if not tensors and not is_transformed:
        return apply(*args, **kwargs)
    if function is CheckpointFunction:
        # the function, whether to keep the random state, and what the function gets
        return args[0](*args[2:])
    is_tracked = is_transformed or any(recorder.facts.tracks_gradient(tensor) for tensor in tensors)
    is_tracked = is_tracked and torch.is_grad_enabled()
    if is_tracked and not is_transformed and recorder.reports.keeps_backward_of("custom-autograd-function"):
        return record_with_backward(recorder, function, args, kwargs)
    if is_tracked:
        label = "the device differentiates what its `forward` does"
        label = "`torch.func` transforms it here" if is_transformed else label
        recorder.reports.refuse(Refusal.CUSTOM_FUNCTION.error(name=function.__name__, label=label))
    # what is saved in it is for a backward that never runs
    context = FunctionCtx()
    context.needs_input_grad = tuple(  # type: ignore[attr-defined]
        is_tracked and isinstance(arg, DeviceTensor) and recorder.facts.tracks_gradient(arg) for arg in args
    )
    leading = () if has_own_setup_context(function) else (context,)
    with torch.set_grad_enabled(is_tracked):
        return function.forward(*leading, *args, **kwargs)


def _leave_out_backward_hooks(original: Callable[..., Any], recorder: Recorder) -> Any:
    """Backward hooks of modules are put into autograd's graph, which the device does not have."""

    def apply_on_tensors(hook: BackwardHook, function: Callable[..., Any], args: Args) -> Any:
        tensors = [value for value in args if isinstance(value, DeviceTensor)]
        if not tensors:
            return original(hook, function, args)
        if torch.is_grad_enabled() and any(recorder.facts.tracks_gradient(tensor) for tensor in tensors):
            recorder.reports.refuse(Refusal.BACKWARD_HOOK.error(kind=type(hook.module).__name__))
        return args, None

    return apply_on_tensors


def _show_derivatives(original: Callable[..., Any], _recorder: Recorder) -> Any:
    """`torch.autograd.backward` of torch 2.6 differentiates without asking the function mode, which refuses that."""

    def backward(tensors: Union[torch.Tensor, Sequence[torch.Tensor]], *args: Any, **kwargs: Any) -> Any:
        on_device = [tensor for tensor in flatten_tensors(tensors) if isinstance(tensor, DeviceTensor)]
        if not on_device:
            return original(tensors, *args, **kwargs)
        return handle_torch_function(original, on_device, tensors, *args, **kwargs)

    return backward


def _run_checkpoints_plainly(original: Callable[..., Any], _recorder: Recorder) -> Any:
    """`torch.utils.checkpoint` without re-entry asks for the device's random state to compute again: only run."""

    def generator(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Iterator[None]:
        # the function's own arguments among others: after them, or from torch 2.15 on as a tuple and a dictionary
        if any(isinstance(value, DeviceTensor) for value in flatten_tensors((args, kwargs))):
            yield
        else:
            yield from original(function, *args, **kwargs)

    return generator


def _take_masks_as_they_are(original: Callable[..., bool], _recorder: Recorder) -> Any:
    """`nn.Transformer` compares a mask with the causal one to choose a faster kernel of the same result: do not."""

    def is_causal_mask(
        mask: Optional[torch.Tensor], is_causal: Optional[bool] = None, size: Optional[int] = None
    ) -> bool:
        return is_causal is True if isinstance(mask, DeviceTensor) else original(mask, is_causal, size)

    return is_causal_mask


def _check_shapes_only(original: Callable[..., None], _recorder: Recorder) -> Any:
    """Recurrent layers refuse weights of another precision than their input, which the device casts."""

    def check_input(layer: Any, input: torch.Tensor, batch_sizes: Optional[torch.Tensor]) -> None:
        if isinstance(input, DeviceTensor):
            # the check reads nothing but the shape and the type
            input = torch.empty(input.shape, dtype=layer._flat_weights[0].dtype, device="meta")
        original(layer, input, batch_sizes)

    return check_input


def _refuse_branches(original: Callable[..., Any], _recorder: Recorder) -> Any:
    """`torch.cond` and `torch.while_loop` would hand the function to torch's own compiler."""

    def branch(*args: Any, **kwargs: Any) -> Any:
        if any(isinstance(value, DeviceTensor) for value in flatten_tensors((args, kwargs))):
            refuse(
                host_read_error(
                    f"`torch.{original.__name__}`",
                    help="compute both results and choose: `torch.where(condition, a, b)`",
                )
            )
            # what is wrong with the functions themselves shows as well
            results = [function(*args[-1]) for function in args if callable(function)]
            return results[0 if original.__name__ == "cond" else -1]
        return original(*args, **kwargs)

    return branch


def _make_constants(original: Callable[..., torch.Tensor], recorder: Recorder) -> Any:
    """`torch.tensor(data, device="ipu")` called by torch's own Python code, which the function mode does not see."""
    # threads of the user, such as those of a loader, go on making tensors of the host
    thread = threading.get_ident()
    keeps_device = original is not torch.tensor

    def from_data(*args: Any, **kwargs: Any) -> Any:
        # `as_tensor` and `asarray` leave a tensor on its device
        if keeps_device and any(isinstance(value, DeviceTensor) for value in (*args, *kwargs.values())):
            kwargs = {**kwargs, "device": kwargs.get("device") or IPU}
        if is_device(kwargs.get("device")) and threading.get_ident() == thread:
            return constant_from_data(recorder, original, args, kwargs)
        return original(*args, **kwargs)

    return from_data


def _make_ranges(original: Callable[..., torch.Tensor], recorder: Recorder) -> Any:
    """`torch.range` does not pass by the function mode as the other factories do.

    Nor is it asked for by other threads, and by functions of the host that `forward` calls: those stay the host's.
    """
    thread = threading.get_ident()

    def make_range(*args: Any, **kwargs: Any) -> Any:
        is_captured = threading.get_ident() == thread and not is_torch_function_disabled()
        if not is_captured or ("device" in kwargs and not is_device(kwargs["device"])):
            return original(*args, **kwargs)
        if "device" not in kwargs:
            note_forced_factory(recorder, "range")
        with DisableTorchFunction():
            numbers = original(*args, **{**kwargs, "device": "cpu"})
        return recorder.add_constant(numbers)

    return make_range


_PATCHES: Tuple[Tuple[Any, str, Callable[[Any, Recorder], Any]], ...] = (
    (BackwardHook, "_apply_on_tensors", _leave_out_backward_hooks),
    (torch.autograd, "backward", _show_derivatives),
    (torch.utils.checkpoint, "_checkpoint_without_reentrant_generator", _run_checkpoints_plainly),
    (torch.utils.checkpoint, "_checkpoint_without_reentrant_generator_impl", _run_checkpoints_plainly),
    (torch.nn.modules.transformer, "_detect_is_causal_mask", _take_masks_as_they_are),
    (torch.nn.RNNBase, "check_input", _check_shapes_only),
    # distributions check the values of their parameters unless told not to
    (torch.distributions.Distribution, "_validate_args", lambda _original, _recorder: False),
    (torch, "cond", _refuse_branches),
    (torch, "while_loop", _refuse_branches),
    (torch, "tensor", _make_constants),
    (torch, "as_tensor", _make_constants),
    (torch, "range", _make_ranges),
    (torch, "asarray", _make_constants),
)
