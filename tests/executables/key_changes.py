"""Two keys of one model, and what is told of their difference."""

from __future__ import annotations

import copy

from porting.executables.explanations import explain

CONFIG = "batch = 16\nhidden = 8\ndropout = 0.1\nlr = 0.1\nmomentum = 0.0\n"
MODEL = "\n" * 19 + "x = self.fc(x)\nx = self.drop(x)\nreturn x.sum()\n"


def program(config=CONFIG, *, arguments=("train.py",), environment=None):
    return {
        "folder": "/work",
        "program": "/work/train.py",
        "arguments": list(arguments),
        "environment": environment or {},
        "files": {"/work/config.py": config, "/work/model.py": MODEL},
    }


def texts(old, new, *, before=None, after=None):
    changes = explain(
        {"components": old, "sources": before or program()}, {"components": new, "sources": after or program()}
    )
    return [change.text for change in changes]


def changed(components, *path, to):
    values = copy.deepcopy(components)
    inner = values
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return values


def with_dropout(components, p):
    return changed(components, "graph", "operators", 1, 1, "p", to=p)
