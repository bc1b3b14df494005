"""Walk through whole programs, their modules first, then what stands under main guards, then what nothing calls.

The facts of a preflight come from here.
"""

from __future__ import annotations

import functools
import re
import sys
from typing import Callable, Set

from porting.source.facts import Facts, Kind
from porting.source.project import Module, Project
from porting.source.walk.attributes import bind_function, find_kind_of_class
from porting.source.walk.expressions import EVALUATORS
from porting.source.walk.functions import Arguments, call_function, find_instance
from porting.source.walk.imports import walk_module
from porting.source.walk.statements import EXECUTORS
from porting.source.walk.values import Function
from porting.source.walk.walk import Frame, Walk

__all__ = ["collect_facts"]

_STEPS_PER_LINE = 60
_FEWEST_STEPS = 150_000
_MOST_STEPS = 4_000_000
_MOST_WALKS = 12
_MANY_LINES = 30_000
# functions that nothing calls are walked as long as this many times the steps have not been taken
_OVERTIME = 2


def collect_facts(project: Project) -> Facts:
    """Walk all programs of a project, as if they were run, and collect what happens in them.

    Nothing is imported or run. Modules come in the order in which they were asked for, each imported one where it is
    first imported; functions that nothing calls come last, with what their parameters are usually called.
    """
    project.follow_all()
    num_lines = sum(len(unit.lines) for unit in project.units)
    walk = Walk(
        project=project,
        evaluators=EVALUATORS,
        executors=EXECUTORS,
        most_steps=min(_MOST_STEPS, max(_FEWEST_STEPS, _STEPS_PER_LINE * num_lines)),
        most_walks=_MOST_WALKS if num_lines < _MANY_LINES else 3,
    )
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEPEST_STACK))
    try:
        _walk_entries(walk)
        _walk_deferred(walk)
        _walk_unimported(walk)
        _walk_uncalled(walk)
    finally:
        sys.setrecursionlimit(limit)
    facts = walk.collector.finish()
    facts.functions = list(dict.fromkeys(function.node for function in walk.functions))
    facts.entered = [node for node in facts.functions if walk.walks.get(node)]
    return facts


# a frame of the program's takes some ten of Python's for each level of its syntax
_DEEPEST_STACK = 8_000


def _walk_entries(walk: Walk) -> None:
    modules = [walk.project.modules[path] for path in walk.project.entries]
    for module in sorted(modules, key=_is_library):
        if module not in walk.modules:
            walk.mains.add(module)
            with walk.standing(programs=frozenset([module.path])):
                walk_module(walk, module, is_main=True)


def _is_library(module: Module) -> bool:
    """Tell a module from a program: programs come first, so that what they import is walked on their way."""
    return not any("__main__" in line and "__name__" in line for unit in module.units for line in unit.lines)


def _walk_deferred(walk: Walk) -> None:
    while walk.deferred:
        module, unit, body = walk.deferred.pop(0)
        frame = Frame(unit=unit, module=module, variables=walk.globals[module])
        with walk.inside(frame, programs=frozenset([module.path])):
            walk.attempt(functools.partial(walk.run, body))


def _walk_unimported(walk: Walk) -> None:
    """Walk what imports lead to that nothing has come to: those in functions, and of names that are computed."""
    waiting = list(walk.project.modules.values())
    while waiting:
        for module in waiting:
            if module not in walk.modules:
                walk_module(walk, module, is_main=False)
        walk.project.follow_all()
        waiting = [module for module in walk.project.modules.values() if module not in walk.modules]


def _walk_uncalled(walk: Walk) -> None:
    """Walk functions that nothing has called: first those that nothing mentions, which others may be called by."""
    mentioned = _collect_mentioned(walk.project)
    _walk_rest(walk, lambda function: _is_root(function, mentioned))
    _walk_rest(walk, lambda function: True)


def _walk_rest(walk: Walk, is_wanted: Callable[[Function], bool]) -> None:
    # a function that is walked may define others
    number = 0
    while number < len(walk.functions):
        function = walk.functions[number]
        number += 1
        is_due = walk.walks.get(function.node, 0) == 0 and walk.num_steps < _OVERTIME * walk.most_steps
        if is_due and is_wanted(function):
            _walk_alone(walk, function)


def _collect_mentioned(project: Project) -> Set[str]:
    """Collect the words that the project's text has elsewhere than where they are defined."""
    return set().union(*(_WORD.findall(_DEFINED.sub(" ", unit.text)) for unit in project.units))


_WORD = re.compile(r"[^\W\d]\w*")
_DEFINED = re.compile(r"^[ \t]*(?:async[ \t]+)?(?:def|class)\s+\w+", re.MULTILINE)


def _is_root(function: Function, mentioned: Set[str]) -> bool:
    name = getattr(function.node, "name", "")
    if function.owner is not None and name.startswith("__"):
        return function.owner.node.name not in mentioned
    return name not in mentioned


def _walk_alone(walk: Walk, function: Function) -> None:
    frame = Frame(unit=function.unit, module=function.module, variables=walk.globals[function.module])
    # what runs the tests of a file calls these
    is_of_program = function.module in walk.mains and getattr(function.node, "name", "").startswith("test")
    with walk.inside(frame, programs=frozenset([function.module.path] if is_of_program else ())):
        walk.attempt(functools.partial(_call_alone, walk, function))


def _call_alone(walk: Walk, function: Function) -> None:
    if function.owner is None:
        call_function(walk, function, Arguments(are_unknown=True), function.node)
        return
    receivers = walk.instances.get(function.owner, [])[:3] or [find_instance(walk, function.owner)]
    is_module = find_kind_of_class(function.owner) in (Kind.MODULE, Kind.CRITERION)
    for bound in bind_function(function, tuple(receivers)):
        if isinstance(bound, Function) and walk.walks.get(bound.node, 0) == 0:
            name = getattr(function.node, "name", "")
            loops = walk.list_loops_of_library(function.node) if _FOR_EACH_BATCH.fullmatch(name) else walk.loops
            with walk.standing(in_forward=is_module and name == "forward", loops=loops):
                call_function(walk, bound, Arguments(are_unknown=True), function.node)


# methods of Lightning's modules and of transformers' trainers
_FOR_EACH_BATCH = re.compile(
    r"(training|validation|test|predict|prediction|optimizer)_step|compute_loss"
    r"|on_(after_backward|before_(backward|optimizer_step|zero_grad)|\w+_batch_(start|end)|step_(begin|end))"
)
