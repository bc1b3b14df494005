"""Parses many sources at once, without looking through what is parsed for garbage again and again."""

from __future__ import annotations

import ast
import gc
from pathlib import Path
from typing import Dict, Iterable


def parse_all(paths: Iterable[Path]) -> Dict[Path, ast.Module]:
    """Parse files; no garbage is looked for meanwhile, which takes three times as long as parsing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    finally:
        if was_enabled:
            gc.enable()
