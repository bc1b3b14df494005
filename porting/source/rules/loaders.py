"""Loaders and what they load: the last batch, workers, lengths, and who deals out the data."""

from __future__ import annotations

import ast
import re
from typing import Iterator, List, Set

from porting.diagnostics import Finding, Place
from porting.source.facts import Call, Kind, Thing
from porting.source.rules.reading import Reading, name_last, write_dotted
from porting.source.rules.scope import Programs, rule
from porting.source.rules.things import tell_guess

__all__ = [
    "find_fed_ports",
    "find_host_loaders",
    "find_process_samplers",
    "find_ragged_batches",
    "find_slow_augmentation",
]


@rule(Programs.PLAIN)
def find_host_loaders(reading: Reading) -> Iterator[Finding]:
    """B010 and B014: a loader that does not know the device, and what it does with a short last batch."""
    for loader in _list_loaders(reading):
        if loader.place is not None and loader.call is not None:
            yield reading.report("B014" if _decides_last_batch(loader.call) else "B010", loader.place)


def _list_loaders(reading: Reading) -> List[Thing]:
    made = [thing for thing in reading.facts.list_things(Kind.LOADER) if thing.call is not None]
    constructed = [thing for thing in made if thing.call is not None and thing.place == thing.call.place]
    return list({thing.place: thing for thing in constructed}.values())


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
def find_fed_ports(reading: Reading) -> Iterator[Finding]:
    """B014: a port's loop goes through torch's loader, or fetches its batches itself."""
    seen: Set[Place] = set()
    for call in _list_port_calls(reading):
        loop = reading.find_batch_loop(call.where)
        for thing in loop.things if loop is not None else ():
            is_new = thing.kind is Kind.LOADER and thing.place is not None and thing.place not in seen
            if is_new and thing.place is not None and not _makes_combined_batches(thing):
                seen.add(thing.place)
                yield reading.report("B014", thing.place, guess=tell_guess([thing]))
    if not seen and not reading.facts.list_things(Kind.PORT_LOADER):
        yield from _find_fetches(reading)


def _makes_combined_batches(loader: Thing) -> bool:
    """Tell whether a loader was given the rows of a whole call: a product, and no short last batch."""
    words = {word.arg: word.value for word in loader.call.node.keywords} if loader.call is not None else {}
    is_product = isinstance(words.get("batch_size"), ast.BinOp)
    return is_product and getattr(words.get("drop_last"), "value", None) is True


def _list_port_calls(reading: Reading) -> List[Call]:
    called = [call for call in reading.facts.calls if call.is_on(Kind.PORT) and not call.name.startswith(".")]
    calls = list(dict.fromkeys((*reading.port_calls, *called)))
    return [call for call in calls if not reading.is_excluded(call.where)]


_FETCH = re.compile(r"(fetch|get|load|next|read)_?(next|mini)?_?(mini)?batch\w*", re.IGNORECASE)


def _find_fetches(reading: Reading) -> Iterator[Finding]:
    loops = {loop.node for call in reading.port_calls for loop in call.where.loops}
    for call in reading.facts.calls:
        is_fetch = _FETCH.fullmatch(name_last(call.name)) and not call.result
        in_loop = bool(call.where.loops) and call.where.loops[-1].node in loops
        if is_fetch and in_loop and not call.where.in_evaluation and not call.where.without_gradients:
            yield reading.report("B014", call.place)


@rule(in_host_loops=False)
def find_process_samplers(reading: Reading) -> Iterator[Finding]:
    """B015: `DistributedSampler` deals out the data to processes."""
    for call in reading.facts.calls:
        if name_last(call.name) == "DistributedSampler" and any(thing.call is call for thing in call.result):
            yield reading.report("B015", call.place)


# -------------------------------------------------------------------------------- augmentation

_RANDOM_TRANSFORM = re.compile(
    r"(torchvision|torchaudio|albumentations|kornia|monai|imgaug)\..*"
    r"(Random\w*|ColorJitter|AutoAugment\w*|RandAugment|TrivialAugment\w*|AugMix|Rand[A-Z]\w+)"
)
_RANDOM_CALL = re.compile(r"(random|numpy\.random)\.\w+|torch\.(rand\w*|normal|bernoulli)")


def find_slow_augmentation(reading: Reading) -> Iterator[Finding]:
    """B017: a loader without workers augments at random, in the process that feeds the device."""
    seen: Set[Place] = set()
    random_classes = {
        call.where.function.rpartition(".")[0]
        for call in reading.facts.calls
        if call.where.function.endswith(".__getitem__") and _RANDOM_CALL.fullmatch(call.name)
    }
    for loader in reading.facts.list_things(Kind.LOADER, Kind.PORT_LOADER):
        if loader.call is None or loader.place is None or loader.place in seen or _may_have_workers(reading, loader):
            continue
        parts = reading.go_through(loader)
        # one that no loop goes through gives a batch to compile with
        if reading.is_ported and not any(
            loader in loop.things for call in reading.facts.calls for loop in call.where.loops
        ):
            continue
        # what only the program draws may be the data itself
        draws = not reading.is_ported and any(part.name in random_classes for part in parts)
        if draws or any(_RANDOM_TRANSFORM.fullmatch(part.name) for part in parts):
            seen.add(loader.place)
            yield reading.report("B017", loader.place)


def _may_have_workers(reading: Reading, loader: Thing) -> bool:
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
)


def find_ragged_batches(reading: Reading) -> Iterator[Finding]:
    """B018: a batch is as long as its longest sample."""
    if reading.is_ported and any("max_executables" in call.keywords for call in reading.facts.calls):
        return
    for call in reading.facts.calls:
        if call.where.in_forward or not (_PADDING.fullmatch(call.name) or _pads_to_longest(call)):
            continue
        if _pads_once_more(reading, call) or reading.is_ported and not _makes_batches(reading, call):
            continue
        padding = [word.value for word in call.node.keywords if word.arg in ("padding", "max_length")]
        if not any(isinstance(value, ast.Constant) and value.value == "max_length" for value in padding):
            yield reading.report("B018", call.place)


def _pads_once_more(reading: Reading, call: Call) -> bool:
    """Tell whether the function of a call pads to a length of its own as well."""
    own = (other for other in reading.facts.calls if other.where.function == call.where.function)
    return bool(call.where.function) and any(name_last(other.name) == "pad" for other in own)


def _makes_batches(reading: Reading, call: Call) -> bool:
    """Tell whether a function makes batches of samples, by who is given it or by its name."""
    if name_last(call.name).startswith("DataCollator") or call.where.loops:
        return True
    words = (word for other in reading.facts.calls for word in other.node.keywords if word.arg == "collate_fn")
    given = {name_last(write_dotted(word.value)) for word in words}
    names = call.where.function.split(".")[-2:]
    return bool(given & set(names)) or any("collat" in name.lower() for name in names)


def _pads_to_longest(call: Call) -> bool:
    """Tell whether a tokenizer pads a batch to its own longest text."""
    is_tokenizer = "tokenizer" in name_last(call.name).lower() or any(
        "Tokenizer" in thing.name for thing in call.receiver
    )
    values = [word.value for word in call.node.keywords if word.arg == "padding"]
    longest = any(isinstance(value, ast.Constant) and value.value in (True, "longest") for value in values)
    return is_tokenizer and longest
