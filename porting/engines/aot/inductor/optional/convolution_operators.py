"""Operators that convolve by kernels of this package, and how Inductor compiles them.

The kernels are C++ beside this file: `winograd.h` is for windows of 3 x 3 and stride 1, `depthwise.h` for a filter for
each channel, `planar.h` for few channels and stride 1. The operators are for a process that compiles: a program with
them is written to no file. All tensors are float32 with their channels innermost: images [count, ins, rows, columns],
filters [outs, ins / groups, *window].
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple

import torch

from .....support.own_operators import register_operator
from .....torch_insides.inductor import BaseView, CppTemplate, ExternKernel, FixedLayout, lowerings

__all__ = ["ALGORITHMS", "convolve", "find_filter_gradient", "find_image_gradient", "install_lowerings"]

ALGORITHMS = ("winograd", "depthwise", "planar")
"""What the operators take as their `algorithm`: a C++ file and its namespace."""

_NAMESPACE = "porting_convolution"
# the numbers of `Images` in C++
_NUM_SIZES = 13
_SHAPE = ", ".join(f"sizes[{index}]" for index in range(_NUM_SIZES))
_ENTRY = """
extern "C" void {algorithm}_{name}(
    const float* a, const float* b, const float* c, float* result, const long* sizes, int threads) {{
  porting_{algorithm}::{name}(
      {pointers}, result, porting_images::Images{{{shape}}}, sizes[{ins}], sizes[{outs}], threads);
}}
"""
_POINTERS = {"convolve": "a, b, c", "find_image_gradient": "a, b", "find_filter_gradient": "a, b"}


def _find_result(name: str, arguments: Sequence[Any]) -> Tuple[Tuple[int, ...], List[int]]:
    """Return the shape of an operator's result; and the numbers of `Images` in C++, then those of the channels."""
    one, other = (tuple(map(int, value.shape)) for value in arguments[:2])
    stride, padding, dilation, algorithm = arguments[3:]
    if name == "convolve":
        images, outs, window = one, other[0], other[2:]
    elif name == "find_filter_gradient":
        images, outs, window = other, one[1], tuple(arguments[2])
    else:
        ins = one[1] if algorithm == "depthwise" else other[1]
        images, outs, window = (one[0], ins, *arguments[2]), one[1], other[2:]
    count, ins, *size = images
    result = [(size[i] + 2 * padding[i] - dilation[i] * (window[i] - 1) - 1) // stride[i] + 1 for i in range(2)]
    shape = {
        "convolve": (count, outs, *result),
        "find_image_gradient": tuple(images),
        "find_filter_gradient": (outs, 1 if algorithm == "depthwise" else ins, *window),
    }[name]
    return shape, [count, *size, *result, *padding, *window, *dilation, *stride, ins, outs]


# -- running them in this process --------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def _read_kernels(algorithm: str) -> str:
    files = (Path(__file__).parent / f"{name}.h" for name in ("images", algorithm))
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@functools.lru_cache(maxsize=None)
def _load_kernels(algorithm: str) -> ctypes.CDLL:
    """Compile the kernels for sizes that they are told when they run; it takes a second."""
    from .library_build import compile_library

    entries = [
        _ENTRY.format(
            algorithm=algorithm, name=name, pointers=pointers, shape=_SHAPE, ins=_NUM_SIZES, outs=_NUM_SIZES + 1
        )
        for name, pointers in _POINTERS.items()
    ]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / f"{algorithm}.so"
        compile_library("\n".join([_read_kernels(algorithm), *entries]), library)
        return ctypes.CDLL(str(library))


def _run_here(name: str, *arguments: Any) -> torch.Tensor:
    shape, sizes = _find_result(name, arguments)
    tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
    last = torch.channels_last
    ordered = [value.contiguous(memory_format=last) if value.dim() == 4 else value for value in tensors]
    result = torch.empty(shape, memory_format=last)
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in ordered]
    pointers += [ctypes.c_void_p()] * (3 - len(pointers))
    numbers = (ctypes.c_long * len(sizes))(*sizes)
    function = getattr(_load_kernels(arguments[-1]), f"{arguments[-1]}_{name}")
    function(*pointers, ctypes.c_void_p(result.data_ptr()), numbers, torch.get_num_threads())
    return result


def _make_empty(name: str, *arguments: Any) -> torch.Tensor:
    shape, _sizes = _find_result(name, arguments)
    return torch.empty(shape, device=arguments[0].device, memory_format=torch.channels_last)


def _register_operator(name: str, parameters: str) -> Any:
    schema = f"{name}({parameters}, int[] stride, int[] padding, int[] dilation, str algorithm) -> Tensor"
    compute, make_empty = functools.partial(_run_here, name), functools.partial(_make_empty, name)
    return register_operator(_NAMESPACE, schema, compute=compute, make_empty=make_empty)


convolve = _register_operator("convolve", "Tensor images, Tensor filters, Tensor? bias")
"""Convolve images with filters and add the bias, if there is one."""

find_image_gradient = _register_operator("find_image_gradient", "Tensor gradients, Tensor filters, int[] size")
"""Return the gradient of images of `size`, rows and columns, by that of the result."""

find_filter_gradient = _register_operator("find_filter_gradient", "Tensor gradients, Tensor images, int[] window")
"""Return the gradient of the filters, which have this `window`, by that of the result."""


# -- compiling them ----------------------------------------------------------------------------------------------------


def install_lowerings(num_threads: int) -> None:
    """Let Inductor, in this process, compile the operators for `num_threads`."""

    class _Template(CppTemplate):
        """A call of a function of the kernels; `buffers` are its tensors, None for no bias."""

        def __init__(self, function: Tuple[str, str], buffers: Sequence[Any], layout: Any, sizes: List[int]) -> None:
            super().__init__("_".join(function), [buffer for buffer in buffers if buffer], layout, num_threads)
            self._function, self._buffers, self._sizes = function, buffers, sizes

        def render(self, **given: Any) -> str:
            kernel, output = given["kernel"], given.get("template_buffer_node") or self.output_node
            names = {node.get_name(): f"input_{index}" for index, node in enumerate(self.input_nodes)}
            inputs: Dict[str, Any] = {names[node.get_name()]: node for node in self.input_nodes}
            definition = kernel.def_kernel(inputs=inputs, outputs={"result": output})
            algorithm, name = self._function
            shape = ", ".join(map(str, self._sizes[:_NUM_SIZES]))
            arguments = ["nullptr" if node is None else names[node.get_name()] for node in self._buffers]
            arguments += ["result", f"porting_images::Images{{{shape}}}", *map(str, self._sizes[_NUM_SIZES:])]
            call = f"porting_{algorithm}::{name}({', '.join(arguments)}, {num_threads});"
            kernels = _read_kernels(algorithm)
            return f'{self.header().getvalue()}\n{kernels}\nextern "C" {definition}\n{{\n  {call}\n}}\n'

    def lower(name: str, *arguments: Any) -> Any:
        shape, sizes = _find_result(name, [_Shaped(value) if _is_tensor(value) else value for value in arguments])
        tensors = arguments[: _POINTERS[name].count(",") + 1]
        buffers = [_lay_out_buffer(value) if _is_tensor(value) else None for value in tensors]
        device, dtype = arguments[0].get_device(), arguments[0].get_dtype()
        layout = FixedLayout(device, dtype, list(shape), stride=_list_strides(shape))
        return _Template((arguments[-1], name), buffers, layout, sizes).generate().output_node()

    for name in _POINTERS:
        packet = getattr(getattr(torch.ops, _NAMESPACE), name)
        lowerings[packet] = lowerings[packet.default] = functools.partial(lower, name)


class _Shaped:
    """A value of Inductor with the attribute that tensors have."""

    def __init__(self, value: Any) -> None:
        self.shape = value.get_size()


def _is_tensor(value: object) -> bool:
    return hasattr(value, "get_size")


def _lay_out_buffer(value: Any) -> Any:
    """Return the buffer of a value, in the order that the kernels take for granted."""
    kernel = ExternKernel
    value = kernel.realize_input(value)
    strides = _list_strides(list(map(int, value.get_size())))
    value = kernel.require_exact_strides(value, strides)
    if isinstance(kernel.unwrap_storage_for_input(value), BaseView):
        # a kernel is given the beginning of a buffer, and this is a part of one
        value = kernel.require_exact_strides(kernel.copy_input(value), strides)
    return kernel.unwrap_storage_for_input(value)


def _list_strides(shape: Sequence[int]) -> List[int]:
    """Return the strides of a dense tensor, those of four dimensions with the channels innermost."""
    order = [1, 3, 2, 0] if len(shape) == 4 else list(reversed(range(len(shape))))
    sizes = itertools.accumulate((shape[dim] for dim in order), lambda one, other: one * other)
    strides = dict(zip(order, [1, *sizes]))
    return [strides[dim] for dim in range(len(shape))]
