"""Writing an executable into an empty folder, so that it is on the disk before anybody sees it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any, Dict, Mapping, Sequence

from ..support.atomic_files import sync_folder
from .entry import EXPLANATION, MANIFEST, FileFacts, Manifest, compute_checksum, pack_explanation
from .identity import ExecutableKey
from .machine import describe_processor, list_versions

__all__ = ["sync_tree", "write_entry"]


def write_entry(
    folder: Path,
    key: ExecutableKey,
    files: Path,
    content: Mapping[str, Any],
    *,
    sources: Mapping[str, Any],
    because: Sequence[Mapping[str, Any]],
) -> Manifest:
    """Copy all of `files` into `folder`, with the manifest and the explanation; links are followed. OSError if not."""
    for path in sorted(files.rglob("*")):
        if path.is_file() and path.relative_to(files).as_posix() not in (MANIFEST, EXPLANATION):
            target = folder / path.relative_to(files)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    explanation = pack_explanation({"components": key.components, "sources": sources})
    (folder / EXPLANATION).write_bytes(explanation)
    manifest = Manifest(
        digest=key.digest,
        sections=key.sections,
        created=time.time(),
        model=_describe_model(key, sources),
        engine=str(key.components.get("engine", {}).get("name", "")),
        versions=list_versions(),
        processor=describe_processor(),
        files=_list_files(folder),
        content=content,
        because=tuple(because),
    )
    (folder / MANIFEST).write_bytes(manifest.to_json())
    sync_tree(folder)
    return manifest


def _describe_model(key: ExecutableKey, sources: Mapping[str, Any]) -> Dict[str, Any]:
    graph = key.components.get("graph", {})
    return {
        "name": key.model,
        "mode": str(graph.get("mode", "")),
        "program": str(sources.get("program", "")),
        "num_operators": len(graph.get("operators", ())),
    }


def _list_files(folder: Path) -> Dict[str, FileFacts]:
    return {
        path.relative_to(folder).as_posix(): FileFacts(path.stat().st_size, compute_checksum(path))
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def sync_tree(folder: Path) -> None:
    """Let all files of a folder survive a loss of power."""
    for path in folder.rglob("*"):
        if path.is_dir():
            sync_folder(path)
        else:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
    sync_folder(folder)
