"""Verify several programs, each from several seeds: every combination is a case of a sweep and has a certificate."""

from __future__ import annotations

import argparse
import json
import re
from typing import Any, Dict, Mapping, Sequence, Tuple

from porting.cli import refuse_usage
from porting.cli.swept_commands import CommandCase, print_sweep, sweep_commands
from porting.verify.certificate import Certificate

__all__ = ["parse_seeds", "verify_many"]

_MOST_SEEDS = 10_000


def parse_seeds(text: str) -> Tuple[int, ...]:
    """Read seeds one by one, or the first and the last of them.

    >>> parse_seeds("0..3"), parse_seeds("1,5")
    ((0, 1, 2, 3), (1, 5))
    """
    first, dots, last = text.partition("..")
    try:
        seeds = tuple(range(int(first), int(last) + 1)) if dots else tuple(map(int, text.split(",")))
    except ValueError:
        seeds = ()
    if not 0 < len(set(seeds)) == len(seeds) <= _MOST_SEEDS:
        raise argparse.ArgumentTypeError("write the first and the last one, as 0..9, or some, as 0,5,7")
    return seeds


def verify_many(programs: Sequence[str], options: Sequence[str], arguments: argparse.Namespace) -> int:
    """Verify each program from each seed, print a table of the verdicts, and return the exit status of the worst.

    `options` are those of all cases. `--out` is the folder that gets the certificates.
    """
    cases = [
        CommandCase(
            program if seed is None else f"{program} seed {seed}",
            ("verify", program, *options, *([] if seed is None else [f"--seed={seed}"]), "--format=json"),
        )
        for program in programs
        for seed in arguments.seeds or [arguments.seed]
    ]
    if len({_name_file(case) for case in cases}) < len(cases):
        return refuse_usage("verify", "two programs have the same name here: verify one of them apart")

    def judge(case: CommandCase, output: str) -> Mapping[str, Any]:
        certificate = Certificate.from_dict(json.loads(output)["certificate"])
        read: Dict[str, Any] = {"verdict": certificate.verdict.value, "reason": certificate.reason}
        if arguments.out is not None:
            read["file"] = str(arguments.out / _name_file(case))
            certificate.write(read["file"])
        return read

    swept = sweep_commands(arguments.on, cases, judge, folder=arguments.out, resumes=arguments.resume)
    print_sweep(swept, arguments.format)
    return swept.exit_status


def _name_file(case: CommandCase) -> str:
    """Name the file of a certificate.

    >>> _name_file(CommandCase("models/train.py:make seed 3", ()))
    'models-train.py-make-seed-3.json'
    """
    slug = re.sub(r"[^\w.]+", "-", case.name).strip("-.")
    return f"{slug}.json"
