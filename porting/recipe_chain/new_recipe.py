"""Write a recipe for a model of the user's: workload, six steps, their checks and a story, which run at once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Dict, Optional

import torch
from torch import nn

from porting.diagnostics import ExecutableError
from porting.recipe_chain.recipe_files import create_folder
from porting.torch_insides.modules import BATCH_NORMS, DROPOUTS

__all__ = ["UserModel", "write_recipe"]

SKELETON = Path(__file__).parent / "skeleton"

_NORMALISED_BY_BATCH = (BATCH_NORMS, DROPOUTS)


@dataclass(frozen=True)
class UserModel:
    """The user's model: the parts of the target, and the words that import and make it.

    `module` and `attribute` are those of `from module import attribute`, `folder` has the module, and `made` is the
    attribute's result: a tuple, a mapping or an object of the parts. `is_called` tells a function from a value, and
    `size_name` is the parameter of the function that gets the batch size, if it was given one.
    """

    text: str
    module: str
    attribute: str
    folder: Path
    made: Any
    is_called: bool
    model: nn.Module
    loss: Any
    batch: Any
    has_optimizer: bool
    size_name: Optional[str] = None


def write_recipe(destination: Path, user: Optional[UserModel] = None) -> None:
    """Write a chain of steps into a new folder, for `user` or for a small model instead.

    Raises PortingError R002 if `destination` exists, ExecutableError E022 for a batch whose rows cannot be counted.
    """
    words = _fill_in_placeholder() if user is None else _fill_in_model(user)
    words["name"] = destination.name
    with create_folder(destination) as folder:
        for path in sorted(SKELETON.glob("*.txt")):
            written = folder / path.stem
            written.write_text(Template(path.read_text(encoding="utf-8")).substitute(words), encoding="utf-8")


# -- words of the skeleton -------------------------------------------------------------------------------------------


def _fill_in_placeholder() -> Dict[str, str]:
    return {
        "summary": "Your model goes here: a small network and random data stand in for it.",
        "what": "a small network in the place of yours",
        "imports": _IMPORTS,
        "batch_size": "16",
        "parts": _PLACEHOLDER,
        "loss": "    *inputs, labels = batch\n    return criterion(model(*inputs), labels)",
        "inputs": "[:-1]",
        **_fill_in_accumulation(is_exact=True),
    }


def _fill_in_model(user: UserModel) -> Dict[str, str]:
    rows = _count_rows(user)
    first = f"import sys\n{_IMPORTS}" if user.is_called else f"import copy\nimport sys\n{_IMPORTS}"
    folder = json.dumps(str(user.folder), ensure_ascii=False)
    found = f"sys.path.insert(0, {folder})\nfrom {user.module} import {user.attribute.partition('.')[0]}  # noqa: E402"
    # an even number, because step 5 halves it
    return {
        "summary": f"Your model, as `{user.text}` gives it.",
        "what": f"the model of `{user.text}`",
        "imports": f"{first}{found}\n",
        "batch_size": str(max(2, rows - rows % 2)),
        "parts": "\n".join(f"    {line}" for line in _write_parts(user)),
        "loss": "\n".join(f"    {line}" for line in _write_loss(user)),
        "inputs": "" if user.loss is None else "[:-1]",
        # half a batch has other statistics, and draws other random numbers
        **_fill_in_accumulation(is_exact=not any(isinstance(m, _NORMALISED_BY_BATCH) for m in user.model.modules())),
    }


_IMPORTS = """\
from typing import Any, Sequence, Tuple

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

"""
_PLACEHOLDER = """\
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.rand(64, 8, generator=torch.Generator().manual_seed(0))
    batch = (inputs, inputs[:, :4].argmax(dim=1))
"""


def _count_rows(user: UserModel) -> int:
    tensors = all(isinstance(value, torch.Tensor) and value.dim() > 0 for value in user.batch)
    rows = {len(value) for value in user.batch} if tensors else set()
    if len(rows) != 1:
        raise ExecutableError.of(
            "E022",
            message=f"the batch of `{user.text}` is not a row of tensors with as many samples each",
            notes="the steps' data set takes samples out of it, one by one",
            help="give tensors alone, `(inputs, labels)`, or begin without `--model` and put your data set in",
        )
    return rows.pop()


def _write_parts(user: UserModel) -> Any:
    size = "" if user.size_name is None else f"{user.size_name}=BATCH_SIZE"
    made = f"{user.attribute}({size})" if user.is_called else f"copy.deepcopy({user.attribute})"
    yield f"made = {made}"
    if isinstance(user.made, dict):
        yield 'model, criterion, batch = made["model"], made.get("loss"), made["batch"]'
        own = 'made["optimizer"]'
    elif isinstance(user.made, (tuple, list)) and not hasattr(user.made, "_fields"):
        yield "model, criterion, batch = made[:3]"
        own = "made[3]"
    else:
        yield 'model, criterion, batch = made.model, getattr(made, "loss", None), made.batch'
        own = "made.optimizer"
    yield f"optimizer = {own if user.has_optimizer else 'torch.optim.SGD(model.parameters(), lr=0.01)'}"


def _write_loss(user: UserModel) -> Any:
    if user.loss is None:
        yield "returned = model(*batch)"
        yield "# where the loss is in what your model returns"
        yield "if isinstance(returned, torch.Tensor):"
        yield "    return returned"
        yield "if isinstance(returned, dict):"
        yield '    return returned["loss"]'
        yield 'return returned.loss if hasattr(returned, "loss") else returned[-1]'
        return
    yield "*inputs, labels = batch"
    if callable(user.loss):
        yield "return criterion(model(*inputs), labels)"
    else:
        yield "output = model(*inputs)"
        yield "return sum(part(output, labels) for part in criterion.values())"


def _fill_in_accumulation(*, is_exact: bool) -> Dict[str, str]:
    if is_exact:
        return {"constructors": "equal_losses", "accumulation": "    equal_losses(5, like=4),", "difference": ""}
    because = "BatchNorm and Dropout see half a batch"
    return {
        "constructors": "close_losses, equal_losses",
        "accumulation": f'    close_losses(5, like=4, relative=0.5, because="{because}"),',
        "difference": f"\nThe losses change here: {because}.",
    }
