"""A target of the command line as the model that a new recipe is begun for."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

from porting.cli.targets import TargetOutline, load_target
from porting.diagnostics import ExecutableError
from porting.recipe_chain.new_recipe import UserModel

__all__ = ["load_user_model"]


def load_user_model(text: str) -> UserModel:
    """Load `text`, as in `train.py:make`, and say how a program elsewhere gets the same; raises as targets do.

    ExecutableError E022 as well, for a file whose name no program can import it by.
    """
    target, outline = load_target(text), TargetOutline.of(text)
    path = Path(outline.source).resolve()
    folder, module = (path.parent, path.stem) if outline.is_file else (Path(os.getcwd()), outline.source)
    value: Any = None
    if all(part.isidentifier() for part in module.split(".")):
        value = sys.modules.get(module) or importlib.import_module(module)
    if value is None or (outline.is_file and Path(str(getattr(value, "__file__", ""))).resolve() != path):
        raise ExecutableError.of(
            "E022",
            message=f"a program cannot import `{path.name}` by its name",
            notes=f"`import {module}` is not Python" if value is None else f"`import {module}` gives another module",
            help="rename the file, as in `own_model.py`",
        )
    for part in outline.attribute.split("."):
        value = getattr(value, part)
    is_called = callable(value) and not hasattr(value, "model")
    return UserModel(
        text=text,
        module=module,
        attribute=outline.attribute,
        folder=folder,
        made=value() if is_called else value,
        is_called=is_called,
        model=target.model,
        loss=target.loss,
        batch=target.batch,
        has_optimizer=target.optimizer is not None,
    )
