"""The cache folder and its limit come from arguments and from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from porting.diagnostics import OptionError
from porting.executables.settings import DEFAULT_MAX_BYTES, find_cache_folder, parse_bytes, read_max_cache_bytes


def test_the_folder_given_wins_over_the_environment_s(monkeypatch):
    monkeypatch.setenv("PORTING_CACHE_DIR", "/env")

    assert find_cache_folder("/given") == Path("/given")
    assert find_cache_folder() == Path("/env")


def test_without_any_it_is_in_the_user_s_own(monkeypatch):
    monkeypatch.delenv("PORTING_CACHE_DIR", raising=False)

    assert find_cache_folder() == Path.home() / ".cache" / "porting"
    assert find_cache_folder("~/mine") == Path.home() / "mine"


@pytest.mark.parametrize(
    ("text", "num_bytes"), [("500", 500), ("2k", 2048), ("3M", 3 << 20), ("1.5GiB", 3 << 29), ("2 gb", 2 << 30)]
)
def test_sizes_may_have_a_unit(text, num_bytes, monkeypatch):
    monkeypatch.setenv("PORTING_CACHE_MAX_BYTES", text)

    assert read_max_cache_bytes() == num_bytes


def test_the_limit_is_two_gibibytes_by_default(monkeypatch):
    monkeypatch.delenv("PORTING_CACHE_MAX_BYTES", raising=False)

    assert read_max_cache_bytes() == DEFAULT_MAX_BYTES == 2 << 30


@pytest.mark.parametrize("text", ["much", "-1", "1e9", "G", "5 apples", "9" * 30])
def test_what_is_no_size_is_refused(text, monkeypatch):
    monkeypatch.setenv("PORTING_CACHE_MAX_BYTES", text)

    assert parse_bytes(text) is None
    with pytest.raises(OptionError) as caught:
        read_max_cache_bytes()
    assert caught.value.code == "P005"
