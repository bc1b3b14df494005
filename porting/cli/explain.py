"""Run `porting explain`: print the page of a code, or the table of all codes."""

from __future__ import annotations

import argparse
import json
from typing import Dict

from porting.cli import EXIT_DONE, refuse_usage
from porting.cli.completion import offer
from porting.diagnostics.codes import CODES, FAMILIES, Code, find_code, read_page, suggest_names

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    wanted = parser.add_mutually_exclusive_group(required=True)
    named = wanted.add_argument("name", nargs="?", metavar="CODE|SLUG", help="for example L001 or loss-outside-forward")
    offer(named, lambda: [name for code in CODES.values() for name in (code.code, code.slug)])
    wanted.add_argument("--list", action="store_true", dest="list_codes", help="list all codes")


def run(arguments: argparse.Namespace) -> int:
    """Print the page or the table; an unknown code is wrong usage, for which the nearest known codes are listed."""
    as_json = arguments.format == "json"
    if arguments.list_codes:
        table = [_describe_code(code) for code in CODES.values()]
        if as_json:
            print(json.dumps(table, indent=2))
            return EXIT_DONE
        for letter, family in FAMILIES.items():
            print(f"{letter}: {family}")
            for known in CODES.values():
                if known.code.startswith(letter):
                    print(f"  {known.code}  {known.severity.value:<7}  {known.slug}")
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


def _describe_code(code: Code) -> Dict[str, str]:
    return {"code": code.code, "slug": code.slug, "severity": code.severity.value, "title": code.title}
