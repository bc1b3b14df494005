"""Places point at the user's line, whatever lies between it and the fault."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import linecache
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import porting
from porting.diagnostics import Place, caller_place, find_assignment, is_user_file
from porting.support.bound_process import _START

needs_columns = pytest.mark.skipif(sys.version_info < (3, 11), reason="Python knows columns since 3.11")
PACKAGE = Path(porting.__file__).parent


def line_of(text: str) -> int:
    """Find the line of this file that ends with a marker."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return 1 + next(number for number, line in enumerate(lines) if line.endswith(f"# {text}"))


def run_as(file: str, source: str, **names: object) -> dict:
    """Run `source` as though it stood in `file`, and return its global names."""
    space = {"__file__": file, "__name__": "module", "caller_place": caller_place, **names}
    exec(compile(source, file, "exec"), space)
    return space


def test_a_place_reads_as_file_line_column():
    assert [str(Place("a.py", 3)), str(Place("a.py", 3, 8, 4, 2))] == ["a.py:3", "a.py:3:8"]


def test_caller_place_is_the_line_of_the_call():
    place = caller_place()  # the call

    assert (place.file, place.line) == (__file__, line_of("the call"))


@needs_columns
def test_caller_place_spans_the_call_in_columns_from_one():
    place = caller_place()

    assert (place.column, place.end_line, place.end_column) == (13, place.line, 13 + len("caller_place()"))


@needs_columns
def test_columns_count_characters_and_not_bytes():
    ärger, place = "größe 中", caller_place()

    assert place.column == len('    ärger, place = "größe 中", ') + 1
    assert ärger == "größe 中"


def test_frames_of_torch_are_passed_over():
    space = run_as(str(PACKAGE / "inside.py"), "def hook(*_): places.append(caller_place())", places=[])
    identity = torch.nn.Identity()
    identity.register_forward_hook(space["hook"])

    identity(torch.ones(1))  # torch calls the hook

    assert [(place.file, place.line) for place in space["places"]] == [(__file__, line_of("torch calls the hook"))]


def test_frames_of_this_package_are_passed_over():
    space = run_as(str(PACKAGE / "api.py"), "def find(): return caller_place()")

    place = space["find"]()  # call into the package

    assert (place.file, place.line) == (__file__, line_of("call into the package"))


@pytest.mark.parametrize("folder", ["models", "recipes"])
def test_models_and_recipes_of_this_package_are_the_users_code(folder):
    file = str(PACKAGE / folder / "inside.py")

    place = run_as(file, "def find(): return caller_place()")["find"]()

    assert (place.file, place.line) == (file, 1)


def test_frames_of_the_standard_library_are_passed_over():
    space = run_as(str(PACKAGE / "api.py"), "def find():\n    yield caller_place()")

    with contextlib.contextmanager(space["find"])() as place:  # entered here
        assert (place.file, place.line) == (__file__, line_of("entered here"))


def test_code_that_dataclasses_generate_is_passed_over():
    space = run_as(str(PACKAGE / "api.py"), "def find(self): self.places.append(caller_place())")
    places = []
    kind = dataclasses.make_dataclass("Kind", [], namespace={"__post_init__": space["find"], "places": places})

    kind()  # makes one

    assert [(place.file, place.line) for place in places] == [(__file__, line_of("makes one"))]


def test_without_skipping_the_callers_own_line_is_returned():
    file = str(PACKAGE / "api.py")

    place = run_as(file, "def find(): return caller_place(skip_internal=False)")["find"]()

    assert place.file == file


def test_there_is_no_place_when_no_user_is_on_the_stack():
    program = "from porting.diagnostics import places; places._is_user_frame = lambda *_: False; "
    program += "print(places.caller_place())"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "None\n"


def test_a_program_on_the_command_line_is_the_users():
    program = "from porting.diagnostics import caller_place\nprint(caller_place().file)"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "<string>\n"


def test_what_starts_a_process_is_no_users_code():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        place = pool.apply(eval, ("__import__('porting.diagnostics').diagnostics.caller_place()",))

    assert place is None


def test_a_process_of_this_package_is_no_users_code():
    start = _START.partition("from ")[0].format(paths=[])
    program = f"{start}from porting.diagnostics import caller_place; print(caller_place())"

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "None\n"


@pytest.mark.parametrize("module", [torch, torch.nn.functional, functools, os, porting, porting.diagnostics])
def test_is_user_file_knows_libraries(module):
    assert not is_user_file(module.__file__)


@pytest.mark.parametrize("file", [__file__, "train.py", "<stdin>", "<ipython-input-1-abc>", "/porting/train.py"])
def test_is_user_file_knows_users(file):
    assert is_user_file(file)


def test_what_starts_the_command_is_no_line_of_the_users():
    space = run_as(str(PACKAGE / "cli" / "main.py"), "def main(run): return run()")
    inner = run_as("train.py", "def make(): return caller_place()")
    outer = run_as(str(PACKAGE / "api.py"), "def make(): return caller_place()")

    assert space["main"](outer["make"]) is None
    assert space["main"](inner["make"]).file == "train.py"


# the line that assigns an attribute

CALLS = 0


class Base:
    def __init__(self):
        self.total = 0
        self.count = 0

    def forward(self):
        self.total += 1  # total
        (self.first, self.second) = 1, 2  # second
        self.names.append("a")  # names
        self.table["a"][0] += 1  # table
        global CALLS
        CALLS += 1  # CALLS
        steps = 0
        return steps


class Derived(Base):
    def reset(self):
        del self.count  # count


@pytest.mark.parametrize("name", ["total", "second", "count", "names", "table", "CALLS"])
def test_the_line_that_binds_an_attribute_is_found(name):
    place = find_assignment(Derived, name)

    assert place.file == __file__
    assert linecache.getline(place.file, place.line).rstrip().endswith(f"# {name}")


def test_init_does_not_count_and_neither_do_other_names():
    assert find_assignment(Base, "count") is None
    assert find_assignment(Derived, "other") is None
    assert find_assignment(Derived, "steps") is None


def test_classes_without_source_tell_nothing():
    assert find_assignment(type("Typed", (), {}), "count") is None
    assert find_assignment(int, "count") is None
