"""Run `porting doctor`: report whether this machine is fit for ports, and what to put right."""

from __future__ import annotations

import argparse
import json

from porting.cli import EXIT_DONE, EXIT_FAILED
from porting.diagnostics import render_all, show

__all__ = ["FORMATS", "add_arguments", "run"]

FORMATS = ("text", "json", "github")
"""The formats of this verb; `json` names no user, host, address or secret."""

_EPILOG = """\
Nothing is changed. `--format json` is for requests for support: users, hosts,
addresses, secrets and folders below home are taken out of it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG


def run(arguments: argparse.Namespace) -> int:
    """Examine the machine and print the findings; the status tells whether something has to be put right."""
    from porting.doctor.examination import examine_machine

    examination = examine_machine()
    if arguments.format == "json":
        print(json.dumps(examination.to_dict(), ensure_ascii=False, indent=2))
    elif arguments.format == "github":
        print("\n".join(filter(None, [render_all(examination.findings, "github"), examination.verdict])))
    else:
        show(examination)
    return EXIT_DONE if examination.is_well else EXIT_FAILED
