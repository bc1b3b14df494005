"""`porting explain`: the page of a code, or the table of all codes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Dict, Iterator

from porting.cli import EXIT_DONE, EXIT_USAGE
from porting.diagnostics.codes import CODES, FAMILIES, find_code, read_page, suggest_names

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("name", nargs="?", metavar="CODE|SLUG", help="for example L001 or loss-outside-forward")
    wanted.add_argument("--list", action="store_true", dest="list_codes", help="list all codes")


def run(arguments: argparse.Namespace) -> int:
    """Print what is asked for; an unknown code is wrong usage and is answered with the nearest known ones."""
    if arguments.list_codes:
        print(_dump_codes() if arguments.format == "json" else "\n".join(_list_codes()))
        return EXIT_DONE
    code = find_code(arguments.name)
    if code is None:
        print(_suggest_codes(arguments.name), file=sys.stderr)
        return EXIT_USAGE
    page = read_page(code.code)
    print(
        json.dumps({**_describe_code(code.code), "page": page}, indent=2)
        if arguments.format == "json"
        else page.rstrip()
    )
    return EXIT_DONE


def _list_codes() -> Iterator[str]:
    for letter, family in FAMILIES.items():
        yield f"{letter}: {family}"
        for code in CODES.values():
            if code.code.startswith(letter):
                yield f"  {code.code}  {code.severity.value:<7}  {code.slug}"


def _dump_codes() -> str:
    return json.dumps([_describe_code(code) for code in CODES], indent=2)


def _describe_code(name: str) -> Dict[str, str]:
    code = CODES[name]
    return {"code": code.code, "slug": code.slug, "severity": code.severity.value, "title": code.title}


def _suggest_codes(name: str) -> str:
    similar = suggest_names(name)
    hint = f"did you mean {', '.join(similar)}?" if similar else "no known code is similar"
    return f"porting explain: no code or slug {name!r}; {hint}\n`porting explain --list` lists all"
