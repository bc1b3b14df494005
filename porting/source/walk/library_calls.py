"""Calls of libraries and of Python's own functions, by the table of what they return."""

from __future__ import annotations

import ast
import re
from functools import partial
from typing import Callable, List, Mapping, Tuple

from porting.source.facts import Call, Kind, ProgramObjects
from porting.source.library import (
    PASSING,
    SEQUENCES,
    TENSOR_KINDS,
    is_host_name,
    is_known_library,
    list_result_kinds,
    read_name_rows,
)
from porting.source.walk.attributes import read_attribute
from porting.source.walk.functions import Arguments, call_function
from porting.source.walk.guesses import is_loss_name
from porting.source.walk.host_reads import record_read
from porting.source.walk.imports import import_by_name, import_computed
from porting.source.walk.iteration import find_element, list_sources
from porting.source.walk.method_calls import pass_on, update_elements
from porting.source.walk.values import (
    UNKNOWN,
    External,
    Function,
    Item,
    Object,
    Partial,
    Stream,
    Value,
    join,
    list_constants,
    list_functions,
    list_objects,
    list_program_objects,
)
from porting.source.walk.walk import Walk

__all__ = ["call_library"]


def call_library(walk: Walk, name: str, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    """Call a function or class of a library by its qualified name."""
    special = _SPECIAL.get(name)
    if special is not None:
        return special(walk, arguments, node)
    if name in PASSING:
        number = PASSING[name]
        return arguments.values[number] if -1 < number < len(arguments.values) else _get_keyword(arguments, "iterable")
    if name in SEQUENCES:
        return _make_sequence(walk, name, arguments, node, call)
    kinds = list_result_kinds(name)
    if len(kinds) > 1:
        return _make_several(walk, name, kinds, arguments, node, call)
    if kinds:
        return _make_object(walk, name, kinds[0], arguments, node, call)
    return _call_unlisted(walk, name, arguments, node, call)


def _get_keyword(arguments: Arguments, name: str) -> Value:
    return arguments.keywords.get(name, UNKNOWN)


def _list_values(arguments: Arguments) -> List[Value]:
    return [*arguments.values, *arguments.keywords.values(), arguments.rest]


def _list_parts(arguments: Arguments) -> ProgramObjects:
    return tuple(dict.fromkeys(one for value in _list_values(arguments) for one in list_program_objects(value)))


def _make_object(walk: Walk, name: str, kind: Kind, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    if kind is Kind.PORT:
        for program_object in list_program_objects(join(*arguments.values[:1])):
            walk.collector.become(program_object, Kind.MODULE)
        _move_functions(walk, arguments, node)
    parts = _list_parts(arguments)
    if kind is Kind.TENSOR:
        tensors = tuple(part for part in parts if part.kind in TENSOR_KINDS)
        if tensors and not name.endswith("_like"):
            return (walk.derive(node, tensors, name=name, call=call),)
        parts = ()
    made = walk.make(node, kind, name=name, parts=parts, call=call)
    if kind is Kind.MODULE:
        functions = tuple(list_functions(arguments.values))
        if functions:
            walk.store.write(made.variables, "$function", functions)
    return (made,)


def _move_functions(walk: Walk, arguments: Arguments, node: ast.Call) -> None:
    """Walk the losses, metrics and label transforms that a port is given, which it moves into `forward`."""
    if any(word.arg == "loop" and getattr(word.value, "value", "") == "host" for word in node.keywords):
        return
    labels = (walk.make(node, Kind.BATCH, name="labels"),)
    output = (walk.make(node, Kind.OUTPUT, name="output"),)
    named = [("", value) for value in arguments.values[1:]] + list(arguments.keywords.items())
    for name, value in named:
        given = Arguments([labels]) if "transform" in name else Arguments([output, labels])
        for item in (*value, *find_element(walk, value, node)):
            for function in item.function if isinstance(item, Partial) else (item,):
                if isinstance(function, Function):
                    with walk.standing(in_forward=True):
                        call_function(walk, function, given, node)


def _make_several(
    walk: Walk, name: str, kinds: Tuple[Kind, ...], arguments: Arguments, node: ast.Call, call: Call
) -> Value:
    parts = _list_parts(arguments)
    numbered = enumerate(kinds)
    made = {n: (walk.make(node, kind, name=name, parts=parts, call=call, label=n),) for n, kind in numbered}
    return (walk.make_container(node, made),)


def _make_sequence(walk: Walk, name: str, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    made = walk.make(node, Kind.MODULE, name=name, parts=_list_parts(arguments), call=call)
    assert made.program_object is not None
    if made.elements is None:
        made = walk.by_program_object[made.program_object] = Object(made.program_object, elements={})
    assert made.elements is not None
    values = arguments.values
    if SEQUENCES[name] != "chain" and values or len(values) == 1 and any(_is_container(part) for part in values[0]):
        parts = [part for part in values[0] if isinstance(part, Object) and part.elements is not None]
        for part in parts:
            for key, value in list((part.elements or {}).items()):
                walk.store.write(made.elements, key, value)
        if not parts:
            walk.store.write(made.elements, "*", find_element(walk, values[0], node))
        return (made,)
    for number, value in enumerate(values):
        walk.store.write(made.elements, number, value)
    if arguments.rest:
        walk.store.write(made.elements, "*", arguments.rest)
    return (made,)


def _is_container(part: object) -> bool:
    return isinstance(part, Object) and part.elements is not None and part.program_object is None


_CLASS_NAME = re.compile(r"_?[A-Z]\w*[a-z]\w*")
_TENSOR_LIBRARIES = ("torch.", "torchvision.", "kornia.", "einops.", "poptorch.", "torchaudio.", "porting.")


def _call_unlisted(walk: Walk, name: str, arguments: Arguments, node: ast.Call, call: Call) -> Value:
    root, last = name.partition(".")[0], name.rpartition(".")[2]
    values = _list_values(arguments)
    _call_back(walk, name, arguments, node)
    if name.startswith(_TENSOR_LIBRARIES):
        tensors = tuple(part for part in _list_parts(arguments) if part.kind in TENSOR_KINDS)
        if tensors and not _CLASS_NAME.fullmatch(last):
            if name == "torch.autograd.backward":
                for part in tensors:
                    walk.collector.mark_loss(part)
                return UNKNOWN
            return UNKNOWN if is_host_name(last) else (walk.derive(node, tensors, name=name, call=call),)
        modules = [item for value in values for item in list_objects(value, Kind.MODULE)]
        if modules and name.startswith(("torch.nn.utils.", "torch.ao.", "torch.quantization.", "poptorch.")):
            return tuple(modules[:1])
    if name.endswith((".initialize", ".convert_syncbn_model", ".convert_sync_batchnorm", ".prepare_model")):
        return pass_on(walk, arguments, node)
    if _CLASS_NAME.fullmatch(last) and is_loss_name(last) and "With" not in last and not is_known_library(name):
        return _make_object(walk, name, Kind.CRITERION, arguments, node, call)
    if _CLASS_NAME.fullmatch(last) and root != "builtins":
        return (walk.make(node, Kind.OTHER, name=name, parts=_list_parts(arguments), call=call),)
    return UNKNOWN


def _call_back(walk: Walk, name: str, arguments: Arguments, node: ast.Call) -> None:
    """Walk the functions that a library is given, with arguments that nobody knows, save those of `spawn`."""
    functions = list_functions(_list_values(arguments))
    if not functions:
        return
    given = Arguments(are_unknown=True)
    if name.endswith((".spawn", ".Process", ".Thread", ".start_processes", ".launch", ".notebook_launcher")):
        for holder in _get_keyword(arguments, "args") or join(*arguments.values[1:2]):
            if isinstance(holder, Object) and holder.elements is not None:
                given.values = [holder.elements[key] for key in sorted(holder.elements, key=str)]
        if name.endswith((".spawn", ".start_processes")):
            given.values.insert(0, UNKNOWN)
    is_engine = name.startswith("ignite.") and name.endswith(".Engine")
    for function in functions:
        if walk.walks.get(function.node, 0) == 0:
            loops = walk.list_loops_of_library(function.node) if is_engine else walk.loops
            with walk.standing(loops=loops):
                call_function(walk, function, given, node)


def _call_enumerate(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    value = join(*arguments.values[:1])
    pair = walk.make_container(node, {0: UNKNOWN, 1: find_element(walk, value, node)})
    return (Stream((pair,), list_sources(value)),)


def _call_zip(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    places = (*node.args, *[node] * len(arguments.values))
    row = walk.make_container(node, dict(enumerate(map(partial(find_element, walk), arguments.values, places))))
    objects = tuple(one for value in arguments.values for one in list_sources(value))
    return (Stream((row,), objects),)


def _call_next(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    return find_element(walk, join(*arguments.values[:1]), node)


def _call_getattr(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    if len(arguments.values) < 2:
        return UNKNOWN
    names = [name for name in list_constants(arguments.values[1]) if isinstance(name, str)]
    owner = arguments.values[0]
    found = [read_attribute(walk, owner, name, node) for name in names]
    if not names:
        # any of a library's module, as `getattr(models, args.arch)`
        found = [
            (External(f"{item.name}.{_CHOSEN[item.name]}"),)
            for item in owner
            if isinstance(item, External) and item.name in _CHOSEN
        ]
    return join(*found, *arguments.values[2:3])


_CHOSEN = {library: name for library, name in read_name_rows("chosen")}


def _call_setattr(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    if len(arguments.values) == 3:
        for name in list_constants(arguments.values[1]):
            for item in arguments.values[0]:
                if isinstance(item, Object) and isinstance(name, str):
                    walk.store.add(item.variables, name, arguments.values[2])
    return UNKNOWN


def _call_partial(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    if not arguments.values:
        return UNKNOWN
    return (Partial(arguments.values[0], tuple(arguments.values[1:]), dict(arguments.keywords)),)


def _call_filter(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    made = _call_map(walk, arguments, node)
    for item in made:
        if isinstance(item, Stream):
            record_read(walk, node, item.element)
    elements = [find_element(walk, value, node) for value in arguments.values[1:2]]
    return (Stream(join(*elements), list_program_objects(join(*elements))),)


def _call_map(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    if len(arguments.values) < 2:
        return UNKNOWN
    elements = [find_element(walk, value, node) for value in arguments.values[1:]]
    functions = list_functions(arguments.values[:1])
    element = join(*[call_function(walk, function, Arguments(elements), node) for function in functions])
    return (Stream(element, list_program_objects(element)),)


def _call_sum(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    element = find_element(walk, join(*arguments.values[:1]), node)
    tensors = tuple(one for one in list_program_objects(element) if one.kind in TENSOR_KINDS)
    return (walk.derive(node, tensors, name="+"),) if tensors else UNKNOWN


def _call_max(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    return UNKNOWN


def _call_dict(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    container = walk.make_container(node)
    update_elements(walk, container, arguments)
    return (container,)


def _call_deepcopy(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    """Copy what is copied: another module, made of the first one, that goes its own way."""
    return tuple(_copy_item(walk, item, node) for item in join(*arguments.values[:1]))


def _copy_item(walk: Walk, item: Item, node: ast.Call) -> Item:
    if not isinstance(item, Object) or item.program_object is None or item.program_object.kind is not Kind.MODULE:
        return item
    call = walk.collector.find_call(node)
    copied = walk.make(
        node, Kind.MODULE, name=item.program_object.name, parts=(item.program_object,), call=call, label="copy"
    )
    if copied.definition is not item.definition or copied.variables is not item.variables:
        assert copied.program_object is not None
        copied = walk.by_program_object[copied.program_object] = Object(
            copied.program_object, item.definition, item.variables, item.elements
        )
    return copied


def _call_on_instances(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    """Call the function that `popdist.execute_on_instances` calls in some of the instances."""
    given = Arguments(arguments.values[2:], arguments.keywords)
    with walk.standing(guards=(*walk.guards, node)):
        functions = list_functions(arguments.values[1:2])
        return join(*[call_function(walk, function, given, node) for function in functions])


def _call_import(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    """Give the modules that are imported by a name; of one that is not known, those of its pattern or of a table."""
    names = [name for name in list_constants(join(*arguments.values[:1])) if isinstance(name, str)]
    value = join(*[import_by_name(walk, name) for name in names]) if names else import_computed(walk)
    return value or _leave_unread(walk, arguments, node)


def _call_configured(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    """Call what a configuration names: all that the project's name is read, and which of it this is nobody knows."""
    return UNKNOWN if import_computed(walk) else _leave_unread(walk, arguments, node)


def _leave_unread(walk: Walk, arguments: Arguments, node: ast.Call) -> Value:
    walk.collector.mark_unread(node)
    return UNKNOWN


_Special = Callable[[Walk, Arguments, ast.Call], Value]
_SPECIAL: Mapping[str, _Special] = {
    "builtins.enumerate": _call_enumerate,
    "builtins.zip": _call_zip,
    "builtins.next": _call_next,
    "builtins.getattr": _call_getattr,
    "builtins.setattr": _call_setattr,
    "builtins.filter": _call_filter,
    "builtins.map": _call_map,
    "builtins.sum": _call_sum,
    "builtins.max": _call_max,
    "builtins.min": _call_max,
    "builtins.dict": _call_dict,
    "collections.OrderedDict": _call_dict,
    "copy.deepcopy": _call_deepcopy,
    "popdist.execute_on_instances": _call_on_instances,
    "functools.partial": _call_partial,
    "importlib.import_module": _call_import,
    "builtins.__import__": _call_import,
    "pydoc.locate": _call_import,
    "runpy.run_module": _call_import,
    "runpy.run_path": _leave_unread,
    "builtins.exec": _leave_unread,
    "importlib.util.module_from_spec": _leave_unread,
    "hydra.utils.instantiate": _call_configured,
    "hydra.utils.call": _call_configured,
    "hydra.utils.get_class": _leave_unread,
    "hydra.utils.get_method": _leave_unread,
}
