# One line a target; each makes `.venv` on its own where it is missing or out of date.

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
SOURCES := porting tests conftest.py setup.py check_alone
# A file's tests stay in one process: they share what they train. The percentages are the progress.
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --durations=10

# what tests are compiled to is kept for the next run
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test public widths hardware-path pythons torch check all-tests wheels lint format-check types imports syntax dead fix wheel coverage-page docs bench clean

help: ## say what each target does
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 22

demo: $(READY) ## port a real model on real data and compare it with plain PyTorch
	$(BIN)/python -m porting.recipes.first_port.demo

test: $(READY) ## run the tests that take seconds, in two processes
	$(PYTEST) -m "not slow" --hypothesis-profile quick

# torch, and what is compiled here, take these for the processor's
widths: $(READY) ## run what depends on the width of vectors as on processors that have narrower ones
	for width in default avx2; do ATEN_CPU_CAPABILITY=$$width $(BIN)/pytest -m vectors --hypothesis-profile quick tests/engines || exit 1; done

hardware-path: $(READY) ## run what runs on IPUs over PopTorch's own front ends, on Python 3.8 and torch 2.0
	$(BIN)/python -m tests.hardware.environment

pythons: $(READY) ## install the wheel for Python 3.8, 3.11, 3.12 and 3.13, and train README's ten lines
	$(BIN)/python -m tests.installed.interpreters --make

torch: $(READY) ## run what tells which parts work with another torch: make torch VERSION=2.8.0
	$(BIN)/python -m tests.torch_versions.environment $(VERSION)

check: types lint format-check imports syntax dead widths all-tests wheels ## all that CI asks for, slow tests included

all-tests: $(READY)
	$(PYTEST)

wheels: $(READY)
	$(BIN)/python -m tests.installed.interpreters

lint: $(READY)
	$(BIN)/ruff check $(SOURCES)

format-check: $(READY)
	$(BIN)/ruff format --check $(SOURCES)

types: $(READY)
	$(BIN)/mypy

imports: $(READY)
	$(BIN)/lint-imports

syntax: $(READY)
	$(BIN)/vermin --no-tips --target=3.8- --violations porting

dead: $(READY)
	$(BIN)/vulture

fix: $(READY) ## format, and repair what ruff can repair
	$(BIN)/ruff check --fix $(SOURCES) && $(BIN)/ruff format $(SOURCES)

wheel: $(READY) ## build the wheel into dist/
	rm -rf build && $(BIN)/pip wheel --no-deps --no-build-isolation --wheel-dir dist .

coverage-page: $(READY) ## write docs/simulator-coverage.md again
	$(BIN)/python -m tests.simulator.coverage_page

docs: $(READY) ## build the documentation site into site/
	$(BIN)/python -m tests.docs.site

bench: $(READY) ## time a simulated step against an eager one
	$(BIN)/python -m porting bench overhead

# In a folder of their own: PyPI has torchvision for GPUs alone, which other libraries that find it fail to import.
public: $(READY) ## install the public models of `porting bench` into .venv/public, and test them there
	$(BIN)/pip install --quiet --no-deps --upgrade --target .venv/public --constraint constraints.txt timm torchvision
	PYTHONPATH=.venv/public $(PYTEST) tests/bench/test_public.py tests/bench/test_public_models.py

clean: ## remove what was built, but not .venv
	rm -rf build dist site src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

# torch first and alone: a range would fetch the newest build and gigabytes of CUDA with it. That of PyPI has CUDA in any
# case: TORCH_INDEX=https://download.pytorch.org/whl/cpu has none.
$(READY): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet $(TORCH_INDEX:%=--index-url %) "$$(grep '^torch==' constraints.txt)"
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[bench,recipes,fix,ignite,lightning,transformers,accelerate,tensorboard,notebook,docs,dev]'
	$(BIN)/python -m compileall -q -j 2 porting  # pip does so for packages that it copies; a first call takes half as long
	touch $@
