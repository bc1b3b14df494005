"""Keep the checkpoints of a training in a folder, one file a step: remove old files, read the newest undamaged one.

`fit` uses it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import List, Optional, Union

from porting.adapters.checkpoints import Checkpoint, load_checkpoint
from porting.diagnostics import CheckpointError, Finding, caller_place, notify
from porting.support.atomic_files import sync_folder

__all__ = [
    "drop_old_checkpoints",
    "link_checkpoint",
    "list_checkpoints",
    "name_checkpoint",
    "read_newest_checkpoint",
    "remove_unfinished",
]

Folder = Union[str, "os.PathLike[str]"]


def name_checkpoint(folder: Folder, step: int) -> Path:
    """Name the file of the checkpoint after `step` optimizer steps.

    >>> name_checkpoint("kept", 42).as_posix()
    'kept/step-00000042.pt'
    """
    return Path(folder) / f"step-{step:08}.pt"


def list_checkpoints(folder: Folder) -> List[Path]:
    """List the checkpoints in `folder`, the oldest first; a folder that does not exist has none."""
    found = Path(folder).glob("step-*.pt")
    return sorted((path for path in found if path.stem[5:].isdigit()), key=lambda path: int(path.stem[5:]))


def read_newest_checkpoint(folder: Folder) -> Optional[Checkpoint]:
    """Read the newest checkpoint in `folder`, or `last.pt` where it is the only one; None when there is none.

    A damaged one is skipped with a warning (K003). Raises CheckpointError K001 when all of them are damaged.
    """
    errors: List[CheckpointError] = []
    last = Path(folder) / "last.pt"
    for path in reversed(list_checkpoints(folder) or [last] * last.exists()):
        try:
            checkpoint = load_checkpoint(path)
        except CheckpointError as error:
            errors.append(error)
            continue
        if errors:
            finding = Finding(
                "K003",
                message=f"the newest checkpoint is damaged: `{path}` is used",
                place=caller_place(),
                notes=tuple(f"{error.finding.message}: {'; '.join(error.finding.notes)}" for error in errors),
                help="nothing has to be done: the training goes on from there; look after the disk if it happens again",
            )
            notify(finding)
        return checkpoint
    if errors:
        raise errors[0]
    return None


def link_checkpoint(path: Path, name: str) -> None:
    """Give a checkpoint another name in its folder, which takes no room; a copy where the file system has no links."""
    unfinished = path.with_name(f".step-{name}.tmp")
    with suppress(FileNotFoundError):
        unfinished.unlink()
    try:
        os.link(path, unfinished)
    except OSError:
        shutil.copyfile(path, unfinished)
    os.replace(unfinished, path.with_name(name))
    # which a name that it has already leaves there
    with suppress(FileNotFoundError):
        unfinished.unlink()


def drop_old_checkpoints(folder: Folder, *, keep: int, step: int) -> None:
    """Keep the newest `keep` checkpoints up to `step`; later ones are damaged, and will be written again."""
    written = name_checkpoint(folder, step)
    paths = list_checkpoints(folder)
    for path in paths[: paths.index(written) + 1][:-keep]:
        path.unlink()
    sync_folder(folder)


def remove_unfinished(folder: Folder) -> None:
    """Remove temporary files of a process that died while it wrote a checkpoint; no other training uses the folder."""
    for path in Path(folder).glob(".step-*.tmp"):
        path.unlink()
