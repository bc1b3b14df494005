"""Copy a recipe into a folder of the user's, where its programs import each other and nothing of the original."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Iterator, List

from porting.diagnostics import PortingError
from porting.recipe_chain.recipe_files import Recipe

__all__ = ["copy_recipe", "create_folder"]

_HIDDEN = re.compile(r"\.|__pycache__$")


def copy_recipe(recipe: Recipe, destination: Path) -> List[Path]:
    """Copy a recipe to a new folder, as a whole or not at all; return its files, relative to the folder.

    Programs that import modules of the recipe import those of the copy. Raises PortingError R002 if `destination`
    exists or cannot be written.
    """
    with create_folder(destination) as folder, _report_refused_writes(destination):
        files = sorted(path.relative_to(recipe.folder) for path in recipe.folder.rglob("*") if path.is_file())
        copied = [path for path in files if str(path) != "__init__.py" and not any(map(_HIDDEN.match, path.parts))]
        for path in copied:
            (folder / path.parent).mkdir(parents=True, exist_ok=True)
            if path.suffix == ".py" and recipe.package is not None:
                source = (recipe.folder / path).read_text(encoding="utf-8")
                (folder / path).write_text(_use_bare_names(source, recipe.package), encoding="utf-8")
            else:
                shutil.copyfile(recipe.folder / path, folder / path)
        return copied


@contextmanager
def create_folder(destination: Path) -> Iterator[Path]:
    """Create a folder beside `destination`, which takes that name when the block ends without an error.

    Raises PortingError R002 if that exists, or cannot be written.
    """
    if os.path.lexists(destination):
        raise PortingError.of(
            "R002",
            notes=f"there is: {destination}",
            help="name a folder that does not exist yet, or move this one away",
        )
    parent = destination.absolute().parent
    with ExitStack() as undone:
        with _report_refused_writes(destination):
            parent.mkdir(parents=True, exist_ok=True)
            unfinished = undone.enter_context(tempfile.TemporaryDirectory(prefix=".recipe-", dir=parent))
            folder = Path(unfinished) / destination.name
            folder.mkdir()
        yield folder
        with _report_refused_writes(destination):
            folder.rename(destination)


@contextmanager
def _report_refused_writes(destination: Path) -> Iterator[None]:
    """Raise R002 where the system refuses to write."""
    try:
        yield
    except OSError as error:
        raise PortingError.of(
            "R002",
            message=f"the destination `{destination}` cannot be written",
            notes=error.strerror or str(error),
            help="name a folder where you may write, and that has room",
        ) from error


def _use_bare_names(source: str, package: str) -> str:
    r"""Let a program import its neighbours by their bare names.

    >>> _use_bare_names("from porting.recipes.a.planes import Plane", "porting.recipes.a")
    'from planes import Plane'
    >>> _use_bare_names("from porting.recipes.a import (\n    planes,\n    tracks,\n)", "porting.recipes.a")
    'import planes, tracks'
    """
    folder = rf"(?:{re.escape(package)}|\.)"
    source = re.sub(rf"^(\s*)from {folder} import \(([^)]*)\)", _put_import_on_one_line, source, flags=re.MULTILINE)
    source = re.sub(rf"^(\s*)from {folder} import ", r"\1import ", source, flags=re.MULTILINE)
    source = re.sub(r"^(\s*)from \.(?=\w)", r"\1from ", source, flags=re.MULTILINE)
    return re.sub(rf"\b{re.escape(package)}\.(?=\w)", "", source)


def _put_import_on_one_line(match: re.Match[str]) -> str:
    names = [name.strip() for name in match[2].split(",")]
    return f"{match[1]}import {', '.join(filter(None, names))}"
