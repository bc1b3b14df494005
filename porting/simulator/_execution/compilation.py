"""An executor gets its executable: the compiler's result, what is written about it, and its device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Mapping

import torch

from ...capture import StepGraph
from .._args_parser import BoundArguments, CompiledSignature, contains_dict
from .._executables.executable_cache import compilation_lock, keep_executable
from .._graph.graph_files import export_graph, trace_graph
from .._graph.graph_views import optimizer_names
from .._logging import logger
from .._optimizer.device_optimizer import parameter_names
from .._weights.host_weights import fetch_other_owners, plain_views
from ..enums import ConnectionType
from ..options import Options
from .attachment import attach, destroy
from .compiler import compile_model
from .device_pool import claim_device
from .device_target import check_target, is_offline, log_target
from .executables import HostSide
from .profile_files import write_profile

if TYPE_CHECKING:
    from .._poplar_executor import PoplarExecutor

__all__ = ["compile_executor"]

# What may differ between two compilations with the same result.
_NO_PART_OF_EXECUTABLES = frozenset(
    "compilation_progress_bar_fn cachePath enableEngineCaching log_dir max_repeat_logs random_seed connection_type "
    "engineOptions ipu_id model_name distributed_process_id globalReplicaOffset".split()
)


def compile_executor(
    executor: PoplarExecutor,
    bound: BoundArguments,
    *,
    check_graph: Callable[[StepGraph], None] = lambda _graph: None,
) -> None:
    """Compile for the arguments `bound`, and attach unless the device is offline.

    `check_graph` may refuse what was traced. If that fails the executor stays as it is; else what it was compiled to
    before is destroyed.
    """
    options = executor._options
    check_target(options)
    log_target(options)
    if contains_dict(bound):
        logger.warning(
            "Dicts as inputs only have partial support, they can be accessed using literal keys, but full Python "
            "functionality is not enabled. Consider changing dict inputs to tuple."
        )
    executor._wrap_user_model()
    if executor._training:
        executor._device_optimizer.require_own(parameter_names(executor._user_model))
    with torch.inference_mode(False), compilation_lock(executor._model, options):
        compiled = compile_model(
            executor._model,
            bound,
            options,
            training=executor._training,
            per_replica=executor.per_replica_params,
            optimizer_names=lambda: optimizer_names(executor),
            host=_host_side(executor),
        )
        trace_graph(compiled.graph)
        check_graph(compiled.graph)
        export_graph(compiled.graph)
        keep_executable(compiled.graph, options, settings=_settings(executor))
    write_profile(options, training=executor._training)
    destroy(executor)
    executor._wrap_user_model()  # lazy parameters have a value now
    signature = CompiledSignature(bound)
    if options.connection_type == ConnectionType.Always:
        executor._claim = claim_device(options, compiled.num_ipus)
    executor._signature = signature
    executor._compiled = compiled
    executor._host_rng_state_is_dirty = False
    executor._call_times = None
    if not is_offline(options):
        attach(executor)


def _host_side(executor: PoplarExecutor) -> HostSide:
    """Return what the executable is built for and measured with; the weights are fetched only if they are asked for."""

    def weights() -> Mapping[str, torch.Tensor]:
        fetch_other_owners(executor._user_model, executor)
        return plain_views(executor._user_model)

    if not executor._training:
        return HostSide(weights=weights)
    optimizer = executor._device_optimizer
    return HostSide(lambda state: optimizer.groups_on(state, parameter_names(executor._user_model)), weights)


def _settings(executor: PoplarExecutor) -> Dict[str, Any]:
    """Return what besides the graph makes an executable what it is."""
    options: Options = executor._options
    settings = {key: value for key, value in options.toDict().items() if key not in _NO_PART_OF_EXECUTABLES}
    settings["optimizer"] = str(executor._dict_optimizer.get("optimizer_type"))
    return settings
