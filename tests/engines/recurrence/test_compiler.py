"""What is compiled and measured for a step with recurrent layers."""

from __future__ import annotations

import pytest
import torch

from porting.engines.compiled.compile_settings import CompileSettings
from porting.engines.recurrence import compiler
from porting.engines.recurrence.compiler import LIBRARY, PRODUCTS, compile_here, read_products, write_products
from porting.engines.recurrence.products import describe_product


@pytest.fixture
def products():
    return [describe_product(torch.ones(3, 4), torch.ones(4, 2), torch.ones(2))]


def test_products_are_read_as_they_were_written(products, tmp_path):
    write_products(products, tmp_path / PRODUCTS)

    assert read_products(tmp_path / PRODUCTS) == products


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="there is no oneDNN")
@pytest.mark.parametrize(("is_faster", "is_deterministic"), [(True, False), (False, False), (True, True)])
def test_products_go_to_the_faster_library(products, tmp_path, monkeypatch, is_faster, is_deterministic):
    monkeypatch.setattr(compiler, "compile_loops", lambda folder: None)
    monkeypatch.setattr(compiler, "is_faster_by_onednn", lambda product: is_faster)
    write_products(products, tmp_path / "job")

    settings = CompileSettings(num_threads=torch.get_num_threads(), is_deterministic=is_deterministic)
    compile_here(tmp_path / "job", tmp_path, settings=settings)

    assert read_products(tmp_path / PRODUCTS) == (products if is_faster and not is_deterministic else [])


def test_what_the_compiler_says_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "g++ -include no-such-header.h")

    with pytest.raises(RuntimeError, match=r"no-such-header\.h"):
        compile_here(tmp_path / "job", tmp_path, settings=CompileSettings())

    assert not (tmp_path / LIBRARY).exists()
