"""`porting explain`: the page of a code, or the table of all codes."""

from __future__ import annotations

import argparse
import json
from typing import Dict, Iterator

from porting.cli import EXIT_DONE, refuse_usage
from porting.diagnostics.codes import CODES, FAMILIES, Code, find_code, read_page, suggest_names

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    wanted = parser.add_mutually_exclusive_group(required=True)
    wanted.add_argument("name", nargs="?", metavar="CODE|SLUG", help="for example L001 or loss-outside-forward")
    wanted.add_argument("--list", action="store_true", dest="list_codes", help="list all codes")


def run(arguments: argparse.Namespace) -> int:
    """Print what is asked for; an unknown code is wrong usage and is answered with the nearest known ones."""
    as_json = arguments.format == "json"
    if arguments.list_codes:
        table = [_describe_code(code) for code in CODES.values()]
        print(json.dumps(table, indent=2) if as_json else "\n".join(_list_codes()))
        return EXIT_DONE
    code = find_code(arguments.name)
    if code is None:
        similar = suggest_names(arguments.name)
        hint = f"did you mean {', '.join(similar)}?" if similar else "no known code is similar"
        return refuse_usage(
            "explain", f"no code or slug {arguments.name!r}; {hint}\n`porting explain --list` lists all"
        )
    page = read_page(code.code)
    print(json.dumps({**_describe_code(code), "page": page}, indent=2) if as_json else page.rstrip())
    return EXIT_DONE


def _list_codes() -> Iterator[str]:
    for letter, family in FAMILIES.items():
        yield f"{letter}: {family}"
        for code in CODES.values():
            if code.code.startswith(letter):
                yield f"  {code.code}  {code.severity.value:<7}  {code.slug}"


def _describe_code(code: Code) -> Dict[str, str]:
    return {"code": code.code, "slug": code.slug, "severity": code.severity.value, "title": code.title}
