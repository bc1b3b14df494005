"""Let several instances train a converted program: each has its share of the samples, and the first one writes files.

Their gradients are joined by the port's calls. What is edited are calls of the walk's facts: the loaders that feed the
training step, and what the instances have to do alike.
"""

from __future__ import annotations

import ast
import re
from typing import Dict, List

from porting.convert.bindings import Undecided
from porting.convert.device_option import DeviceOption
from porting.convert.editing import FileEdits
from porting.convert.first_writer import wait_for_files, write_once
from porting.convert.names import get_root
from porting.convert.program import Program
from porting.convert.sharing import Sharing
from porting.convert.steps import find_step
from porting.convert.trees import find_keyword, list_bases, write_node
from porting.source.facts import Call, Kind, ProgramObject
from porting.source.rules.program_objects import go_through_parts

__all__ = ["refuse_instances", "share_out"]

_SEEDS = re.compile(r"torch\.(random\.)?manual_seed|(.*[._])?(seed_everything|set_seed)")
_LEAVE_OUT = "leave `--instances` out; `PortOptions(replicas=)` shares each batch among the IPUs of one process"
_OWN_PROCESSES = "the program makes its processes by itself, with samplers and files of its own"
_TWICE = "each instance takes batches of the program's size, so that a step of two has twice as many samples"
_DOWNLOADS = "each instance downloads the dataset: start the program alone before"
_DRAWS = "each instance draws numbers of its own from `{0}`: call `{0}.seed` where they decide what is trained on"
_NO_LOADER = "the batches come from no `DataLoader` that was found, and each instance would train on all samples"
_PARTITION = "share its dataset out by hand, `porting.partition(dataset)`"


def refuse_instances(program: Program, reason: str) -> Undecided:
    """Say why a program is not converted for several instances."""
    return Undecided(program.main.path, 1, reason, _LEAVE_OUT)


def share_out(program: Program, option: DeviceOption, edits: Dict[str, FileEdits]) -> Sharing:
    """Plan the edits with which a program whose steps are a port's trains in several instances."""
    sharing = Sharing(program, option, edits)
    if option.sets_process:
        sharing.left.append(refuse_instances(program, _OWN_PROCESSES))
        return sharing
    _share_samples(sharing)
    _begin_alike(sharing)
    for call in sharing.iter_calls():
        _decide_alike(sharing, call)
        write_once(sharing, call)
    wait_for_files(sharing)
    return sharing


def _share_samples(sharing: Sharing) -> None:
    """Give the loaders of the training step a share of their datasets."""
    step = find_step(sharing.program)
    facts = sharing.program.list_facts(step.call, step.backward)
    given = [one for fact in facts for one in fact.given]
    given += [one for fact in facts for loop in fact.where.loops for one in loop.objects]
    found = go_through_parts(tuple(given), follow=lambda one: () if one.kind is Kind.LOADER else one.parts)
    loaders = [one for one in found if one.kind is Kind.LOADER]
    calls = dict.fromkeys(one.call for one in loaders)
    if not calls or None in calls:
        sharing.left.append(Undecided(step.file.path, step.call.lineno, _NO_LOADER, _PARTITION))
    for call in calls:
        if call is not None:
            _share_loader(sharing, call, loaders)
    words = [find_keyword(call.node, "download") for call in sharing.iter_calls()]
    if any(one is not None and write_node(one) != "False" for one in words):
        sharing.notes.append(_DOWNLOADS)
    sharing.notes.append(_TWICE)


def _share_loader(sharing: Sharing, call: Call, loaders: List[ProgramObject]) -> None:
    dataset = find_keyword(call.node, "dataset") or next(iter(call.node.args), None)
    fault = "" if isinstance(dataset, ast.expr) and not isinstance(dataset, ast.Starred) else "its dataset is unpacked"
    fault = fault or _find_fault(sharing.program, call, loaders)
    if fault or dataset is None:
        sharing.leave(call, f"several instances: {fault}", _PARTITION)
    elif not sharing.is_early(call):
        file, test = sharing.find_file(call), sharing.option.test
        sharing.choose(file, dataset, "partition(WHOLE)", test, "each instance trains on its share of the samples")
        sharing.require(file, "partition")


def _find_fault(program: Program, call: Call, loaders: List[ProgramObject]) -> str:
    """Say why a loader cannot have a share of its dataset; empty where it can."""
    given = {one.arg for one in call.node.keywords if write_node(one.value) != "None"}
    # what is unpacked is known where a dictionary of the program's is
    words = given | {*call.keywords} if None in given else given
    objects = [*call.keywords.get("dataset", ()), *(call.arguments[0] if call.arguments else ())]
    classes = [node for one in objects for _file, node in program.iter_classes(one.name.rpartition(".")[2])]
    loops = [loop for each in program.facts.calls for loop in each.where.loops]
    others = {one for loop in loops for one in loop.objects} - {*loaders}
    attributes = [node.value for _file, node in program.iter_nodes(ast.Attribute)]
    of_dataset = [one for one in attributes if isinstance(one, ast.Attribute) and one.attr == "dataset"]
    if program.find_file(call.where.file) is None or not call.name.startswith("torch.utils.data."):
        return f"`{call.name}` is not torch's `DataLoader`"
    if {"sampler", "batch_sampler"} & words or len(call.node.args) > 3:
        return "a sampler gives the order of all samples, and an instance has a share of them"
    if any("IterableDataset" in list_bases(one) for one in classes):
        return "an iterable dataset has no samples by index"
    if any(one in others for fact in program.list_facts(call.node) for one in fact.result):
        return "the same call makes loaders that train nothing, which have to give all samples"
    if any(get_root(one) != "self" for one in of_dataset):
        return "an attribute of a loader's `dataset` is read, and a share of a dataset has none"
    return ""


def _begin_alike(sharing: Sharing) -> None:
    """Let all instances begin with the same weights, by a seed where the program sets none."""
    calls, option = [*sharing.iter_calls()], sharing.option
    is_seeded = any(_SEEDS.fullmatch(one.name) and not one.where.guards for one in calls)
    if option.statement is not None and not is_seeded:
        edits = sharing.edits[option.path]
        has_torch = next(edits.file.iter_assignments("torch", edits.file.tree), None) is not None
        torch = "torch" if has_torch else '__import__("torch")'
        code = f"if {sharing.several}:\n    {torch}.manual_seed(0)"
        insert = edits.insert_before if option.is_before else edits.insert_after
        insert(option.statement, code, "instances", "the instances begin with the same weights")
        sharing.require(edits.file, "this_instance")
    for module in ("random", "numpy.random"):
        names = [one.name for one in calls if one.name.rpartition(".")[0] == module]
        if names and f"{module}.seed" not in names:
            sharing.notes.append(_DRAWS.format(module))


def _decide_alike(sharing: Sharing, call: Call) -> None:
    """Give a schedule that goes by a number the mean of the instances' numbers."""
    is_plateau = any(one.name.endswith("ReduceLROnPlateau") for one in call.receiver)
    if call.is_method("step") and is_plateau and call.node.args:
        file, test = sharing.find_file(call), sharing.option.test
        why = "all instances go on with the same learning rate"
        sharing.choose(file, call.node.args[0], "average_over_instances(float(WHOLE))", test, why)
        sharing.require(file, "average_over_instances", module="porting.adapters")
