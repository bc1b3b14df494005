"""Where a compiled step runs: its stages in their order, and each weight on one IPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Sequence, Set

from ..adapters.stages import check_order
from ..diagnostics import OptionError, caller_place
from ..options import PortOptions
from .parts import Parts

if TYPE_CHECKING:  # a machine with IPUs has no need of the torch that capture wants
    from ..capture import StepGraph

__all__ = ["check_placement"]


def check_placement(parts: Parts, executor: Any, begun: Sequence[str]) -> None:
    """Raise OptionError if the stages that a trace has begun are not those of the options, or cannot be placed so.

    P009 for their order and for an IPU without an operator, P010 for a parameter that operators on two IPUs use; the
    vendor's compiler says the last two by itself.
    """
    if not parts.options.stages:
        return
    check_order(parts.options, begun)
    compiled = parts.backend.compiled_step(executor)
    if compiled is not None:
        _check_ipus(compiled.graph, parts.options)
        _check_weights(compiled.graph)


def _check_ipus(graph: StepGraph, options: PortOptions) -> None:
    used = {node.meta.get("ipu") for node in graph.graph.nodes if node.op == "call_function"}
    idle = sorted(set(range(options.num_ipus)) - used)
    if idle:
        raise OptionError.of(
            "P009",
            message=f"no operator runs on IPU {idle[0]}",
            place=caller_place(),
            notes="a module that contains another stage's module begins just before it, and has nothing to do itself",
            help="what comes before the first stage is on IPU 0: name the module with which IPU 1 begins",
        )


def _check_weights(graph: StepGraph) -> None:
    names = {node: info.name for info, node in zip(graph.parameters, graph.placeholders)}
    ipus: Dict[str, Set[int]] = {}
    for node in graph.graph.nodes:
        ipu = node.meta.get("ipu")
        for used in node.all_input_nodes if node.op == "call_function" and ipu is not None else ():
            if used in names:
                ipus.setdefault(names[used], set()).add(ipu)
            if len(ipus.get(names.get(used, ""), ())) > 1:
                where = " and ".join(str(number) for number in sorted(ipus[names[used]]))
                module = node.meta.get("module_path") or "forward"
                raise OptionError.of(
                    "P010",
                    message=f"the parameter `{names[used]}` is used on IPU {where}",
                    place=node.meta.get("place") or caller_place(),
                    notes=f"`{module}` uses it on IPU {ipu}, and a weight lies on one IPU",
                    help="begin a stage on the weight's IPU where it is used again, as in `stages={..., 'head': 0}`",
                )
