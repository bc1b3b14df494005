"""Complete the words of the command in a shell: its verbs, options, choices and names, and files.

The shell asks the command itself, through argcomplete, which the extra `completion` brings.
"""

from __future__ import annotations

import argparse
import os
import shlex
from typing import Callable, Iterable, List

__all__ = ["complete", "is_asked_to_complete", "offer", "read_typed_words"]


def is_asked_to_complete() -> bool:
    """Tell whether a shell has started the command to ask what may come next."""
    return "_ARGCOMPLETE" in os.environ


def read_typed_words() -> List[str]:
    """Return the whole words after the command's name that stand before the cursor."""
    typed = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))]
    try:
        return shlex.split(typed)[1:]
    except ValueError:  # within quotes
        return typed.split()[1:]


def complete(parser: argparse.ArgumentParser) -> None:
    """Tell the shell what may come next, and end the process; without argcomplete nothing is told."""
    try:
        import argcomplete
    except ImportError:
        os._exit(1)
    argcomplete.autocomplete(parser, always_complete_options=False)


def offer(action: argparse.Action, list_names: Callable[[], Iterable[str]]) -> None:
    """Let a shell complete the value of an argument with these names, which are listed when it asks for them."""
    action.completer = lambda **_asked: list(list_names())  # type: ignore[attr-defined]
