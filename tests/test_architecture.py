"""What the house rules ask of the source: layers, links, and files that can be read in one sitting."""

from __future__ import annotations

import ast
import configparser
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Set, Tuple

import pytest
import torch
from torch import nn

import porting
from tests.source_trees import parse_all

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "porting"
SOURCES = sorted(PACKAGE.rglob("*.py"))
MAX_LINES = 400
MAX_FILES_OF_A_CALL = 14

# Of the arguments of a room's functions so many may be typed as `Any`, which says nothing.
MOST_ANY = 0.03
ANY = [ast.dump(ast.parse(text, mode="eval").body) for text in ("Any", "Optional[Any]")]

# Modules that recipes may use besides the public names: models, data, tables of checks, each other, the device API.
OPEN_TO_RECIPES = {
    "porting.buckets",
    "porting.data",
    "porting.integrations",
    "porting.models",
    "porting.recipe_chain",
    "porting.recipes",
    "porting.simulator",
}
# Packages whose own public names recipes may use, but not the modules in them.
DOORS_OPEN_TO_RECIPES = {"porting", "porting.adapters", "porting.compute_mode"}

# A verb says what its function returns: `find_` one result or None, `list_` several in order, `make_` always something.
NEVER_RETURNED = {
    "find": {"Dict", "FrozenSet", "Iterator", "List", "Mapping", "Sequence", "Set", "Tuple, ..."},
    "list": {"Dict", "FrozenSet", "Iterator", "Mapping", "None", "Optional", "Set", "bool", "int", "str"},
    "make": {"None", "Optional"},
}
ALWAYS_RETURNED = {
    "format": "str",
    "has": "bool",
    "is": "bool",
    "iter": "Iterator",
    "print": "None",
    "warn": "None",
}
# named by the standard library
OTHERS_NAMES = {"find_distributions"}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def read_source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def trees():
    """All sources, parsed once; let go of when these tests are over."""
    return parse_all(SOURCES)


def modules_imported_by(tree: ast.Module) -> Set[str]:
    """List the modules that a file imports absolutely, wherever in it."""
    found: Set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(str(node.module))
    return found


def defines_something(tree: ast.Module) -> bool:
    return any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in ast.walk(tree))


def kind_returned(annotation: ast.expr) -> str:
    """Name a type without its parts, save that a tuple of any length is told from a pair."""
    if not isinstance(annotation, ast.Subscript):
        return ast.unparse(annotation)
    kind, parts = ast.unparse(annotation.value), ast.unparse(annotation.slice)
    return f"{kind}, ..." if kind == "Tuple" and parts.strip("()").endswith("...") else kind


def list_misnamed(tree: ast.AST) -> List[Tuple[str, str]]:
    """List the functions whose verb promises another kind of result, with the kind."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.returns]
    returned = [(function.name, kind_returned(function.returns)) for function in functions]
    return [(name, kind) for name, kind in returned if is_misnamed(name, kind)]


def is_misnamed(name: str, kind: str) -> bool:
    verb = "" if name.startswith("__") else name.lstrip("_").split("_")[0]
    return kind in NEVER_RETURNED.get(verb, ()) or ALWAYS_RETURNED.get(verb, kind) != kind


def is_open_to_recipes(module: str) -> bool:
    own = module.split(".")[0] == "porting"
    return not own or any(module == name or module.startswith(f"{name}.") for name in OPEN_TO_RECIPES)


def list_argument_types(tree: ast.Module) -> List[str]:
    """List the types of the arguments of all functions, without those that collect further ones."""
    functions = [node.args for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    arguments = [arg for args in functions for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)]
    return [ast.dump(arg.annotation) for arg in arguments if arg.annotation is not None]


def test_the_layers_of_the_contract_are_kept():
    result = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )

    assert "0 broken" in result.stdout, result.stdout + result.stderr
    assert result.returncode == 0


@pytest.mark.parametrize("link", ["adapters", "models", "recipes"])
def test_the_front_doors_are_relative_links_into_the_package(link):
    assert os.readlink(ROOT / link) == f"porting/{link}"


def test_adapters_get_their_backend_as_an_argument(trees):
    found = {
        name_of(path): module
        for path in PACKAGE.glob("adapters/**/*.py")
        for module in modules_imported_by(trees[path])
        if module.startswith(("poptorch", "porting.simulator"))
    }

    assert found == {}


def test_recipes_use_public_names_only(trees):
    inner = {
        name_of(path): module
        for path in PACKAGE.glob("recipes/*/**/*.py")
        for module in modules_imported_by(trees[path])
        if module not in DOORS_OPEN_TO_RECIPES and not is_open_to_recipes(module)
    }

    assert inner == {}


def test_a_module_says_in_a_docstring_what_it_is(trees):
    assert [name_of(path) for path in SOURCES if not ast.get_docstring(trees[path])] == []


def test_annotations_are_not_evaluated_so_that_python_38_can_read_them(trees):
    evaluated = [path for path in SOURCES if "from __future__ import annotations" not in read_source(path)]

    assert [name_of(path) for path in evaluated if defines_something(trees[path])] == []


@pytest.mark.slow
def test_functions_say_what_they_take(trees):
    types: Dict[str, List[str]] = {}
    for path, tree in trees.items():
        room, *inside = path.relative_to(PACKAGE).parts
        types.setdefault(room if inside else "porting", []).extend(list_argument_types(tree))

    shares = {room: sum(map(ANY.__contains__, found)) / len(found) for room, found in types.items() if found}

    assert {room: share for room, share in shares.items() if share >= MOST_ANY} == {}


def test_a_module_can_be_read_in_one_sitting_or_says_at_the_top_why_not():
    lines = {name_of(path): read_source(path).splitlines() for path in SOURCES}
    long = {name: len(text) for name, text in lines.items() if len(text) > MAX_LINES}

    assert [name for name in long if not any(line.startswith("# long because ") for line in lines[name][:20])] == []


def test_a_verb_says_what_its_function_returns(trees):
    misnamed = {
        f"{name_of(path)}: {name}": kind
        for path, tree in trees.items()
        for name, kind in list_misnamed(tree)
        if name not in OTHERS_NAMES
    }

    assert misnamed == {}


@pytest.mark.parametrize(
    "signature",
    [
        "def find_nodes() -> List[Node]: ...",
        "def list_nodes() -> Iterator[Node]: ...",
        "def _make_node() -> Optional[Node]: ...",
        "def is_node() -> Optional[bool]: ...",
        "def find_nodes() -> Tuple[Node, ...]: ...",
    ],
)
def test_a_verb_that_promises_another_kind_of_result_is_found(signature):
    assert len(list_misnamed(ast.parse(signature))) == 1


@pytest.mark.parametrize(
    "signature",
    [
        "def find_node() -> Optional[Node]: ...",
        "def find_ends() -> Tuple[Node, Node]: ...",
        "def list_nodes() -> Sequence[Node]: ...",
        "def _iter_nodes() -> Iterator[Node]: ...",
    ],
)
def test_a_verb_that_keeps_its_promise_is_not_found(signature):
    assert list_misnamed(ast.parse(signature)) == []


def test_the_version_is_written_down_once():
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("setup.cfg", "pyproject.toml")]

    assert [text for text in texts if f'"{porting.__version__}"' in text or f"= {porting.__version__}\n" in text] == []


def read_requirements():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return config["options"]["install_requires"], config["options.extras_require"]


def test_every_direct_dependency_is_pinned_for_ci():
    core, extras = read_requirements()
    wanted = "\n".join([core, *(names for extra, names in extras.items() if extra != "all")]).split("\n")
    pinned = set(re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE))

    assert {re.split("[<>=;]", name)[0] for name in wanted if name and name[0] != "#"} <= pinned


def test_all_is_every_extra_but_those_that_need_one_torch_or_work_on_this_repository():
    _core, extras = read_requirements()
    (in_all,) = re.findall(r"ipu-porting\[(.*)\]", extras["all"])

    assert in_all.split(",") == sorted({*extras} - {"all", "dev", "docs", "public"})


def test_no_two_extras_bring_the_same():
    _core, extras = read_requirements()
    brought = [tuple(sorted(name.partition(">")[0] for name in names.split())) for names in extras.values()]

    assert len(brought) == len(set(brought))


def test_a_warm_call_passes_through_few_files():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ported = porting.to_ipu(model, nn.CrossEntropyLoss(), optimizer=optimizer, device="sim")
    batch = torch.randn(8, 4), torch.randint(3, (8,))
    ported(*batch)
    ported(*batch)
    files: Set[str] = set()

    sys.setprofile(lambda frame, _event, _argument: files.add(frame.f_code.co_filename))
    try:
        ported(*batch)
    finally:
        sys.setprofile(None)

    walked = sorted(file for file in files if file.startswith(str(PACKAGE)))
    assert len(walked) <= MAX_FILES_OF_A_CALL, walked
