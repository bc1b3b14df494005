"""How long it takes from the start of a process to the end of its first trained step, against plain eager PyTorch.

Fresh processes take turns: one that only imports torch, one that imports `porting` too, the eager program, and the
ported one, with an empty cache of executables (cold) and with what a cold start left there (warm). CPU time counts, of
the whole process as the operating system tells it; on a busy machine the seconds on the clock say little.

    python -m porting.bench.start_up --models mlp,cnn --engine aot --rounds 5 --json start_up.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from .machine import describe_machine
from .processes import child_environment, describe_exit
from .start_up_programs import MODELS

__all__ = ["main", "measure_start_up", "start_up_table"]

FORMAT = 1

_TORCH = "import torch"
_PORTING = "import torch, porting"
_TO_IPU = "import torch; from porting import to_ipu"
_RUN = "import torch; from porting.bench.start_up_programs import run; run(*{arguments!r})"

_TITLES = {
    "torch": "import torch",
    "porting": "import torch, porting",
    "to_ipu": "from porting import to_ipu",
    "eager": "eager, one step",
    "cold": "ported, cold",
    "warm": "ported, warm",
}


def measure_start_up(
    models: Optional[Mapping[str, str]] = None, *, engine: str = "ready", rounds: int = 5, cold_rounds: int = 1
) -> Dict[str, Any]:
    """Start every program `rounds` times in turns, the cold ones `cold_rounds` times, and return plain values.

    `models` maps names to `module:function`, which returns a `Program`. Of each side there are the sorted CPU seconds
    and seconds of all rounds, and the ratios of the medians to eager. RuntimeError for a program that fails.
    """
    chosen = dict(MODELS if models is None else models)
    with tempfile.TemporaryDirectory(prefix="porting-start-up-") as folder:
        environment = _environment(Path(folder))
        # not counted: these write the bytecode that installed packages have
        imports = {"torch": [_TORCH], "porting": [_PORTING], "to_ipu": [_TO_IPU]}
        for program in (_TO_IPU, *(_run_text("eager", model) for model in chosen.values())):
            _start(program, environment)
        result: Dict[str, Any] = {
            "format": FORMAT,
            "engine": engine,
            "machine": describe_machine(),
            "imports": _in_turns({name: texts[0] for name, texts in imports.items()}, rounds, environment),
            "models": {},
        }
        for name, model in chosen.items():
            result["models"][name] = _measure_model(
                model, Path(folder) / name, engine, rounds, cold_rounds, environment
            )
    return result


def _measure_model(
    model: str, folder: Path, engine: str, rounds: int, cold_rounds: int, environment: Mapping[str, str]
) -> Dict[str, Any]:
    cold: List[Dict[str, Any]] = []
    for number in range(cold_rounds):
        cache = folder / f"cold-{number}"
        cold.append(_start(_run_text("ported", model, engine, str(cache)), environment))
    warm = _run_text("ported", model, engine, str(folder / "cold-0"))
    sides = _in_turns({"eager": _run_text("eager", model), "warm": warm}, rounds, environment)
    sides["cold"] = _summary(cold)
    eager = sides["eager"]["cpu_seconds"]["median"]
    first = sides["cold"]["first_step_cpu_seconds"]["median"]
    return {
        "sides": sides,
        "warm_over_eager_cpu": sides["warm"]["cpu_seconds"]["median"] / eager,
        "cold_over_eager_cpu": sides["cold"]["cpu_seconds"]["median"] / eager,
        "warm_over_cold_first_step_cpu": sides["warm"]["first_step_cpu_seconds"]["median"] / first,
    }


def _run_text(*arguments: str) -> str:
    return _RUN.format(arguments=arguments)


def _environment(folder: Path) -> Dict[str, str]:
    """Return an environment in which bytecode is kept, as of installed packages, whatever this process was told."""
    environment = child_environment()
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment.pop("PORTING_ENGINE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")
    environment["PORTING_CACHE_DIR"] = str(folder / "unused")
    return environment


def _in_turns(programs: Mapping[str, str], rounds: int, environment: Mapping[str, str]) -> Dict[str, Any]:
    """Start the programs one after the other, `rounds` times, in changing order."""
    measured: Dict[str, List[Dict[str, Any]]] = {name: [] for name in programs}
    names = list(programs)
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            measured[name].append(_start(programs[name], environment))
    return {name: _summary(runs) for name, runs in measured.items()}


def _start(program: str, environment: Mapping[str, str]) -> Dict[str, Any]:
    """Run `program` in a fresh process and return what it cost, and what it said about itself."""
    before, started = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program], env=dict(environment), capture_output=True, text=True, check=False
    )
    seconds, after = time.perf_counter() - started, os.times()
    if done.returncode:
        raise RuntimeError(f"{program} ended with {describe_exit(done.returncode, done.stderr)}")
    said = json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else {}
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return {"cpu_seconds": cpu, "seconds": seconds, **said}


def _summary(runs: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """Summarise each number of the runs; what is no time is that of the last run."""
    summary: Dict[str, Any] = {}
    for key, value in runs[-1].items():
        summary[key] = _spread([run[key] for run in runs]) if key.endswith("seconds") else value
    return summary


def _spread(values: Sequence[float]) -> Dict[str, Any]:
    quartiles = statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else [values[0]] * 3
    return {"median": quartiles[1], "quartiles": [quartiles[0], quartiles[2]], "values": sorted(values)}


def start_up_table(result: Mapping[str, Any]) -> List[str]:
    """Lay out a result as lines of text: medians, with quartiles in brackets."""
    lines = [f"{'':<34}{'CPU s':>22}{'s':>22}{'first step, CPU s':>22}  compiler"]
    for name, side in result["imports"].items():
        lines.append(_line(_TITLES[name], side))
    for name, model in result["models"].items():
        lines.append("")
        lines.append(f"{name}, engine {result['engine']}")
        lines.extend(_line(f"  {_TITLES[side]}", model["sides"][side]) for side in ("eager", "cold", "warm"))
        lines.append(
            f"  CPU time over eager: cold {model['cold_over_eager_cpu']:.2f}, warm {model['warm_over_eager_cpu']:.2f}; "
            f"first step, warm over cold: {model['warm_over_cold_first_step_cpu']:.2f}"
        )
    return lines


def _line(title: str, side: Mapping[str, Any]) -> str:
    columns = (side.get(key) for key in ("cpu_seconds", "seconds", "first_step_cpu_seconds"))
    loaded = {True: "  loaded", False: "  not loaded", None: ""}[side.get("loads_compiler")]
    return (f"{title:<34}" + "".join(f"{_cell(column):>22}" for column in columns) + loaded).rstrip()


def _cell(spread: Optional[Mapping[str, Any]]) -> str:
    if spread is None:
        return ""
    low, high = spread["quartiles"]
    return f"{spread['median']:.2f} [{low:.2f}, {high:.2f}]"


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Measure as the command line asks, print the table, and write the values to a file where one is named."""
    parser = argparse.ArgumentParser(prog="porting.bench.start_up", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="names of built-in models, or module:function")
    parser.add_argument("--engine", default="ready", help="ready, auto, replay or aot")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each program")
    parser.add_argument("--cold-rounds", type=int, default=1, help="cold starts of each model")
    parser.add_argument("--json", help="a file for all values")
    asked = parser.parse_args(arguments)
    models = {name: MODELS.get(name, name) for name in asked.models.split(",")}
    result = measure_start_up(models, engine=asked.engine, rounds=asked.rounds, cold_rounds=asked.cold_rounds)
    sys.stdout.write("\n".join(start_up_table(result)) + "\n")
    if asked.json:
        Path(asked.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
