"""The fenced blocks of a page: what language they are in, what they show, and what happens when they run.

``python`` is run, in order and with names shared over the page; ``python raises=CODE`` must fail with that code, or
with an exception of that name; ``python says=CODE`` must warn of a finding with that code or say it on the `porting`
logger. ``text output`` is what the block before it prints, the finding or error included. A first line ``# file.py``
names the file that findings point at. Commands are the lines of ``bash`` blocks, and those of ``console`` blocks that
begin with ``$``.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import logging
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

__all__ = ["Block", "blocks_of", "commands_of", "run", "without_measures", "without_numbers"]


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words after it, what it holds, and the output that the page shows for it."""

    language: str
    words: Tuple[str, ...]
    source: str
    output: Optional[str] = None

    @property
    def raises(self) -> Optional[str]:
        return self._value_of("raises")

    @property
    def says(self) -> Optional[str]:
        return self._value_of("says")

    @property
    def file_name(self) -> str:
        named = re.match(r"# (\w+\.py)\n", self.source)
        return named[1] if named else "example.py"

    def _value_of(self, name: str) -> Optional[str]:
        return next((word.partition("=")[2] for word in self.words if word.startswith(f"{name}=")), None)


def blocks_of(page: Path) -> List[Block]:
    blocks: List[Block] = []
    for info, source in re.findall(r"^```(\w.*?)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        language, *words = info.split()
        if words == ["output"]:
            before = blocks.pop()
            blocks.append(Block(before.language, before.words, before.source, output=source))
        else:
            blocks.append(Block(language, tuple(words), source))
    return blocks


def commands_of(page: Path) -> Iterator[str]:
    for block in blocks_of(page):
        lines = block.source.replace("\\\n", " ").splitlines() if block.language in ("bash", "console") else []
        for line in lines:
            if block.language == "bash" or line.startswith("$ "):
                yield line.partition("#")[0].replace("$ ", "", 1).strip()


def run(block: Block, names: Dict[str, Any]) -> Tuple[str, Optional[str]]:
    """Run a block of Python as a file of this folder; return what it printed, its error included, and its code."""
    Path(block.file_name).write_text(block.source, encoding="utf-8")
    linecache.checkcache()
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), _findings_said(printed, block.says):
            exec(compile(block.source, block.file_name, "exec"), names)
    except Exception as error:
        code = error.finding.code if hasattr(error, "finding") else type(error).__name__
        if code != block.raises:
            raise
        return f"{printed.getvalue()}{_text_of(error)}", code
    return printed.getvalue(), None


def without_measures(text: str) -> List[str]:
    """Leave out of a text what differs from run to run and from machine to machine: times, rates, folders, spacing."""
    text = re.sub(r"\d{4}-\d\d-\d\d[T ]\S+|\d[\d,]*\.\d+|\d+,\d+|\b\d+(?=$)", "N", text, flags=re.MULTILINE)
    return [" ".join(line.split()) for line in text.strip().splitlines()]


def without_numbers(line: str) -> str:
    """Leave out of a line its numbers and how they are aligned."""
    return " ".join(re.sub(r"\d[\d.,]*(e[+-]\d+)?", "N", line).split())


def _text_of(error: Exception) -> str:
    return str(error) if hasattr(error, "finding") else f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def _findings_said(printed: io.StringIO, code: Optional[str]) -> Iterator[None]:
    """Let findings with a code that are warned of, or said on the `porting` logger, be printed; one must be."""
    if code is None:
        yield
        return
    said: List[str] = []

    def hear(text: str) -> None:
        if f"[{code}]" in text:
            said.append(text)
            printed.write(f"{text}\n")

    listener = logging.Handler()
    listener.emit = lambda record: hear(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("porting").addHandler(listener)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_where: hear(str(message))
            yield
    finally:
        logging.getLogger("porting").removeHandler(listener)
    assert said, f"no finding {code} was said"
