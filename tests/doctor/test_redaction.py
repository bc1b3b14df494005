"""What is sent to others names nobody, no host, no address and no secret, and still says what is wrong."""

from __future__ import annotations

import getpass
import socket

import pytest

from porting.doctor.redaction import Redaction


@pytest.fixture
def redaction(monkeypatch):
    monkeypatch.setenv("HOME", "/net/people/ada.lovelace")
    monkeypatch.setenv("USER", "alovelace")
    monkeypatch.setenv("IPUOF_VIPU_API_HOST", "vipu-prod.example.org")
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-node-17.cluster.example.org")
    monkeypatch.setattr(getpass, "getuser", lambda: "alovelace")
    return Redaction()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/net/people/ada.lovelace/.cache/porting: 3 GiB free", "~/.../porting: 3 GiB free"),
        (
            "the interpreter is /net/people/ada.lovelace/secret-project/.venv/bin/python",
            "the interpreter is ~/.../python",
        ),
        ("/home/bob/train.py:3", "~/.../train.py:3"),
        ("/Users/carol", "~"),
        ("C:\\Users\\dave\\port\\train.py", "~/.../train.py"),
        ("by alovelace (4711)", "by <user> (4711)"),
        ("/scratch/alovelace/cache", "/scratch/<user>/cache"),
        ("on gpu-node-17", "on <host>"),
        ("gpu-node-17.cluster.example.org:8090", "<host>:8090"),
        ("vipu-prod.example.org", "<host>"),
        ("10.44.44.1 does not answer", "<address> does not answer"),
        ("at fe80:0:0:0:1ff:fe23:4567:890a now", "at <address> now"),
        ("HF_TOKEN=hf_abcdefghijklmnop", "HF_TOKEN=<secret>"),
        ("my_api_key: 1234", "my_api_key: <secret>"),
        ("ghp_0123456789abcdefghij", "<secret>"),
        ("AKIAIOSFODNN7EXAMPLE", "<secret>"),
        ("https://ada:pass@index.org/simple", "https://<user>@index.org/simple"),
        ("mail ada@example.org", "mail <mail>"),
    ],
)
def test_what_is_nobodys_business_is_taken_out(redaction, text, shown):
    assert redaction.redact_text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "torch 2.13.0+cpu, Python 3.11.7",
        "g++ (Debian 12.2.0-14+deb12u1) 12.2.0",
        "2026-11-23 23:22:36 +0000",
        "POPLAR version 3.4.0 (0a785c2cb5)",
        "/usr/bin/g++ ended with status 1",
        "20,000 of 65,536",
    ],
)
def test_what_support_needs_stays(redaction, text):
    assert redaction.redact_text(text) == text


def test_nested_values_are_gone_through(redaction):
    assert redaction.redact({"host": ["gpu-node-17", 3, None, {"a": ("alovelace",)}]}) == {
        "host": ["<host>", 3, None, {"a": ["<user>"]}]
    }


def test_a_user_without_a_name_is_no_fault(monkeypatch):
    monkeypatch.setattr(getpass, "getuser", lambda: (_ for _ in ()).throw(KeyError("uid not found")))

    assert Redaction().redact_text("text") == "text"


def test_the_name_root_is_a_word(monkeypatch):
    monkeypatch.setenv("USER", "root")
    monkeypatch.setattr(getpass, "getuser", lambda: "root")

    assert Redaction().redact_text("the root of a project") == "the root of a project"
