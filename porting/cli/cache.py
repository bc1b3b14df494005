"""Run `porting cache`: list the executables on disk, explain why one was compiled again, clear or move them."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from porting.cli import EXIT_DONE, EXIT_FAILED, add_action, refuse_usage
from porting.diagnostics import ExecutableError, align_columns, print_finding, say_number
from porting.executables.archive import export_archive, import_archive
from porting.executables.entry import DamagedEntryError, Manifest, read_explanation
from porting.executables.explanations import explain
from porting.executables.settings import PROGRAMS, find_cache_folder, format_bytes
from porting.executables.store import ExecutableStore, StoredEntry

__all__ = ["add_arguments", "run"]

_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 604800}
_SHORT = 8
_GAINS = ("speed_up", "clock_speed_up")

_EPILOG = """\
a session:
  $ porting cache list
  $ porting cache why --last
  recompiled: dropout p 0.1 -> 0.2 at config.py:14
  $ porting cache clear --older-than 30d
  $ porting cache export programs.zip

The folder is that of --dir, else of PORTING_CACHE_DIR, else ~/.cache/porting;
PORTING_CACHE_MAX_BYTES limits it (2G), the least recently used go first.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")

    listing = add_action(actions, "list", "list the executables, and what could not be compiled")
    listing.add_argument("--json", action="store_true", dest="as_json", help="print everything known, as JSON")
    listing.add_argument("--verify", action="store_true", help="read all files and compare their checksums")

    why = add_action(actions, "why", "say why an executable was compiled although an earlier one was there")
    why.add_argument("keys", nargs="*", metavar="KEY", help="an executable; two to compare them (default: the last)")
    why.add_argument("--last", action="store_true", help="the executable that was made last")

    tunings = add_action(actions, "tunings", "show what was expected of the candidates of `auto`, beside measurements")

    clear = add_action(actions, "clear", "remove executables")
    clear.add_argument("keys", nargs="*", metavar="KEY")
    clear.add_argument("--failed", action="store_true", help="forget what could not be compiled, to try it again")
    clear.add_argument("--damaged", action="store_true", help="remove those that cannot be used")
    clear.add_argument("--older-than", type=_parse_seconds, metavar="TIME", help="not used for so long: 12h, 7d, 4w")
    clear.add_argument("--all", action="store_true", dest="everything", help="remove all of them")

    export = add_action(actions, "export", "write executables into one file")
    export.add_argument("file", metavar="FILE")
    export.add_argument("keys", nargs="*", metavar="KEY", help="which ones (default: all)")
    export.add_argument("--with-sources", action="store_true", help="include the programs that they were made from")

    importing = add_action(actions, "import", "keep the executables of a file; they are code: trust who made it")
    importing.add_argument("file", metavar="FILE")
    importing.add_argument("--force", action="store_true", help="even those of another machine or version")
    acts = {
        listing: _show_executables,
        why: _explain_executable,
        tunings: _show_tunings,
        clear: _clear_executables,
        export: _export_executables,
        importing: _import_executables,
    }
    for action, act in acts.items():
        action.set_defaults(act=act)
        action.add_argument("--dir", metavar="DIR", help="the cache folder, as given to `PortOptions(cache_dir=...)`")


def run(arguments: argparse.Namespace) -> int:
    """List, explain, clear, export or import executables.

    Raises ExecutableError: E010 for an unknown key, and those of importing.
    """
    folder = find_cache_folder(arguments.dir)
    if folder.name == PROGRAMS and not (folder / PROGRAMS).exists():
        folder = folder.parent  # the folder of programs inside of the cache folder may be named as well
    store = ExecutableStore(folder, report=lambda finding: print_finding(finding, arguments.format))
    try:
        return int(arguments.act(store, arguments))
    except OSError as error:
        place = f"`{error.filename}`: " if error.filename else ""
        return refuse_usage("cache", f"{place}{error.strerror or error}")


def _parse_seconds(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6})([mhdw])", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError("must be a number with m, h, d or w, such as 7d")
    return float(int(match[1]) * _SECONDS[match[2]])


# -- list ------------------------------------------------------------------------------------------------------------


def _show_executables(store: ExecutableStore, arguments: argparse.Namespace) -> int:
    entries = sorted(store.list_entries(is_thorough=arguments.verify), key=lambda entry: -entry.last_used)
    failures = store.failures.read_all()
    records: List[Dict[str, Any]] = []
    rows: List[Tuple[str, ...]] = [("KEY", "MODEL", "ENGINE", "SPEED-UP", "SIZE", "CREATED", "LAST USED", "STATE")]
    for entry in entries:
        record = {
            "key": entry.digest,
            "state": "damaged" if entry.manifest is None else "ok",
            "problem": entry.problem,
            "num_bytes": entry.num_bytes,
            "last_used": entry.last_used,
            "failures": failures.pop(entry.digest, {}).get("failures", {}),
        }
        rows.append(_make_row(entry, num_failed=len(record["failures"])))
        records.append({**record, **(json.loads(entry.manifest.to_json()) if entry.manifest is not None else {})})
    for digest, record in failures.items():  # those without an executable are left
        records.append({"key": digest, "state": "failed", **record})
        model, candidates, when = record.get("model") or "?", ", ".join(record["failures"]), record.get("when")
        ago = _describe_age(when) if isinstance(when, (int, float)) else "-"
        rows.append((digest[:_SHORT], _make_plain(model), _make_plain(candidates), "-", "-", ago, "-", "failed"))
    if arguments.as_json or arguments.format == "json":
        content = {"folder": str(store.folder), "max_bytes": store.max_bytes, "executables": records}
        print(json.dumps(content, indent=2))
    elif not records:
        print(f"no executables in {store.folder}")
    else:
        print(*align_columns(rows, right=(3, 4)), sep="\n")
        total = format_bytes(sum(entry.num_bytes for entry in entries))
        print(f"{say_number(len(entries), 'executable')}, {total} of {format_bytes(store.max_bytes)} in {store.folder}")
    return EXIT_DONE


def _make_row(entry: StoredEntry, *, num_failed: int) -> Tuple[str, ...]:
    used, size = _describe_age(entry.last_used), format_bytes(entry.num_bytes)
    manifest = entry.manifest
    if manifest is None:
        return entry.digest[:_SHORT], "?", "?", "-", size, "-", used, f"damaged: {entry.problem}"
    speed_up = manifest.content.get("speed_up")
    return (
        entry.digest[:_SHORT],
        _describe_model(manifest),
        _describe_engine(manifest),
        f"{speed_up:.2f}x" if isinstance(speed_up, (int, float)) else "-",
        size,
        _describe_age(manifest.created),
        used,
        f"ok ({num_failed} failed)" if num_failed else "ok",
    )


def _describe_model(manifest: Manifest) -> str:
    name, mode = manifest.model.get("name") or "?", manifest.model.get("mode")
    return _make_plain(f"{name} ({mode})" if mode else str(name))


def _describe_engine(manifest: Manifest) -> str:
    """Name the chosen engine, and the requested one where that is another."""
    choice = manifest.content.get("choice")
    choice = choice if isinstance(choice, dict) else {}
    chosen = str(choice.get("engine") or manifest.engine or "?")
    words = [chosen] + [name.replace("_", "-") for name, value in choice.items() if value is True]
    for name, least, text in (("steps_per_run", 2, "steps a run"), ("micro_batches_at_once", 1, "at once")):
        value = choice.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            words.append(f"{value} {text}")
    asked = f" ({manifest.engine})" if manifest.engine not in ("", chosen) else ""
    return _make_plain(", ".join(words) + asked)


def _describe_executable(manifest: Manifest) -> str:
    return f"{manifest.digest[:_SHORT]}  {_describe_model(manifest)}  {_describe_engine(manifest)}"


def _make_plain(text: object, at_most: Optional[int] = 60) -> str:
    """Return text without line ends and control characters, which would act on the terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))[:at_most]


def _describe_age(seconds: float) -> str:
    """Describe how long ago a time was.

    >>> _describe_age(time.time() - 7300)
    '2 h ago'
    """
    passed = max(0.0, time.time() - seconds)
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if passed >= 2 * length or (unit != "d" and passed >= length):
            return f"{int(passed // length)} {unit} ago"
    return "just now"


# -- why -------------------------------------------------------------------------------------------------------------


def _explain_executable(store: ExecutableStore, arguments: argparse.Namespace) -> int:
    if len(arguments.keys) > 2 or (arguments.keys and arguments.last):
        return refuse_usage("cache why", "name one executable, two to compare, or --last")
    entries = {entry.digest: entry for entry in store.list_entries()}
    failures = store.failures.read_all()
    if len(arguments.keys) == 2:
        old, new = (_choose_key(store, key, entries) for key in arguments.keys)
        return _compare_executables(entries[old], entries[new], as_json=arguments.format == "json")
    if arguments.keys:
        digest = _choose_key(store, arguments.keys[0], {**failures, **entries})
    else:
        usable = [entry.manifest for entry in entries.values() if entry.manifest is not None]
        if not usable:
            raise _make_unknown_error(store, None, [])
        digest = max(usable, key=lambda manifest: manifest.created).digest
    entry, failed = entries.get(digest), failures.get(digest, {}).get("failures", {})
    if arguments.format != "json":
        _tell_reasons(digest, entry, failed)
        return EXIT_DONE
    manifest = None if entry is None else entry.manifest
    because = [] if manifest is None else [change.get("text") for change in manifest.because]
    problem = "" if entry is None else entry.problem
    print(json.dumps({"key": digest, "problem": problem, "because": because, "failures": failed}, indent=2))
    return EXIT_DONE


def _tell_reasons(digest: str, entry: Optional[StoredEntry], failed: Mapping[str, Any]) -> None:
    """Print what was written down when the executable was compiled, and what could not be compiled."""
    manifest = None if entry is None else entry.manifest
    if entry is not None and manifest is None:
        print(f"{digest[:_SHORT]} cannot be used: {entry.problem}")
    if manifest is not None:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(manifest.created))
        print(f"{_describe_executable(manifest)}  compiled {when}")
        texts = [_make_plain(change.get("text"), None) for change in manifest.because]
        for title, text in zip(["recompiled", *["      also"] * len(texts)], texts):
            print(f"{title}: {text}")
        if not texts:
            print("compiled because there was no earlier executable of this model")
    for name, failure in failed.items():
        print(f"could not be compiled: {_make_plain(name)}: {_make_plain(failure['reason'], None)}")


def _compare_executables(old: StoredEntry, new: StoredEntry, *, as_json: bool) -> int:
    try:
        both = []
        for entry in (old, new):
            if entry.manifest is None:
                raise DamagedEntryError(f"{entry.digest[:_SHORT]}: {entry.problem}")
            both.append(read_explanation(entry.folder, entry.manifest))
        changes = explain(*both)
    except DamagedEntryError as error:
        raise ExecutableError.of("E010", message=f"the two cannot be compared: {error}") from None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        raise ExecutableError.of("E010", message="the two cannot be compared: their records are incomplete") from None
    if as_json:
        print(json.dumps({"from": old.digest, "to": new.digest, "changes": [one.text for one in changes]}, indent=2))
        return EXIT_DONE
    print(f"from {old.digest[:_SHORT]} to {new.digest[:_SHORT]}:")
    for change in changes:
        print(f"  {_make_plain(change.text, None)}")
    if not changes:
        print("  nothing that is written down")
    return EXIT_DONE


def _choose_key(store: ExecutableStore, key: str, known: Mapping[str, Any]) -> str:
    """Return the digest that begins with `key`; ExecutableError E010 without exactly one."""
    found = [digest for digest in known if digest.startswith(key.strip().lower())] if key.strip() else []
    if len(found) != 1:
        raise _make_unknown_error(store, key, found)
    return found[0]


def _make_unknown_error(store: ExecutableStore, key: Optional[str], found: Sequence[str]) -> ExecutableError:
    """Make the error for a `key` that no executable has, or more than one; without a key there are no executables."""
    missing = "there are no executables" if key is None else f"there is no executable `{key}`"
    message = f"`{key}` is the beginning of {len(found)} executables" if found else missing
    return ExecutableError.of(
        "E010",
        message=message,
        notes=f"looked in `{store.folder}`" if not found else ", ".join(digest[:16] for digest in found[:8]),
        help="`porting cache list` shows all; `--dir` names another folder",
    )


# -- tunings ---------------------------------------------------------------------------------------------------------


def _show_tunings(store: ExecutableStore, arguments: argparse.Namespace) -> int:
    rows: List[Tuple[str, ...]] = [("KEY", "MODEL", "CANDIDATE", "EXPECTED", "BOUNDS", "MEASURED", "")]
    num_measured = num_within = 0
    records: List[Dict[str, Any]] = []
    for entry in store.list_entries():
        if entry.manifest is None:
            continue
        report, model = entry.manifest.content.get("tuning"), entry.manifest.model.get("name") or "?"
        for candidate in (report or {}).get("candidates", ()):
            expected, gains = candidate.get("expected"), [candidate.get(name) for name in _GAINS]
            if expected is None:
                continue
            records.append({"key": entry.digest, "model": model, **candidate})
            row = [entry.digest[:_SHORT], _make_plain(model), candidate["label"]]
            row += [f"{expected['median']:.2f}x", f"{expected['low']:.2f} - {expected['high']:.2f}"]
            if all(gains):
                # predictions are about the time between the processor's and the clock's
                measured = (gains[0]["median"] * gains[1]["median"]) ** 0.5
                is_within = expected["low"] <= measured <= expected["high"]
                num_measured, num_within = num_measured + 1, num_within + is_within
                row += [f"{measured:.2f}x", "" if is_within else "outside"]
            else:
                row += ["-", "out" if candidate.get("problem") else "not compiled"]
            rows.append(tuple(row))
    if arguments.format == "json":
        print(json.dumps(records, indent=2))
    elif len(rows) == 1:
        print(f"no predictions in {store.folder}")
    else:
        print(*align_columns(rows, right=(3, 5)), sep="\n")
        print(f"{num_within} of {say_number(num_measured, 'measured candidate')} within the bounds; gains over replay")
    return EXIT_DONE


# -- clear -----------------------------------------------------------------------------------------------------------


def _clear_executables(store: ExecutableStore, arguments: argparse.Namespace) -> int:
    oldest = None if arguments.older_than is None else time.time() - arguments.older_than
    if not (arguments.keys or arguments.failed or arguments.damaged or oldest is not None or arguments.everything):
        return refuse_usage(
            "cache clear", "name executables, or what to clear: --failed, --damaged, --older-than 7d, --all"
        )
    entries = {entry.digest: entry for entry in store.list_entries(is_thorough=arguments.damaged)}
    failures = store.failures.read_all()
    named = [_choose_key(store, key, {**failures, **entries}) for key in arguments.keys]
    wanted = [
        entry
        for entry in entries.values()
        if entry.digest in named
        or arguments.everything
        or (oldest is not None and entry.last_used < oldest)
        or (arguments.damaged and entry.manifest is None)
    ]
    num_leftovers = store.sweep()
    removed = [entry for entry in wanted if store.remove(entry.digest)]
    forgotten = list(failures) if arguments.failed or arguments.everything else named
    num_forgotten = sum(store.failures.forget(digest) for digest in forgotten)
    freed = format_bytes(sum(entry.num_bytes for entry in removed))
    print(f"removed {say_number(len(removed), 'executable')}, {freed}")
    if num_forgotten:
        print(f"forgot the failures of {say_number(num_forgotten, 'step')}: they are tried again")
    if num_leftovers:
        print(f"cleared away {say_number(num_leftovers, 'leftover')} of processes that died")
    if len(removed) < len(wanted):
        print(f"{len(wanted) - len(removed)} could not be removed", file=sys.stderr)
    return EXIT_DONE if len(removed) == len(wanted) else EXIT_FAILED


# -- export and import -----------------------------------------------------------------------------------------------


def _export_executables(store: ExecutableStore, arguments: argparse.Namespace) -> int:
    entries = {entry.digest: entry for entry in store.list_entries()}
    digests = [_choose_key(store, key, entries) for key in arguments.keys] or list(entries)
    if not digests:
        raise _make_unknown_error(store, None, [])
    written = export_archive(store, arguments.file, digests, with_sources=arguments.with_sources)
    size = format_bytes(Path(arguments.file).stat().st_size)
    print(f"wrote {say_number(len(written), 'executable')} to {arguments.file}, {size}")
    return EXIT_DONE if len(written) == len(digests) else EXIT_FAILED


def _import_executables(store: ExecutableStore, arguments: argparse.Namespace) -> int:
    imported = import_archive(store, arguments.file, is_forced=arguments.force)
    for word, manifests in (("kept", imported.kept), ("had ", imported.known)):
        for manifest in manifests:
            print(f"{word} {_describe_executable(manifest)}")
    if not imported.kept and not imported.known:
        print("the file holds no executables")
    return EXIT_DONE
