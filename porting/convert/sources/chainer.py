"""Name what a person writes in the place of each line of a Chainer program.

Its definitions differ from torch's in defaults that change numbers, so no line is exchanged without being asked for.
"""

from __future__ import annotations

import ast
from typing import Iterator, List, Mapping, Set

from porting.convert.bindings import Undecided
from porting.convert.program import Program
from porting.convert.trees import write_node

__all__ = ["is_of_chainer", "list_chainer_lines"]

_INSTEAD: Mapping[str, str] = {
    "links.Linear": "`nn.Linear(inputs, outputs)`, with the number of inputs where it was `None`",
    "links.Convolution2D": "`nn.Conv2d` with the same arguments, with the number of channels where it was `None`",
    "links.Deconvolution2D": "`nn.ConvTranspose2d` with the same arguments",
    "links.BatchNormalization": "`nn.BatchNorm2d(size, eps=2e-5)`, or `BatchNorm1d`: torch's `eps` is another one",
    "links.EmbedID": "`nn.Embedding(words, size)`",
    "links.LSTM": "`nn.LSTMCell`, with its state as a value of the loop",
    "links.Classifier": "the model itself, and `to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer)`",
    "functions.max_pooling_2d": "`F.max_pool2d(x, size, stride, ceil_mode=True)`: Chainer covers all",
    "functions.average_pooling_2d": "`F.avg_pool2d(x, size, stride)`",
    "functions.softmax_cross_entropy": "`F.cross_entropy(output, label)`",
    "functions.dropout": "`F.dropout(x, ratio, training=self.training)`",
    "functions.mean_squared_error": "`F.mse_loss(output, label)`",
    "functions.sigmoid_cross_entropy": "`F.binary_cross_entropy_with_logits(output, label.float())`",
    "functions.accuracy": "`(output.argmax(1) == label).float().mean()`",
    "functions.concat": "`torch.cat(xs, dim=axis)`, whose axis is 1 in Chainer",
    "optimizers.SGD": "`torch.optim.SGD(model.parameters(), lr=lr)`, whose `lr` is 0.01 in Chainer",
    "optimizers.MomentumSGD": "`torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)`, with the `lr` given here",
    "optimizers.Adam": "`torch.optim.Adam(model.parameters(), lr=alpha)`",
    "optimizers.RMSprop": "`torch.optim.RMSprop(model.parameters(), lr=0.01)`, with the `lr` given here",
    "serializers.load_npz": "`porting.adapters.load_chainer_npz(file, model)`, which reads snapshots of Chainer",
    "serializers.save_npz": "`torch.save(model.state_dict(), file)`",
    "iterators.SerialIterator": "`DataLoader(dataset, batch_size=n, shuffle=True)`",
    "iterators.MultiprocessIterator": "`DataLoader(dataset, batch_size=n, shuffle=True, num_workers=4)`",
    "training.Trainer": "`porting.fit(ported, loader, epochs)`, or a loop over the loader",
    "training.updaters.StandardUpdater": "the port's call: `output, loss = ported(x, t)`",
    "training.StandardUpdater": "the port's call: `output, loss = ported(x, t)`",
    "Variable": "the tensor itself",
}
"""What is written instead, by the name in Chainer."""
_METHODS: Mapping[str, str] = {
    "setup": "the optimizer of torch takes `model.parameters()` where it is made",
    "update": "`output, loss = ported(x, t)`: a port's call is the step, as this is",
    "cleargrads": "nothing: a port's call begins without gradients",
    "zerograds": "nothing: a port's call begins without gradients",
    "to_gpu": "nothing: a port chooses its device",
    "init_scope": "assign the modules in `__init__`, without a block",
}
_ADVICE = "write it with torch; porting/recipes/from_chainer goes through such a program step by step"


def is_of_chainer(program: Program) -> bool:
    """Tell whether a program is written for Chainer."""
    return any(one.name.partition(".")[0] == "chainer" for one in program.facts.imports)


def list_chainer_lines(program: Program) -> List[Undecided]:
    """List the lines of a Chainer program, each with what to write instead."""
    found: List[Undecided] = []
    seen: Set[int] = set()
    for call in program.facts.calls:
        file = program.find_file(call.where.file)
        text = "" if file is None else write_node(call.node.func)
        advice = _find_advice(call.name, text)
        if file is not None and advice and id(call.node) not in seen:
            seen.add(id(call.node))
            found.append(Undecided(file.path, call.node.lineno, f"`{text}` is Chainer's", advice))
    found += list(_iter_classes(program))
    return sorted(found, key=lambda one: (one.path, one.line))


def _find_advice(name: str, text: str) -> str:
    package, _, own = name.partition(".")
    if package == "chainer":
        return _INSTEAD.get(own, _ADVICE)
    return _METHODS.get(text.rpartition(".")[2], "") if name.startswith(".") else ""


def _iter_classes(program: Program) -> Iterator[Undecided]:
    """Iterate over the classes of links, which become modules."""
    for file in program.files.values():
        for node in ast.walk(file.tree):
            bases = [write_node(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
            if any(base.rpartition(".")[2] in ("Chain", "ChainList", "Link") for base in bases):
                advice = "inherit from `nn.Module`, and name `__call__` `forward`"
                yield Undecided(file.path, getattr(node, "lineno", 1), f"`{bases[0]}` is Chainer's", advice)
