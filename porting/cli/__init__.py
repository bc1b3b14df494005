"""The command line, a module for each verb, and the exit codes that all of them share."""

from __future__ import annotations

__all__ = ["EXIT_BROKEN_PIPE", "EXIT_DONE", "EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_USAGE"]

EXIT_DONE = 0
EXIT_FAILED = 1
"""A finding stopped the command, or what it was asked to check does not hold."""

EXIT_USAGE = 2
"""Wrong usage; argparse ends with the same."""

# as shells count a process that a signal ended: 128 and the number of SIGINT, SIGPIPE
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
