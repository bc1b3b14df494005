"""Name the parts of torch's compiler that the engine `aot` calls and changes; only a process that compiles loads this.

Each `Parts` belongs to one change. A change that is missing a part is left out, or the engine is, as its module says.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping

from .parts import Parts, look_up

__all__ = [
    "AOT_COMPILE",
    "CHANNELS_LAST",
    "CONVOLUTIONS",
    "GUARDS",
    "LIBRARIES",
    "PRODUCTS",
    "QUICK_CHECKS",
    "RENAMES",
    "REPEATED_VALUES",
    "SETTINGS",
    "SUMS",
    "VECTORS",
    "choose_settings",
    "probe_required",
]

_NONE = "no step can be compiled"
_HERE = "torch._inductor"

AOT_COMPILE = Parts(_NONE)
aot_compile: Any = AOT_COMPILE.find(f"{_HERE}:aot_compile")
config: Any = AOT_COMPILE.find(f"{_HERE}.config:")

GUARDS = Parts(_NONE)
CppKernel: Any = GUARDS.find(f"{_HERE}.codegen.cpp:CppKernel")
CppVecKernel: Any = GUARDS.find(f"{_HERE}.codegen.cpp:CppVecKernel")
KernelGroup: Any = GUARDS.find(f"{_HERE}.codegen.cpp:KernelGroup")
CSEProxy: Any = GUARDS.find(f"{_HERE}.codegen.common:CSEProxy")
ValueRanges: Any = GUARDS.find("torch.utils._sympy.value_ranges:ValueRanges")
virtualized: Any = GUARDS.find(f"{_HERE}.virtualized:")
GUARDS.find(f"{_HERE}.virtualized:ops")
for _name in (
    *("CppKernel.check_bounds", "CppKernel.indirect_assert", "CppVecKernel.indirect_assert"),
    *("CppVecKernel._load_or_store_non_contiguous", "KernelGroup.codegen_group"),
):
    GUARDS.find(f"{_HERE}.codegen.cpp:{_name}")
GUARDS.find(f"{_HERE}.codegen.common:CSEProxy.indirect_indexing")
GUARDS.find(f"{_HERE}.codegen.common:CSE.scoped_copy")

RENAMES = Parts(_NONE)
SchedulerNode: Any = RENAMES.find(f"{_HERE}.scheduler:SchedulerNode")
RENAMES.find(f"{_HERE}.scheduler:SchedulerNode.recompute_size_and_body")
RENAMES.find(f"{_HERE}.scheduler:SchedulerNode.set_read_writes")


def probe_required() -> str:
    """Return which parts are missing without which a program could be wrong, or not be made; empty if none is."""
    return "; ".join(filter(None, (parts.probe() for parts in (AOT_COMPILE, GUARDS, RENAMES))))


SUMS = Parts("sums of compiled steps are less exact than those of eager PyTorch")
SUMS.find(f"{_HERE}.codegen.cpp:CppKernel.need_use_acc_helper")
SUMS.find(f"{_HERE}.codegen.cpp:CppKernel._acc_helper_init")

REPEATED_VALUES = Parts("what a larger tensor repeats is computed for each of its elements")
GraphLowering: Any = REPEATED_VALUES.find(f"{_HERE}.graph:GraphLowering")
TensorBox: Any = REPEATED_VALUES.find(f"{_HERE}.ir:TensorBox")
REPEATED_VALUES.find(f"{_HERE}.graph:GraphLowering.run_node")

CHANNELS_LAST = Parts("maximum pools and enlarged images are computed by slower loops")
decompositions: Any = CHANNELS_LAST.find(f"{_HERE}.decomposition:decompositions")
pool_lowerings: Any = CHANNELS_LAST.find(f"{_HERE}.lowering:lowerings")
call_torchs_kernel: Any = CHANNELS_LAST.find(f"{_HERE}.lowering:fallback_handler")
compute_pool_gradient: Any = CHANNELS_LAST.find(f"{_HERE}.lowering:fallback_max_pool2d_with_indices_backward")
CHANNELS_LAST.find(f"{_HERE}.virtualized:V")
require_channels_last: Any = CHANNELS_LAST.find(f"{_HERE}.ir:ExternKernel.require_channels_last")
require_stride_order: Any = CHANNELS_LAST.find(f"{_HERE}.ir:ExternKernel.require_stride_order")
get_stride_order: Any = CHANNELS_LAST.find(f"{_HERE}.ir:get_stride_order")
AUTOGRAD: Any = CHANNELS_LAST.find("torch._C:DispatchKey.Autograd")
below_autograd: Any = CHANNELS_LAST.find("torch._C:_AutoDispatchBelowAutograd")
CHANNELS_LAST.find("torch:ops.aten.upsample_bilinear2d.default.py_kernels")
clear_dispatch: Any = CHANNELS_LAST.find("torch:ops.aten.upsample_bilinear2d.default._dispatch_cache.clear")

CONVOLUTIONS = Parts("convolutions are computed by oneDNN alone")
CppTemplate: Any = CONVOLUTIONS.find(f"{_HERE}.codegen.cpp_template:CppTemplate")
lowerings: Any = CONVOLUTIONS.find(f"{_HERE}.lowering:lowerings")
FixedLayout: Any = CONVOLUTIONS.find(f"{_HERE}.ir:FixedLayout")
BaseView: Any = CONVOLUTIONS.find(f"{_HERE}.ir:BaseView")
ExternKernel: Any = CONVOLUTIONS.find(f"{_HERE}.ir:ExternKernel")
force_stride_order: Any = CONVOLUTIONS.find(f"{_HERE}.inductor_prims:force_stride_order")
for _name in ("copy_input", "realize_input", "require_exact_strides", "unwrap_storage_for_input"):
    CONVOLUTIONS.find(f"{_HERE}.ir:ExternKernel.{_name}")

PRODUCTS = Parts("matrices are multiplied by torch's BLAS alone")
LinearUnary: Any = PRODUCTS.find(f"{_HERE}.mkldnn_ir:LinearUnary")
create_output_node: Any = PRODUCTS.find(f"{_HERE}.mkldnn_ir:_create_output_node")
begin_fusion: Any = PRODUCTS.find(f"{_HERE}.fx_passes.mkldnn_fusion:_mkldnn_fusion_init")
PRODUCTS.find("torch:ops.mkldnn._linear_pointwise.binary")
# those of convolutions and of repeated values, which it uses too
for _name in ("ir:FixedLayout", "ir:TensorBox", "lowering:lowerings"):
    PRODUCTS.find(f"{_HERE}.{_name}")
for _name in ("realize_input", "require_contiguous", "require_exact_strides"):
    PRODUCTS.find(f"{_HERE}.mkldnn_ir:LinearUnary.{_name}")

VECTORS = Parts("images of few channels are computed with vectors that they do not fill")
pick_vec_isa: Any = VECTORS.find(f"{_HERE}.cpu_vec_isa:pick_vec_isa")
VECTORS.find(f"{_HERE}.config:cpp.simdlen")

QUICK_CHECKS = Parts("compiling takes some seconds longer")
VecISA: Any = QUICK_CHECKS.find(f"{_HERE}.cpu_vec_isa:VecISA")
CppWrapperCpu: Any = QUICK_CHECKS.find(f"{_HERE}.codegen.cpp_wrapper_cpu:CppWrapperCpu")
get_cpp_compiler: Any = QUICK_CHECKS.find(f"{_HERE}.cpp_builder:get_cpp_compiler")
QUICK_CHECKS.find(f"{_HERE}.cpu_vec_isa:VecISA.check_build")
QUICK_CHECKS.find(f"{_HERE}.codegen.cpp_wrapper_cpu:CppWrapperCpu.generate_input_output_runtime_checks")

LIBRARIES = Parts("kernels and what calls them are compiled one after the other")
AotCodeCompiler: Any = LIBRARIES.find(f"{_HERE}.codecache:AotCodeCompiler")
CppBuilder: Any = LIBRARIES.find(f"{_HERE}.cpp_builder:CppBuilder")
CppTorchDeviceOptions: Any = LIBRARIES.find(f"{_HERE}.cpp_builder:CppTorchDeviceOptions")
pick_library_isa: Any = LIBRARIES.find(f"{_HERE}.cpu_vec_isa:pick_vec_isa")

SETTINGS = Parts("no step can be compiled")


def choose_settings(wanted: Mapping[str, Any], *, required: Mapping[str, Any]) -> Dict[str, Any]:
    """Return those of the settings that this torch's compiler has; MissingPart if it lacks one that is `required`.

    The others make compiling quicker or a program smaller, and are left out where there are none of their names.
    """
    for name in required:
        SETTINGS.find(f"{_HERE}.config:{name}")
    SETTINGS.require()
    return {**required, **{name: value for name, value in wanted.items() if _has_setting(name)}}


def _has_setting(name: str) -> bool:
    try:
        look_up(f"{_HERE}.config:{name}")
    except (ImportError, AttributeError):
        return False
    return True
