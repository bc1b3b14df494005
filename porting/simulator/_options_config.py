"""Read options from text: a file of setter calls, or a JSON object of accessors."""

from __future__ import annotations

import json
import os
import sys
from operator import attrgetter
from typing import List

from porting.simulator import enums

__all__ = ["ConfigFileError", "apply_config_file", "apply_json"]


class ConfigFileError(Exception):
    """A configuration file is not valid Python; the text names line, file and fault."""


def apply_config_file(options: object, path: str) -> None:
    """Run each line of a file as a method call on ``options``.

    A line is what follows ``options.``; blank lines and those that begin with ``#`` are skipped and do not count in
    the line numbers of errors. The names ``poptorch`` and ``options`` may be used. Raises `ConfigFileError` for text
    that is not Python; errors of a setter pass through.
    """
    with open(path, encoding="utf-8") as config_file:
        stripped = (line.strip() for line in config_file)
        lines = [f"options.{line}" for line in stripped if line and not line.startswith("#")]
    try:
        code = compile("\n".join(lines), os.path.basename(path), "exec")
    except SyntaxError as error:
        raise ConfigFileError(_describe_syntax_error(error, lines, os.path.basename(path))) from error
    # A configuration file is a program of the user, like the one that loads it.
    exec(code, {"poptorch": sys.modules[__package__], "options": options})  # noqa: S102


def apply_json(options: object, text: str) -> None:
    """Call each accessor of a JSON object with its value.

    An accessor is a dotted path such as ``Training.gradientAccumulation``. The items of a list become positional
    arguments. A string ``OutputMode.All`` that is no item and names a member of an enumeration becomes that member.
    """
    for path, value in json.loads(text).items():
        if isinstance(value, str) and value.count(".") == 1:
            class_name, member_name = value.split(".")
            if class_name in enums.__all__:
                value = getattr(enums, class_name).__members__.get(member_name, value)
        # PopTorch takes the items of a list as they are: a member's name among them stays a string.
        attrgetter(path)(options)(*(value if isinstance(value, list) else [value]))


def _describe_syntax_error(error: SyntaxError, lines: List[str], filename: str) -> str:
    number = min(error.lineno or 1, len(lines))
    detail = error.msg
    if detail.endswith("was never closed") and number == len(lines):
        # the wording of the Python that PopTorch runs on, which newer ones have changed
        detail = "unexpected EOF while parsing"
    return f"SyntaxError at line {number} of {filename}: {detail}\n> {lines[number - 1]}"
