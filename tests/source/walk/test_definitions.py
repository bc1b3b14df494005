"""Definitions: qualified names, decorators, and classes within functions."""

from __future__ import annotations

import pytest

from porting.source import Kind


def test_functions_have_qualified_names(facts_of):
    facts = facts_of(
        """
        class A:
            def method(self):
                def inner():
                    mark()
                inner()
        A().method()
        """
    )
    (mark,) = [call for call in facts.calls if call.name == "mark"]

    assert mark.where.function == "train.A.method.inner"


def test_a_class_in_a_function_is_found(facts_of):
    facts = facts_of(
        "import torch\ndef make():\n    class Net(torch.nn.Module):\n        pass\n    return Net()\nmake().cuda()\n"
    )
    (call,) = [call for call in facts.calls if call.is_method("cuda")]

    assert call.receiver[0].name == "train.make.Net"


@pytest.mark.parametrize(
    "decorator",
    [
        "functools.lru_cache()",
        "torch.jit.ignore",
        "app.command()",
        "record",
        "hydra.main(version_base=None)",
        "unknown",
    ],
)
def test_decorators_of_libraries_leave_a_function(facts_of, decorator):
    facts = facts_of(f"import functools, torch, hydra\n@{decorator}\ndef f():\n    return torch.zeros(3)\nf().cuda()\n")
    (call,) = [call for call in facts.calls if call.is_method("cuda")]

    assert call.is_on(Kind.TENSOR)


def test_a_class_registered_by_a_decorator_is_found(facts_of):
    facts = facts_of(
        """
        import torch
        MODELS = {}
        def register(name):
            def add(cls):
                MODELS[name] = cls
                return cls
            return add

        @register("net")
        class Net(torch.nn.Module):
            pass

        MODELS[args.model]().cuda()
        """
    )

    assert any(call.is_method("cuda") and call.is_on(Kind.MODULE) for call in facts.calls)
