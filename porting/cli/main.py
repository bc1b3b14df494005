# PYTHON_ARGCOMPLETE_OK
"""Run the `porting` command: choose the verb, load only its module, turn errors into findings and exit statuses."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import textwrap
from dataclasses import replace
from types import MappingProxyType
from typing import Iterable, Mapping, NamedTuple, Optional, Sequence

from porting.cli import EXIT_BROKEN_PIPE, EXIT_DONE, EXIT_INTERRUPTED, EXIT_NOT_RUN, STATUSES, Parser
from porting.cli.completion import complete, is_asked_to_complete, read_typed_words
from porting.cli.help_layout import HELP_WIDTH, HelpLayout
from porting.diagnostics import FORMATS, PortingError, print_finding, suggest_name, warnings_as_findings
from porting.support.wings import find_wing
from porting.version import VERSION

__all__ = ["VERBS", "Verb", "main"]


class Verb(NamedTuple):
    """A verb: its module has `add_arguments(parser)`, and `run(arguments)`, which returns the exit status.

    `denial` is what the status 1 says; empty where nothing is asked that could be denied.

    >>> VERBS["explain"].module
    'porting.cli.explain'
    """

    module: str
    summary: str
    denial: str = ""


_DOES_NOT_FIT = "it does not fit, or nobody knows"

VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "backend": Verb(
            "porting.cli.backend", "name backends, and check whether a module can be one", "a check of it fails"
        ),
        "bench": Verb(
            "porting.bench.command",
            "measure training, ported against eager",
            "the port trains something else than eager does",
        ),
        "cache": Verb(
            "porting.cli.cache",
            "look at the executables on disk, and why they were compiled",
            "some of the executables were not removed, or not written",
        ),
        "check": Verb(
            "porting.check.command",
            "say what stands between a training program and an IPU",
            "something was found, or not read",
        ),
        "compile": Verb(
            "porting.cli.compile",
            "make the executable of an exported step, without training",
            "the step has to be replayed although another engine was asked for",
        ),
        "convert": Verb(
            "porting.convert.command",
            "turn a plain training project into a port, and prove what was done",
            "a column did not pass, or something is left to a person",
        ),
        "doctor": Verb(
            "porting.cli.doctor",
            "say whether this machine is fit for ports, and what to put right",
            "something has to be put right",
        ),
        "eject": Verb(
            "porting.convert.eject_command",
            "take a port out of a project again, and prove what is left",
            "a column did not pass, or something is left to a person",
        ),
        "explain": Verb("porting.cli.explain", "explain a code, or list all of them"),
        "export": Verb("porting.cli.export", "capture a step into a file, without compiling"),
        "graph": Verb("porting.cli.graph", "show the captured graph of a step"),
        "memory": Verb("porting.cli.plan", "the former name of `plan`", _DOES_NOT_FIT),
        "plan": Verb(
            "porting.cli.plan",
            "say whether a step fits a machine, where to cut it, and how fast it will be",
            _DOES_NOT_FIT,
        ),
        "recipe": Verb(
            "porting.recipe_chain.command",
            "list, show, run, check, copy and begin step-by-step ports",
            "a check of a step fails",
        ),
        "report": Verb(
            "porting.cli.report",
            "write one page with what check, verify, plan and bench say",
            "one of them ends with 1, and none with 2",
        ),
        "run": Verb("porting.cli.run", "run a program written for PopTorch, on IPUs or on the simulator"),
        "trace": Verb("porting.bench.trace_command", "write a timeline of training calls: loader, copies, operators"),
        "verify": Verb(
            "porting.verify.command",
            "prove that a port trains as plain PyTorch does: a certificate",
            "the verdict is not PASS, or what --require says, or an earlier run or file does not agree",
        ),
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

exit status, of `porting run` the program's, of every other verb:
"""


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command and return its exit code; `argv` is without the program's name."""
    words = sys.argv[1:] if argv is None else list(argv)
    if is_asked_to_complete():
        complete(_build_parser(read_typed_words()))
    parser = _build_parser(words)
    _refuse_unknown_verb(parser, words)
    arguments, unknown = parser.parse_known_args(words)
    if unknown:
        name = unknown[0].partition("=")[0]
        is_option = name.startswith("-")
        meant = _suggest_option(name, arguments.parser._option_string_actions) if is_option else ""
        told = f"there is no {'option' if is_option else 'further argument'} {name}"
        arguments.parser.error(": ".join(filter(None, [told, meant])))
    try:
        if arguments.run is None:
            parser.print_help()
        with warnings_as_findings(arguments.format):
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
        return EXIT_NOT_RUN
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # the interpreter flushes stdout once more when it ends: let that go nowhere instead of into the broken pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _suggest_option(name: str, known: Iterable[str]) -> str:
    """Ask whether the nearest option was meant; their dashes, which all have, make none of them near."""
    return suggest_name(name.lstrip("-"), [option.lstrip("-") for option in known]).replace("`", "`--", 1)


def _build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser with all verbs; only the chosen one's module is loaded for its arguments."""
    parser = Parser(
        prog="porting",
        description="Port a PyTorch model to an IPU, real or simulated.",
        epilog=_EPILOG + "".join(f"  {status:>3}  {meaning}\n" for status, meaning in STATUSES.items()),
        formatter_class=HelpLayout,
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
            name, help=verb.summary, description=verb.summary, formatter_class=HelpLayout
        )
        if module is not None and name == chosen:
            module.add_arguments(verb_parser)
            verb_parser.epilog = "\n".join(filter(None, [verb_parser.epilog, _tell_statuses(name)]))
            # after the verb as well as before it: the default must not overwrite what stood before
            _add_format(verb_parser, formats, default=argparse.SUPPRESS)
            verb_parser.set_defaults(run=module.run, parser=verb_parser, wrong_usage=verb_parser.error)
    return parser


def _refuse_unknown_verb(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """End with the verb that was probably meant; what follows `--format` is no verb."""
    named = [word for before, word in zip(("", *words), words) if not word.startswith("-") and before != "--format"]
    if named and named[0] not in VERBS:
        advice = suggest_name(named[0], VERBS, otherwise=f"use one of {', '.join(VERBS)}")
        parser.error(f"there is no verb {named[0]}: {advice}")


def _tell_statuses(name: str) -> str:
    """Tell what the statuses of a verb say, as the last paragraph of its help."""
    if name == "run":
        return "exit status: the program's; 2 it could not be started\n"
    denial = VERBS[name].denial
    told = f"exit status: 0 done; {f'1 {denial}; ' if denial else ''}2 it could not be run; 130 interrupted"
    return textwrap.fill(told, HELP_WIDTH) + "\n"


def _add_format(parser: argparse.ArgumentParser, formats: Sequence[str], *, default: str) -> None:
    parser.add_argument("--format", choices=formats, default=default, help="of findings and tables (default: text)")
