"""Split the names of programs on the command line, before anything is loaded.

`porting check` uses it, because it works without torch.
"""

from __future__ import annotations

import os
from typing import Optional, Tuple

__all__ = ["split_program"]


def split_program(text: str) -> Tuple[str, Optional[str]]:
    """Split a program's name into its source and its function, which is None for a plain script or folder.

    >>> split_program("train.py:make"), split_program("examples/train.py"), split_program("gpt:gpt2_small")
    (('train.py', 'make'), ('examples/train.py', None), ('gpt', 'gpt2_small'))
    """
    source, _, function = text.rpartition(":")
    is_named = bool(source) and all(part.isidentifier() for part in function.split("."))
    return (source, function) if is_named and not os.path.exists(text) else (text, None)
