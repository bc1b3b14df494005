"""Stand in for `examples_utils.testing.test_commands`, which starts commands and reads their output."""

from __future__ import annotations

import shlex
import subprocess
from typing import Sequence, Union

from ... import refuse_unknown_names

__all__ = ["CalledProcessError", "run_command", "run_command_fail_explicitly"]


class CalledProcessError(Exception):
    """A command failed; the text holds its output."""


def run_command(command: Union[str, Sequence[str]], cwd: str = ".") -> str:
    """Run a command and return its output; raises subprocess.CalledProcessError if it fails."""
    words = shlex.split(command) if isinstance(command, str) else list(command)
    return subprocess.check_output(words, cwd=cwd, stderr=subprocess.STDOUT, text=True)


def run_command_fail_explicitly(command: Union[str, Sequence[str]], cwd: str = ".", **_options: object) -> str:
    """Do what `run_command` does; a failure is a `CalledProcessError` that shows the output."""
    try:
        return run_command(command, cwd)
    except subprocess.CalledProcessError as error:
        raise CalledProcessError(f"The following command failed: {error.cmd}\n{error.output}") from error


__getattr__ = refuse_unknown_names("examples_utils.testing.test_commands")
