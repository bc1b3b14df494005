"""A signature tells who made a certificate, and that nobody has changed it since."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from porting.cli.main import main
from porting.diagnostics import PortingError
from porting.verify.signature import check_signature, sign
from tests.verify.certificates import make_certificate

pytestmark = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen")


@pytest.fixture
def keys(tmp_path):
    """Make two keys, of which `ada` alone is allowed."""
    for name in ("ada", "eve"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(tmp_path / name)]
        subprocess.run(command, check=True)
    (tmp_path / "allowed").write_text(f"ada {(tmp_path / 'ada.pub').read_text()}")
    return tmp_path


@pytest.fixture
def file(tmp_path):
    make_certificate().write(tmp_path / "certificate.json")
    return tmp_path / "certificate.json"


def refuse(file, keys) -> str:
    with pytest.raises(PortingError) as caught:
        check_signature(file, keys / "allowed")
    assert caught.value.code == "V008"
    return caught.value.finding.message


def test_who_signed_a_file_is_told(file, keys):
    assert sign(file, keys / "ada").name == "certificate.json.sig"

    signer = check_signature(file, keys / "allowed")

    assert signer.name == "ada"
    assert "ED25519" in signer.key


def test_a_file_that_was_changed_afterwards_is_refused(file, keys):
    sign(file, keys / "ada")
    file.write_bytes(file.read_bytes() + b" ")

    assert "not one of its content" in refuse(file, keys)


def test_a_signature_of_somebody_else_is_refused(file, keys):
    sign(file, keys / "eve")

    assert "of nobody who is allowed" in refuse(file, keys)


def test_a_file_without_a_signature_is_refused(file, keys):
    assert "is not signed" in refuse(file, keys)


def test_a_signature_for_something_else_is_refused(file, keys):
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", keys / "ada", file], check=True)

    assert "certificate.json" in refuse(file, keys)


def test_a_key_that_there_is_not_is_said(file, keys):
    with pytest.raises(PortingError) as caught:
        sign(file, keys / "nobody")

    assert caught.value.code == "V008"


def test_without_the_program_no_signature_is_trusted(file, keys, monkeypatch):
    sign(file, keys / "ada")
    monkeypatch.setenv("PATH", str(keys))

    assert "cannot be computed" in refuse(file, keys)


def test_a_key_that_there_is_not_is_refused_before_anything_runs(tmp_path, capsys):
    assert main(["verify", "nothing.py:make", "--out", str(tmp_path / "c.json"), "--sign", str(tmp_path / "no")]) == 2

    assert "error[V008]: there is no key" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_command_says_who_signed_what_it_shows(file, keys, capsys):
    words = ["verify", "--show", str(file)]

    assert main(words) == 0
    assert capsys.readouterr().err.endswith("certificate.json: not signed\n")
    assert main([*words, "--check-signature", str(keys / "allowed")]) == 2
    sign(file, keys / "ada")
    assert main([*words, "--check-signature", str(keys / "allowed")]) == 0
    assert "signed by ada" in capsys.readouterr().err
