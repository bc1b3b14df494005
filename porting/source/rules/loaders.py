"""Judge loaders by what they give: the last batch, workers, lengths, and who deals out the data."""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Optional, Set, Tuple, Union

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, ProgramObject
from porting.source.files import list_nodes
from porting.source.rules.guards import mentions
from porting.source.rules.names import name_last, write_dotted
from porting.source.rules.program_objects import tell_guess
from porting.source.rules.reading import Reading
from porting.source.rules.scope import Programs, rule

__all__ = [
    "iter_fed_ports",
    "iter_host_loaders",
    "iter_process_samplers",
    "iter_ragged_batches",
    "iter_short_slices",
    "iter_slow_augmentation",
]


@rule(Programs.PLAIN)
def iter_host_loaders(reading: Reading) -> Iterator[Finding]:
    """B010 and B014: a loader that does not know the device, and what it does with a short last batch."""
    for loader in _list_loaders(reading):
        if loader.place is not None and loader.call is not None:
            code = "B014" if _decides_last_batch(loader.call) else "B010"
            yield reading.report(code, loader.place, guess=tell_guess([loader]))


def _list_loaders(reading: Reading) -> List[ProgramObject]:
    made = [one for one in reading.facts.list_program_objects(Kind.LOADER) if one.call is not None]
    constructed = [one for one in made if one.call is not None and one.place == one.call.place]
    return list({one.place: one for one in constructed}.values())


def _decides_last_batch(call: Call) -> bool:
    """Tell whether a loader's last batch cannot be short, or somebody chose what becomes of it."""
    named = {*call.keywords, *(word.arg for word in call.node.keywords)}
    if {"drop_last", "batch_sampler"} & named:
        return True
    spread = any(word.arg is None for word in call.node.keywords) or any(
        isinstance(argument, ast.Starred) for argument in call.node.args
    )
    sizes = [word.value for word in call.node.keywords if word.arg == "batch_size"] or call.node.args[1:2]
    if not sizes:
        # one sample a batch, where nothing says more
        return not spread and "batch_size" not in named and call.name.startswith("torch.")
    return isinstance(sizes[0], ast.Constant) and sizes[0].value in (1, None)


@rule(Programs.PORTED, in_host_loops=False)
def iter_fed_ports(reading: Reading) -> Iterator[Finding]:
    """B014: a port's loop goes through torch's loader, or fetches its batches itself."""
    if _takes_several_shapes(reading) and not _joins_batches(reading):
        # the device's loader would leave out the short batches that such a port is made for
        return
    seen: Set[Place] = set()
    for call in _list_port_calls(reading):
        loop = reading.find_batch_loop(call.where)
        for program_object in loop.objects if loop is not None else ():
            is_new = (
                program_object.kind is Kind.LOADER
                and program_object.place is not None
                and program_object.place not in seen
            )
            if is_new and program_object.place is not None and not _makes_combined_batches(program_object):
                seen.add(program_object.place)
                infers = all(port.name.endswith(("inference", "inferenceModel")) for port in call.receiver)
                code = "B010" if infers and _may_be_short(reading, program_object) else "B014"
                # our executor for inference takes whole batches of any loader
                if code == "B010" or not all(port.name.endswith(".inference") for port in call.receiver):
                    yield reading.report(code, program_object.place, guess=tell_guess([program_object]))
    # of a port whose call takes one batch, a function may well make it
    of_poptorch = any(port.name.startswith("poptorch.") for port in reading.ports)
    if not seen and (of_poptorch or _joins_batches(reading)):
        if not reading.facts.list_program_objects(Kind.PORT_LOADER):
            yield from _iter_fetches(reading)


def _may_be_short(reading: Reading, loader: ProgramObject) -> bool:
    is_padded = any(part.name.endswith("FixedBatchDataset") for part in reading.go_through(loader))
    return loader.call is not None and not is_padded and not _decides_last_batch(loader.call)


def _makes_combined_batches(loader: ProgramObject) -> bool:
    """Tell whether a loader was given the rows of a whole call: a product, and no short last batch."""
    words = {word.arg: word.value for word in loader.call.node.keywords} if loader.call is not None else {}
    is_product = isinstance(words.get("batch_size"), ast.BinOp)
    return is_product and getattr(words.get("drop_last"), "value", None) is True


def _list_port_calls(reading: Reading) -> List[Call]:
    called = [call for call in reading.facts.calls if call.is_on(Kind.PORT) and not call.name.startswith(".")]
    calls = list(dict.fromkeys((*reading.port_calls, *called)))
    return [call for call in calls if not reading.is_excluded(call.where)]


_FETCH = re.compile(r"(fetch|get|load|next|read)_?(next|mini)?_?(mini)?batch\w*", re.IGNORECASE)


_FETCH_REMEDY = (
    "let a dataset yield the samples, `torch.utils.data.IterableDataset`, and give it to the device's loader; or let "
    "the function return all samples of a call: micro-batch x accumulation x replicas x device iterations"
)


def _iter_fetches(reading: Reading) -> Iterator[Finding]:
    loops = {(loop.node, call.place.file) for call in reading.port_calls for loop in call.where.loops}
    loaders = reading.facts.list_program_objects(Kind.LOADER)
    for call in reading.facts.calls:
        is_fetch = _FETCH.fullmatch(name_last(call.name)) and not reading.is_made_of(call.result, loaders)
        in_loop = bool(call.where.loops) and (call.where.loops[-1].node, call.place.file) in loops
        if is_fetch and in_loop and not call.where.in_evaluation and not call.where.without_gradients:
            yield reading.report("B014", call.place, remedy=_FETCH_REMEDY)


@rule(in_host_loops=False)
def iter_process_samplers(reading: Reading) -> Iterator[Finding]:
    """B015: `DistributedSampler` deals out the data to processes."""
    for call in reading.facts.calls:
        if name_last(call.name) == "DistributedSampler" and any(one.call is call for one in call.result):
            yield reading.report("B015", call.place)


# -------------------------------------------------------------------------------- augmentation

_RANDOM_TRANSFORM = re.compile(
    r"(torchvision|torchaudio|albumentations|kornia|monai|imgaug)\..*"
    r"(Random\w*|ColorJitter|AutoAugment\w*|RandAugment|TrivialAugment\w*|AugMix|Rand[A-Z]\w+)"
)
_RANDOM_CALL = re.compile(r"(random|numpy\.random)\.\w+|torch\.(rand\w*|normal|bernoulli)")


# a loop on the host waits for much else
@rule(in_host_loops=False)
def iter_slow_augmentation(reading: Reading) -> Iterator[Finding]:
    """B017: a loader without workers augments at random, in the process that feeds the device."""
    seen: Set[Place] = set()
    random_classes = {
        call.where.function.rpartition(".")[0]
        for call in reading.facts.calls
        if call.where.function.endswith(".__getitem__") and _RANDOM_CALL.fullmatch(call.name)
    }
    for loader in reading.facts.list_program_objects(Kind.LOADER, Kind.PORT_LOADER):
        if loader.call is None or loader.place is None or loader.place in seen or _may_have_workers(reading, loader):
            continue
        parts = reading.go_through(loader)
        # one that no loop goes through gives a batch to compile with
        if reading.is_ported and not any(
            loader in loop.objects for call in reading.facts.calls for loop in call.where.loops
        ):
            continue
        # what only the program draws may be the data itself
        draws = not reading.is_ported and any(part.name in random_classes for part in parts)
        if draws or any(_RANDOM_TRANSFORM.fullmatch(part.name) for part in parts):
            seen.add(loader.place)
            yield reading.report("B017", loader.place)


def _may_have_workers(reading: Reading, loader: ProgramObject) -> bool:
    assert loader.call is not None
    if any(part.kind is Kind.LOADER and part is not loader for part in reading.go_through(loader)):
        return True
    if not loader.name.endswith("DataLoader"):
        return True
    words = {word.arg: word.value for word in loader.call.node.keywords}
    if "num_workers" not in words:
        spread = None in words and ("num_workers" in loader.call.keywords or "batch_size" not in loader.call.keywords)
        return spread or len(loader.call.node.args) > 5
    value = words["num_workers"]
    return not (isinstance(value, ast.Constant) and value.value == 0)


# -------------------------------------------------------------------------------- lengths

_PADDING = re.compile(
    r"torch\.nn\.utils\.rnn\.pad_sequence|transformers\.(\w+\.)*(DataCollator(WithPadding|ForSeq2Seq|ForTokenClassification))"
    r"|torchtext\.(\w+\.)*BucketIterator(\.splits)?"
    # graphs have as many nodes as they have
    r"|torch_geometric\.(\w+\.)*\w*Loader|dgl\.(\w+\.)*\w*DataLoader"
)


def _takes_several_shapes(reading: Reading) -> bool:
    """Tell whether a port has an executable for each of several shapes."""
    calls = reading.facts.calls
    takes = reading.is_ported and any("max_executables" in call.keywords for call in calls)
    return takes or any(call.name == "porting.integrations.DeviceCalls" for call in calls)


_JOINING = {"replicas", "accumulation", "device_iterations"}


def _joins_batches(reading: Reading) -> bool:
    """Tell whether a call of a port may take several batches."""
    return any(call.name.startswith("porting.") and _JOINING & set(call.keywords) for call in reading.facts.calls)


def iter_ragged_batches(reading: Reading) -> Iterator[Finding]:
    """B018: a batch is as long as its longest sample."""
    if _takes_several_shapes(reading):
        return
    if reading.is_ported and any(_pads_to_maximum(reading, call) for call in reading.facts.calls):
        return
    collating = {
        getattr(part, "id", getattr(part, "attr", ""))
        for loader in reading.facts.list_program_objects(Kind.LOADER)
        for word in (loader.call.node.keywords if loader.call is not None else ())
        for part in list_nodes(word.value)
        if word.arg == "collate_fn"
    }
    for call in reading.facts.calls:
        pads = _PADDING.fullmatch(call.name) or _pads_to_longest(call) or _takes_longest(call, collating)
        if call.where.in_forward or not pads:
            continue
        if _pads_once_more(reading, call) or reading.is_ported and not _makes_batches(reading, call):
            continue
        padding = [word.value for word in call.node.keywords if word.arg in ("padding", "max_length")]
        if not any(isinstance(value, ast.Constant) and value.value == "max_length" for value in padding):
            yield reading.report("B018", call.place)


def _pads_to_maximum(reading: Reading, call: Call) -> bool:
    """Tell whether what makes the batches fills tensors of the longest length that there may be."""
    is_filled = _FILLED.fullmatch(call.name) and mentions((call.node,), r"(^|_)max_")
    return bool(is_filled) and not call.where.in_forward and _makes_batches(reading, call)


_FILLED = re.compile(r"(torch|numpy)\.(zeros|ones|full)")


def _pads_once_more(reading: Reading, call: Call) -> bool:
    """Tell whether the function of a call pads to a length of its own as well."""
    own = (other for other in reading.facts.calls if other.where.function == call.where.function)
    return bool(call.where.function) and any(name_last(other.name) == "pad" for other in own)


def _makes_batches(reading: Reading, call: Call) -> bool:
    """Tell whether a function makes batches of samples, by who is given it or by its name."""
    models = {one.name for one in reading.facts.list_program_objects(Kind.MODULE)}
    if call.where.function.rpartition(".")[0] in models:
        return False
    if name_last(call.name).startswith("DataCollator") or call.where.loops:
        return True
    words = (word for other in reading.facts.calls for word in other.node.keywords if word.arg == "collate_fn")
    given = {name_last(write_dotted(word.value)) for word in words}
    names = call.where.function.split(".")[-2:]
    return bool(given & set(names)) or any("collat" in name.lower() for name in names)


def _pads_to_longest(call: Call) -> bool:
    """Tell whether a tokenizer pads a batch to its own longest text."""
    values = [word.value for word in call.node.keywords if word.arg == "padding"]
    if not any(isinstance(value, ast.Constant) and value.value in (True, "longest") for value in values):
        return False
    names = (one.name for one in call.receiver)
    return "tokenizer" in name_last(call.name).lower() or any("Tokenizer" in name for name in names)


def _takes_longest(call: Call, collating: Set[str]) -> bool:
    """Tell whether a function that makes batches looks for the longest sample, or for what is left of the data."""
    if name_last(call.name) not in ("max", "min"):
        return False
    words = {getattr(part, "id", getattr(part, "attr", "")) for node in call.node.args for part in list_nodes(node)}
    measures = bool(words & {"len", "shape", "size"}) or any(
        re.search(r"len(gth)?s?(_|$)", str(word)) for word in words
    )
    if call.name == "builtins.max" or call.is_method("max"):
        function = call.where.function
        is_collating = not collating.isdisjoint(function.split(".")) or "collat" in function.lower()
        return is_collating and (measures or bool(re.search(r"len", write_dotted(call.node.func))))
    rests = [part for node in call.node.args for part in list_nodes(node) if isinstance(part, ast.BinOp)]
    return call.name == "builtins.min" and measures and any(_is_rest(part) for part in rests)


def _is_rest(node: ast.BinOp) -> bool:
    """Tell whether what is left is computed: a length, less a variable."""
    is_length = any(
        getattr(part, "id", getattr(part, "attr", "")) in ("len", "shape", "size") for part in list_nodes(node.left)
    )
    return (
        isinstance(node.op, ast.Sub)
        and is_length
        and any(isinstance(part, ast.Name) for part in list_nodes(node.right))
    )


def iter_short_slices(reading: Reading) -> Iterator[Finding]:
    """B010: batches are slices, of which the last is short."""
    if _takes_several_shapes(reading):
        return
    loops = {loop.node for call in (*reading.module_calls, *_list_port_calls(reading)) for loop in call.where.loops}
    trains = bool(reading.backward_calls or reading.ports)
    for node, file in reading.files_of_loops.items():
        yields = node not in loops and trains and any(isinstance(part, ast.Yield) for part in list_nodes(node))
        if isinstance(node, (ast.For, ast.While)) and (node in loops or yields):
            for part in (*_iter_slices(node), *_iter_splits(node)):
                place = Place(file, part.lineno, part.col_offset + 1)
                yield reading.report(
                    "B010", place, remedy="leave the rest out, or give the data to a loader that pads it"
                )


def _iter_splits(loop: Union[ast.For, ast.While]) -> Iterator[ast.Call]:
    """List where a loop goes through a tensor's parts of one length."""
    for part in list_nodes(loop.iter) if isinstance(loop, ast.For) else ():
        if isinstance(part, ast.Call) and part.args and name_last(write_dotted(part.func)) in _SPLITTING:
            size = part.args[-1]
            is_number = isinstance(size, ast.Constant) and isinstance(size.value, int) and size.value > 1
            if is_number or re.search(r"batch|size|bs$", write_dotted(size)):
                yield part


_SPLITTING = ("split", "chunk", "array_split", "tensor_split")


def _find_stride(loop: Union[ast.For, ast.While]) -> Tuple[str, Optional[ast.expr]]:
    """Find the variable that a loop counts in strides, and these, unless it ends at a multiple of them."""
    if isinstance(loop, ast.While):
        steps = [part for part in list_nodes(loop) if isinstance(part, ast.AugAssign) and isinstance(part.op, ast.Add)]
        tested = set(map(write_dotted, list_nodes(loop.test)))
        counts = [part for part in steps if write_dotted(part.target) in tested - {""}]
        return (write_dotted(counts[0].target), counts[0].value) if counts else ("", None)
    head = loop.iter
    if not isinstance(head, ast.Call) or write_dotted(head.func) not in ("range", "trange") or len(head.args) != 3:
        return "", None
    numbers = [part.value for part in head.args if isinstance(part, ast.Constant) and isinstance(part.value, int)]
    # `n // size * size` and `n - n % size` leave no rest
    is_cut = any(isinstance(part, (ast.Mod, ast.FloorDiv)) for part in list_nodes(head))
    is_cut = is_cut or len(numbers) == len(head.args) and (numbers[1] - numbers[0]) % numbers[2] == 0
    return ("", None) if is_cut else (write_dotted(loop.target), head.args[2])


def _iter_slices(loop: Union[ast.For, ast.While]) -> Iterator[ast.Subscript]:
    """List the slices from a loop's variable on that are as long as its strides."""
    name, stride = _find_stride(loop)
    parts = (part for statement in loop.body for part in list_nodes(statement)) if stride is not None else ()
    for part in parts:
        index = getattr(part, "slice", None)
        upper = getattr(index, "upper", None)
        if isinstance(part, ast.Subscript) and isinstance(upper, ast.BinOp) and isinstance(upper.op, ast.Add):
            ends = {ast.dump(upper.left), ast.dump(upper.right)}
            if stride is not None and ast.dump(stride) in ends and name in map(write_dotted, list_nodes(upper)):
                yield part
