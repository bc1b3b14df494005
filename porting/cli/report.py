"""This module is `porting report`: one page with what `check`, `verify`, `plan` and `bench` say of a program.

Each of them runs in a process of its own, so that one that fails leaves the others their part of the page.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import Iterator, List, NamedTuple, Sequence

from porting.cli import EXIT_DONE, EXIT_NOT_RUN
from porting.cli.export import PROGRAM_HELP
from porting.cli.output_files import require_folders, write_output
from porting.support.bound_process import make_environment
from porting.support.html_pages import write_page

__all__ = ["add_arguments", "run"]

_EPILOG = f"""\
{PROGRAM_HELP}

  $ porting report train.py:make --html report.html
  check   0  nothing was found
  ...
  report.html: check, verify, plan, bench
"""

_STYLE = """
iframe { width: 100%; height: 80vh; border: 1px solid var(--line); background: var(--page); }
td:last-child, th:last-child { text-align: left; white-space: normal; }
"""
_VERBS = {
    "check": ("what stands between the program and a device", ()),
    "verify": ("whether the port trains as plain PyTorch does", ()),
    "plan": ("whether it fits a machine, and how fast it will be", ()),
    "bench": ("how fast it trains on this machine", ("--quick",)),
}
_ENDS_ERROR = re.compile(r" *= more: ")
# of a plan, a certificate and a benchmark, which say more after it
_VERDICTS = (
    *("fits: ", "tight: ", "does not fit: ", "outside the evidence: "),
    *("PASS: ", "FAIL: ", "CHAOTIC: ", "INCOMPLETE: "),
    "speed-up ",
)


class _Part(NamedTuple):
    """What one verb has said: its exit status, its last line, and its page, which may be empty."""

    verb: str
    status: int
    said: str
    page: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("program", metavar="PROGRAM:FUNCTION", help="what to report of, as in train.py:make")
    parser.add_argument("--html", required=True, metavar="FILE", help="the page to write")
    parser.add_argument("--machine", default="bow-pod16", metavar="NAME", help="what to plan for (default: bow-pod16)")
    parser.add_argument(
        "--without", nargs="+", default=[], choices=list(_VERBS), metavar="VERB", help="leave out some of them"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the verbs one after the other, print what each says, and write the page."""
    verbs = [verb for verb in _VERBS if verb not in arguments.without]
    output, as_json = Path(arguments.html), arguments.format == "json"
    require_folders(output)
    parts: List[_Part] = []
    for part in _iter_parts(verbs, arguments):
        parts.append(part)
        if not as_json:
            print(f"{part.verb:7} {part.status}  {part.said}", flush=True)
    write_output(output, _write_report(arguments.program, parts).encode())
    if not as_json:
        print(f"{output}: {', '.join(verbs)}")
    else:
        records = [{"verb": part.verb, "status": part.status, "said": part.said} for part in parts]
        print(json.dumps({"page": str(output), "parts": records}, indent=2))
    return max((min(part.status, EXIT_NOT_RUN) for part in parts), default=EXIT_DONE)


def _iter_parts(verbs: Sequence[str], arguments: argparse.Namespace) -> Iterator[_Part]:
    with tempfile.TemporaryDirectory() as folder:
        for verb in verbs:
            page = Path(folder) / f"{verb}.html"
            more = ["--machine", arguments.machine] if verb == "plan" else list(_VERBS[verb][1])
            ended = subprocess.run(
                [sys.executable, "-m", "porting", verb, arguments.program, *more, "--html", str(page)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=make_environment(),
                check=False,
            )
            lines = [line for line in ended.stdout.splitlines() if line.strip() and str(page) not in line]
            text = page.read_text(encoding="utf-8") if page.exists() else ""
            yield _Part(verb, ended.returncode, _choose_words(lines), text or _write_plain(lines))


def _choose_words(lines: Sequence[str]) -> str:
    """Choose the line that says most: a verdict, the error that a verb ends with, or the last one."""
    if not lines:
        return ""
    starts = ("error[",) if _ENDS_ERROR.match(lines[-1]) else _VERDICTS
    chosen = next((line for line in reversed(lines) if line.strip().startswith(starts)), lines[-1])
    return " ".join(chosen.split())


def _write_plain(lines: Sequence[str]) -> str:
    """Write a page with what a verb printed that made none."""
    return write_page("no page", [f"<pre>{escape(chr(10).join(lines))}</pre>"])


def _write_report(program: str, parts: Sequence[_Part]) -> str:
    rows = [
        f'<tr><td><a href="#{part.verb}">{part.verb}</a></td><td data-of="exit status" '
        f'class="{"ok" if part.status == EXIT_DONE else "no"}">{part.status}</td><td>{escape(part.said)}</td></tr>'
        for part in parts
    ]
    body = [
        f"<h1>Report of {escape(program)}</h1>",
        '<table class="stacked"><tr class="head"><th>verb</th><th>exit status</th><th>it says</th></tr>',
        *rows,
        "</table>",
    ]
    for part in parts:
        title = f"{part.verb}: {_VERBS[part.verb][0]}"
        body += [
            f'<h2 id="{part.verb}">{title}</h2>',
            f'<iframe title="{title}" srcdoc="{escape(part.page, quote=True)}"></iframe>',
        ]
    return write_page(f"porting report, {program}", body, style=_STYLE)
