"""Run `porting verify`, which trains a program's model in plain PyTorch and ported.

It writes a certificate of what it found.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

from porting.cli import EXIT_DONE, EXIT_FAILED, EXIT_NOT_RUN, count, refuse_usage
from porting.cli.output_files import require_folders, write_output
from porting.cli.swept_commands import add_sweep_arguments, read_message
from porting.diagnostics import ExecutableError, PortingError, find_raising_frame, print_finding, show, take_first_line
from porting.support.progress import show_progress
from porting.verify.proof_sweep import parse_seeds, verify_many

if TYPE_CHECKING:  # loads torch
    from porting.verify.certificate import Certificate
    from porting.verify.recheck import Comparison

__all__ = ["FORMATS", "add_arguments", "run"]

FORMATS = ("text", "json")
"""The formats of this verb: a certificate is no annotation."""

_STEPS, _STEPS_OF_PROGRAMS, _SEED = 50, 10, 0
_PASSED_ON = ("steps", "device", "require", "args", "against_args")
_REQUIRED = ("PASS", "CHAOTIC", "INCOMPLETE")

_EPILOG = """\
PROGRAM:FUNCTION is a function that returns (model, loss, batch, optimizer,
options), as for `porting check`; the last two may be missing. A dictionary or an
object with these names may have as well: `loader` or `batches`, a list; a
`scheduler`, and `schedule_every` "step", "call" or "epoch"; `ported`, your own
port of a copy, or a function of a copied model that makes one; `each_epoch`,
`also`, `save` and `load`, what else the loop does: see `porting.verify`.

  $ porting verify train.py:make --html proof.html --out certificate.json
  $ porting verify train.py:make --steps 200 --require PASS
  $ porting verify --recheck certificate.json
  $ porting verify --compare simulator.json hardware.json
  $ porting verify train.py --against plain_train.py --args='--epochs 3'
  $ porting verify train.py:make --bisect v1.0..HEAD
  $ porting verify train.py:make other.py:make --seeds 0..9 --on local:2 --out proofs
  $ porting verify train.py:make --out certificate.json --sign ~/.ssh/id_ed25519
  $ porting verify --show certificate.json --check-signature allowed_signers
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    parser.add_argument("programs", nargs="*", metavar="PROGRAM:FUNCTION", help="what to verify, as train.py:make")
    parser.add_argument("--steps", type=count, metavar="N", help=f"optimizer steps (default {_STEPS})")
    parser.add_argument("--seed", type=int, metavar="N", help=f"of all random numbers (default {_SEED})")
    parser.add_argument("--device", choices=("auto", "ipu", "sim"), default="auto", help="where the port runs")
    parser.add_argument("--require", choices=_REQUIRED, default="PASS", help="the least that status 0 stands for")
    run = parser.add_argument_group("whole programs, and their histories")
    run.add_argument("--against", metavar="PLAIN", help="run PROGRAM, a ported script, and this plain one as they are")
    run.add_argument("--args", metavar="TEXT", help="arguments of both scripts, as --args='--epochs 3'")
    run.add_argument("--against-args", metavar="TEXT", help="those of the plain script, where they are others")
    run.add_argument("--bisect", metavar="GOOD..BAD", help="find the commit from which on the verdict is FAIL")
    swept = add_sweep_arguments(parser, "several programs, or seeds, each proved in a process of its own")
    swept.add_argument("--seeds", type=parse_seeds, metavar="A..B", help="from each of these seeds, as 0..9 or 1,5")
    written = parser.add_argument_group("what is written besides the table")
    written.add_argument("--out", type=Path, metavar="FILE", help="the certificate, as JSON; of a sweep, the folder")
    written.add_argument("--html", type=Path, metavar="FILE", help="the certificate, as one HTML page")
    parser.add_argument("--resume-in", type=Path, help=argparse.SUPPRESS)
    compared = parser.add_argument_group("certificates that are there already")
    compared.add_argument(
        "--recheck", "--baseline", type=Path, metavar="FILE", help="run it again as this certificate was made"
    )
    compared.add_argument("--compare", type=Path, nargs=2, metavar="FILE", help="compare two, and run nothing")
    compared.add_argument("--show", type=Path, metavar="FILE", help="print one, and run nothing")
    signed = parser.add_argument_group("who made a certificate (OpenSSH's signatures, beside it as FILE.sig)")
    signed.add_argument("--sign", type=Path, metavar="KEY", help="sign what --out writes with this private key")
    signed.add_argument("--check-signature", type=Path, metavar="SIGNERS", help="require one of these allowed signers")


def run(arguments: argparse.Namespace) -> int:
    """Make a certificate or read two, print what came of it, and tell it by the status."""
    read = [arguments.recheck, *(arguments.compare or ()), arguments.show]
    arguments.program = next(iter(arguments.programs), None)
    misuse = next((text for is_wrong, text in _iter_misuses(arguments, is_given=any(read)) if is_wrong), "")
    if misuse:
        return refuse_usage("verify", misuse)
    try:
        _check_signatures(filter(None, read), arguments.check_signature)
        if arguments.compare is not None:
            return _compare_files(arguments)
        if arguments.show is not None:
            return _show_file(arguments)
        if arguments.resume_in is not None:
            return _resume_here(arguments)
        if _is_sweep(arguments):
            against = [] if arguments.against is None else [f"--against={arguments.against}"]
            return verify_many(arguments.programs, [*_pass_on(arguments), *against], arguments)
        return _verify_program(arguments) if arguments.bisect is None else _bisect_program(arguments)
    except PortingError as error:
        print_finding(error.finding, arguments.format)
        return EXIT_NOT_RUN


def _iter_misuses(arguments: argparse.Namespace, *, is_given: bool) -> Iterator[Tuple[bool, str]]:
    """List what a command may ask for wrongly, and whether it does; `is_given` says that it names certificates."""
    reads = arguments.compare is not None or arguments.show is not None
    runs = arguments.program is not None or arguments.recheck is not None or arguments.bisect is not None
    writes = arguments.out is not None or arguments.html is not None
    yield reads and runs, "--compare and --show run no program: give certificates alone"
    yield arguments.program is None and not is_given, "name a program, as train.py:make"
    alone = is_given or any((arguments.html, arguments.sign, arguments.bisect))
    yield _is_sweep(arguments) and alone, "--html, --sign, --bisect and certificates are for one program and one seed"
    yield None not in (arguments.seed, arguments.seeds), "--seed and --seeds say it twice"
    yield arguments.resume and arguments.out is None, "--resume goes on with the folder of --out: name it"
    yield arguments.bisect is not None and writes, "--bisect writes no certificate: leave --out and --html out"
    yield arguments.args is not None and arguments.against is None, "--args is for the scripts of --against"
    yield arguments.sign is not None and arguments.out is None, "--sign signs the file of --out: name one"
    lacks_file = arguments.check_signature is not None and not is_given
    yield lacks_file, "--check-signature is for --show, --recheck and --compare"


def _is_sweep(arguments: argparse.Namespace) -> bool:
    return len(arguments.programs) > 1 or any((arguments.seeds, arguments.on, arguments.resume))


def _check_signatures(paths: Iterable[Path], allowed_signers: Optional[Path]) -> None:
    """Say on the standard error stream who signed each file; PortingError V008 for one that is not signed as asked."""
    from porting.verify.signature import check_signature, name_signature

    for path in paths:
        if allowed_signers is not None:
            signer = check_signature(path, allowed_signers)
            print(f"{path}: signed by {signer.name} ({signer.key})", file=sys.stderr)
        elif name_signature(path).exists():
            print(f"{path}: signed, and not checked: `--check-signature SIGNERS` does", file=sys.stderr)
        elif path.exists():
            print(f"{path}: not signed", file=sys.stderr)


def _show_file(arguments: argparse.Namespace) -> int:
    from porting.verify.certificate import Certificate

    certificate = Certificate.read(arguments.show)
    _print_results(arguments.format, certificate=certificate)
    return EXIT_DONE if _is_enough(certificate, arguments.require) else EXIT_FAILED


def _is_enough(certificate: Certificate, required: str) -> bool:
    return certificate.verdict.value in _REQUIRED[: _REQUIRED.index(required) + 1]


def _compare_files(arguments: argparse.Namespace) -> int:
    from porting.verify.certificate import Certificate
    from porting.verify.recheck import compare_certificates

    theirs, own = (Certificate.read(path) for path in arguments.compare)
    comparison = compare_certificates(theirs, own)
    _print_results(arguments.format, comparison=comparison)
    return EXIT_DONE if comparison.holds else EXIT_FAILED


def _verify_program(arguments: argparse.Namespace) -> int:
    from porting.verify.certificate import Certificate
    from porting.verify.recheck import compare_certificates

    earlier = None if arguments.recheck is None else Certificate.read(arguments.recheck)
    require_folders(arguments.out, arguments.html)
    _check_key(arguments.sign)
    certificate = _make_certificate(arguments, earlier)
    if arguments.out is not None:
        certificate.write(arguments.out)
        _sign_file(arguments.out, arguments.sign)
    if arguments.html is not None:
        from porting.verify.certificate_page import write_certificate_page

        write_output(arguments.html, write_certificate_page(certificate).encode("utf-8", "backslashreplace"))
    comparison = None if earlier is None else compare_certificates(earlier, certificate)
    _print_results(arguments.format, certificate=certificate, comparison=comparison)
    agrees = comparison is None or comparison.holds
    return EXIT_DONE if agrees and _is_enough(certificate, arguments.require) else EXIT_FAILED


def _bisect_program(arguments: argparse.Namespace) -> int:
    """Verify commits of the repository that the present folder lies in, each in a process of its own."""
    from porting.verify.bisection import bisect_history

    options = [*_pass_on(arguments), *([] if arguments.seed is None else [f"--seed={arguments.seed}"])]
    options += [] if arguments.recheck is None else [f"--recheck={arguments.recheck.absolute()}"]
    program = [] if arguments.program is None else [arguments.program]

    def judge(folder: Path) -> Tuple[str, str]:
        against = arguments.against and Path(arguments.against)
        # a commit before that of the plain program is compared with it as well
        plain = [f"--against={against if (folder / against).exists() else against.absolute()}"] if against else []
        command = [sys.executable, "-m", "porting", "verify", *program, *options, *plain, "--format=json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        verdict, reason = _read_verdict(done.returncode, done.stdout, done.stderr)
        return verdict, reason.replace(f"{folder}{os.sep}", "")

    with show_progress(sys.stderr) as tell:
        found = bisect_history(arguments.bisect, judge, tell)
    print(json.dumps({"bisection": found.to_dict()}, indent=2) if arguments.format == "json" else found)
    return EXIT_FAILED if found.first_bad is None else EXIT_DONE


def _pass_on(arguments: argparse.Namespace) -> List[str]:
    """Write what the commands of commits and of sweeps take over, which say themselves which program and seed."""
    asked = {name: getattr(arguments, name) for name in _PASSED_ON}
    return [f"--{name.replace('_', '-')}={value}" for name, value in asked.items() if value is not None]


def _read_verdict(status: int, output: str, said: str) -> Tuple[str, str]:
    """Say of a commit's run whether it is good, bad or to be skipped, and why."""
    if status not in (EXIT_DONE, EXIT_FAILED) or not output:
        return "skip", read_message(said)
    found = json.loads(output)
    certificate, comparison = found["certificate"], found.get("comparison")
    reason = certificate["reason"] if comparison is None else comparison["obstacle"] or certificate["reason"]
    if status == EXIT_DONE:
        return "good", reason
    is_bad = certificate["verdict"] == "FAIL" or comparison is not None and not comparison["holds"]
    place = (certificate["location"] or {}).get("place")
    at = f" ({place['file']}:{place['line']})" if place else ""
    return ("bad" if is_bad else "skip"), reason + at


def _sign_file(path: Path, key: Optional[Path]) -> None:
    """Sign a certificate that was written; without a key, say that it is not signed."""
    from porting.verify.signature import name_signature, sign

    if key is not None:
        print(f"{path}: signed, in {sign(path, key)}", file=sys.stderr)
        return
    earlier = name_signature(path)
    beside = f"; {earlier} is that of an earlier content" if earlier.exists() else ""
    print(f"{path}: not signed{beside}", file=sys.stderr)


def _make_certificate(arguments: argparse.Namespace, earlier: Optional[Certificate]) -> Certificate:
    """Load the program and verify it, as an earlier certificate was made where the command does not say otherwise."""
    settings: Mapping[str, Any] = {} if earlier is None else earlier.settings
    text = arguments.program or ("" if earlier is None else earlier.program)
    if not text:
        help = "name it: `porting verify PROGRAM:FUNCTION --recheck FILE`"
        raise PortingError.of("V004", message=f"`{arguments.recheck}` does not name its program", help=help)
    against = arguments.against or settings.get("against")
    default = _STEPS_OF_PROGRAMS if against else _STEPS
    steps = _choose_setting(arguments.steps, settings.get("steps"), default)
    seed = _choose_setting(arguments.seed, settings.get("seed"), _SEED)
    with show_progress(sys.stderr) as tell:
        tell(f"loading {text}")
        # what the user's code prints is no part of the certificate
        with redirect_stdout(sys.stderr):
            if against:
                return _run_programs(arguments, settings, text, against, steps=steps, seed=seed, tell=tell)
            return _run_program(text, steps=steps, seed=seed, device=arguments.device, tell=tell)


def _run_program(text: str, *, steps: int, seed: int, device: str, tell: Callable[[str], None]) -> Certificate:
    from porting.verify.verify import verify

    sides = _load_sides(text, seed=seed, device=device)
    tell(f"verifying {text}")
    with _telling_failure(text):
        certificate = verify(
            steps=steps, seed=seed, tell=tell, run_elsewhere=partial(_resume_elsewhere, text, seed, device), **sides
        )
    return replace(certificate, program=text)


def _load_sides(text: str, *, seed: int, device: str) -> Dict[str, Any]:
    """Load a program; return the arguments of `verify` that say what is trained."""
    import torch

    from porting.cli.programs import load_program

    # before the weights are drawn, so that a run elsewhere begins with the same
    torch.manual_seed(seed)
    program = load_program(text, draws_batch=True)
    return {
        "model": program.model,
        "loss": program.loss,
        "batches": program.batch if program.batches is None else program.batches,
        "optimizer": program.optimizer,
        "scheduler": program.scheduler,
        "options": program.options,
        "ported": program.ported,
        "device": device,
        **program.settings,
    }


def _resume_elsewhere(text: str, seed: int, device: str, folder: Path) -> None:
    """Resume the training whose file lies in `folder` in a process of its own; RuntimeError with its last words."""
    command = [sys.executable, "-m", "porting", "verify", text, "--resume-in", str(folder)]
    done = subprocess.run(
        [*command, "--seed", str(seed), "--device", device], capture_output=True, text=True, errors="replace"
    )
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(said[-1] if said else f"exit status {done.returncode}")


def _resume_here(arguments: argparse.Namespace) -> int:
    from porting.verify.inputs import PortMaker, make_training
    from porting.verify.resumption import go_on_in_folder

    with _telling_failure(arguments.program):
        sides = _load_sides(arguments.program, seed=arguments.seed or _SEED, device=arguments.device)
        del sides["batches"]
        ported = {name: sides.pop(name, None) for name in ("ported", "options", "device", "save", "load")}
        maker = PortMaker(make_training(**sides), *ported.values())
        go_on_in_folder(maker.make(), arguments.resume_in)
    return EXIT_DONE


@contextmanager
def _telling_failure(text: str) -> Iterator[None]:
    try:
        yield
    except PortingError:
        raise
    except Exception as error:
        raised = find_raising_frame(error)
        raise ExecutableError.of(
            "E021",
            message=f"running `{text}` failed: {type(error).__name__}: {take_first_line(error)}",
            place=None if raised is None else raised[1],
            label=f"raises {type(error).__name__}",
            help="make a step of it run in plain PyTorch first, with the same batch",
        ) from error


def _run_programs(
    arguments: argparse.Namespace, settings: Mapping[str, Any], text: str, against: str, **asked: Any
) -> Certificate:
    from porting.verify.program_proof import verify_programs
    from porting.verify.program_runs import ProgramPair

    for script in (text, against):
        if not Path(script).is_file():
            help = "give `--against` two scripts: `porting verify train.py --against plain_train.py`"
            raise ExecutableError.of("E020", message=f"there is no script `{script}`", help=help)
    own, plain = (
        settings.get(name, []) if given is None else shlex.split(given)
        for given, name in ((arguments.args, "arguments"), (arguments.against_args, "plain_arguments"))
    )
    is_same = arguments.against_args is None and arguments.args is not None
    pair = ProgramPair(text, against, tuple(own), tuple(own if is_same else plain))
    return verify_programs(pair, device=arguments.device, num_steps=asked.pop("steps"), **asked)


def _choose_setting(asked: Optional[int], before: Any, default: int) -> int:
    if asked is not None:
        return asked
    return before if isinstance(before, int) and not isinstance(before, bool) and before >= 0 else default


def _check_key(key: Optional[Path]) -> None:
    """Refuse a key that is not there before the work of a minute is lost."""
    if key is not None and not key.is_file():
        help = "name a private key, as `~/.ssh/id_ed25519`"
        raise PortingError.of("V008", message=f"there is no key `{key}` to sign with", help=help)


def _print_results(
    format: str, *, certificate: Optional[Certificate] = None, comparison: Optional[Comparison] = None
) -> None:
    if format == "json":
        found: Dict[str, Any] = {} if certificate is None else {"certificate": certificate.to_dict()}
        found.update({} if comparison is None else {"comparison": comparison.to_dict()})
        print(json.dumps(found, indent=2, allow_nan=False))
        return
    texts: List[str] = [str(part) for part in (certificate, comparison) if part is not None]
    # a file that somebody sent may have words that act on the terminal
    show("".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in "\n\n".join(texts)))
