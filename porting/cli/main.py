"""Run the `porting` command: choose the verb, load only its module, and turn errors into findings and exit codes."""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import sys
from dataclasses import replace
from types import MappingProxyType
from typing import Mapping, NamedTuple, Optional, Sequence

from porting.cli import EXIT_BROKEN_PIPE, EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from porting.diagnostics import FORMATS, PortingError, print_finding
from porting.support.wings import find_wing
from porting.version import VERSION

__all__ = ["VERBS", "Verb", "main"]


class Verb(NamedTuple):
    """A verb: its module has `add_arguments(parser)`, and `run(arguments)`, which returns the exit code.

    >>> VERBS["explain"].module
    'porting.cli.explain'
    """

    module: str
    summary: str


VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "backend": Verb("porting.cli.backend", "name backends, and check whether a module can be one"),
        "bench": Verb("porting.bench.command", "measure training, ported against eager"),
        "cache": Verb("porting.cli.cache", "look at the executables on disk, and why they were compiled"),
        "check": Verb("porting.check.command", "say what stands between a training program and an IPU"),
        "compile": Verb("porting.cli.compile", "make the executable of an exported step, without training"),
        "convert": Verb(
            "porting.convert.command", "turn a plain training project into a port, and prove what was done"
        ),
        "doctor": Verb("porting.cli.doctor", "say whether this machine is fit for ports, and what to put right"),
        "eject": Verb("porting.convert.eject_command", "take a port out of a project again, and prove what is left"),
        "explain": Verb("porting.cli.explain", "explain a code, or list all of them"),
        "export": Verb("porting.cli.export", "capture a step into a file, without compiling"),
        "graph": Verb("porting.cli.graph", "show the captured graph of a step"),
        "memory": Verb("porting.cli.plan", "the former name of `plan`"),
        "plan": Verb("porting.cli.plan", "say whether a step fits a machine, where to cut it, and how fast it will be"),
        "recipe": Verb("porting.recipe_chain.command", "list, show, run, check, copy and begin step-by-step ports"),
        "report": Verb("porting.cli.report", "write one page with what check, verify, plan and bench say"),
        "run": Verb("porting.cli.run", "run a program written for PopTorch, on IPUs or on the simulator"),
        "trace": Verb("porting.bench.trace_command", "write a timeline of training calls: loader, copies, operators"),
        "verify": Verb("porting.verify.command", "prove that a port trains as plain PyTorch does: a certificate"),
    }
)
"""Every verb of the command; the modules are loaded on use."""

_EPILOG = """\
a session:
  $ porting recipe list
  first_port
  ...
  $ porting recipe show first_port --step 1 --diff
  --- step_0_plain.py
  +++ step_1_host_loop.py
  ...
  $ porting explain host-read
  # C001: host-read
  ...

`porting run PROGRAM` runs a program written for PopTorch; its exit status is the
program's: porting run --help

exit status: 0 done, 1 a finding stopped it, 2 wrong usage, 130 interrupted
"""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command and return its exit code; `argv` is without the program's name."""
    words = sys.argv[1:] if argv is None else list(argv)
    parser = _build_parser(words)
    _refuse_unknown_verb(parser, words)
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        name = unknown[0].partition("=")[0]
        meant = difflib.get_close_matches(name, list(arguments.parser._option_string_actions), n=1)
        kind = "option" if name.startswith("-") else "argument"
        arguments.parser.error(f"there is no {kind} {name}" + (f"; did you mean {meant[0]}?" if meant else ""))
    try:
        if arguments.run is None:
            parser.print_help()
        status = EXIT_DONE if arguments.run is None else arguments.run(arguments)
        sys.stdout.flush()
        return int(status)
    except PortingError as error:
        finding = error.finding
        if finding.code == "C009":
            # this machine's torch is too old for a capture: the command is repeated where another can run it
            command = " ".join(shlex.quote(word) for word in ("porting", *words))
            finding = replace(finding, help=(*finding.help, f"there: `{command}`"))
        print_finding(finding, arguments.format)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # the interpreter flushes stdout once more when it ends: let that go nowhere instead of into the broken pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser with all verbs; only the chosen one's module is loaded for its arguments."""
    parser = argparse.ArgumentParser(
        prog="porting",
        description="Port a PyTorch model to an IPU, real or simulated.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"porting {VERSION}")
    chosen = next((word for word in words if word in VERBS), None)
    module = find_wing(VERBS[chosen].module) if chosen else None
    if chosen and module is None:
        package = VERBS[chosen].module.rpartition(".")[0]
        parser.error(f"this installation lacks `{package}`, which `porting {chosen}` needs: install ipu-porting")
    formats = getattr(module, "FORMATS", FORMATS)
    _add_format(parser, formats, default="text")
    parser.set_defaults(run=None, parser=parser)
    verb_parsers = parser.add_subparsers(title="verbs", metavar="VERB")
    for name, verb in VERBS.items():
        verb_parser = verb_parsers.add_parser(
            name, help=verb.summary, description=verb.summary, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if module is not None and name == chosen:
            module.add_arguments(verb_parser)
            # after the verb as well as before it: the default must not overwrite what stood before
            _add_format(verb_parser, formats, default=argparse.SUPPRESS)
            verb_parser.set_defaults(run=module.run, parser=verb_parser, wrong_usage=verb_parser.error)
    return parser


def _refuse_unknown_verb(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """End with the verb that was probably meant; what follows `--format` is no verb."""
    named = [word for before, word in zip(("", *words), words) if not word.startswith("-") and before != "--format"]
    if named and named[0] not in VERBS:
        meant = difflib.get_close_matches(named[0], list(VERBS), n=1)
        advice = f"did you mean {meant[0]}?" if meant else f"use one of {', '.join(VERBS)}"
        parser.error(f"there is no verb {named[0]}: {advice}")


def _add_format(parser: argparse.ArgumentParser, formats: Sequence[str], *, default: str) -> None:
    parser.add_argument("--format", choices=formats, default=default, help="how findings are printed (default: text)")
