"""A program of the command line as the model that a new recipe is begun for."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any, Optional

from porting.cli.programs import ProgramName, is_reference_model, load_program
from porting.diagnostics import ExecutableError
from porting.recipe_chain.new_recipe import UserModel

__all__ = ["load_user_model"]


def load_user_model(text: str, *, batch_size: Optional[int] = None) -> UserModel:
    """Load `text`, as in `train.py:make`, and say how a program elsewhere gets the same; raises as `load_program` does.

    A function of the user's is called once, with `batch_size` if it takes one.
    ExecutableError E022 as well, for a file whose name no program can import it by.
    """
    outline = ProgramName.of(text)
    if is_reference_model(outline):
        raise ExecutableError.of(
            "E022",
            message=f"`{text}` is a reference model, for which a recipe of your own has no file",
            help=f"write a function that returns it with its loss and a batch: `porting.models.build({text!r})`",
        )
    program = load_program(text, batch_size=batch_size)
    path = Path(outline.source).resolve()
    folder, module = (path.parent, path.stem) if outline.is_file else (Path(os.getcwd()), outline.source)
    value: Any = None
    if all(part.isidentifier() for part in module.split(".")):
        value = sys.modules.get(module) or importlib.import_module(module)
    is_other = outline.is_file and Path(str(getattr(value, "__file__", ""))).resolve() != path
    # a new recipe has a `workload` of its own, which is where the import stands
    if value is None or is_other or module == "workload":
        raise ExecutableError.of(
            "E022",
            message=f"a program cannot import `{path.name}` by its name",
            notes=f"`import {module}` is not Python" if value is None else f"`import {module}` gives another module",
            help="rename the file, as in `own_model.py`",
        )
    return UserModel(
        text=text,
        module=module,
        attribute=outline.attribute,
        folder=folder,
        made=program.made,
        is_called=program.call is not None,
        size_name=next(iter(program.call or {}), None),
        model=program.model,
        loss=program.loss,
        batch=program.batch,
        has_optimizer=program.optimizer is not None,
    )
