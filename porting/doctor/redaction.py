"""Remove private data from an examination: names of people and hosts, addresses, secrets.

The examination's JSON goes through it.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from typing import Any, Callable, List, Pattern, Tuple, Union

__all__ = ["Redaction"]

_SECRET_NAME = r"[A-Z0-9_]*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_?KEY|CREDENTIAL|COOKIE)[A-Z0-9_]*"
_SHORTEST_NAME = 3
# names of users that identify no person, and are words of other texts
_PLAIN_USERS = {"root", "user", "admin", "ubuntu", "runner", "nobody", "docker", "python"}

Replacement = Union[str, Callable[["re.Match[str]"], str]]


class Redaction:
    """Removes names, addresses and secrets from texts, for one machine and one user."""

    def __init__(self) -> None:
        self._rules: List[Tuple[Pattern[str], Replacement]] = [
            (re.compile(rf"\b({_SECRET_NAME})(\s*[=:]\s*)\S+", re.IGNORECASE), r"\1\2<secret>"),
            (re.compile(r"\b(?:gh[opsur]|github_pat|hf|sk|xox[abp]|glpat)[_-][A-Za-z0-9_-]{8,}"), "<secret>"),
            (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"), "<secret>"),
            (re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]+)*"), "<secret>"),
            (re.compile(r"(\w+://)[^/\s@]+@"), r"\1<user>@"),
            (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "<mail>"),
            *self._list_home_rules(),
            (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b(?!\.\d)"), "<address>"),
            (re.compile(r"(?<![\w:])(?:[0-9a-f]{1,4}:){3,7}[0-9a-f:]{1,4}(?![\w:])", re.IGNORECASE), "<address>"),
            *((_match_word(host), "<host>") for host in _list_hosts()),
            *((_match_word(user), "<user>") for user in _list_users()),
        ]

    @staticmethod
    def _list_home_rules() -> List[Tuple[Pattern[str], Replacement]]:
        home = os.path.expanduser("~").rstrip("/\\")
        # folders below the home folder reveal projects and people; the last name is enough
        below = r"(?P<rest>(?:[/\\][^\s/\\'\"`:;,()]+)*)"
        homes = [re.escape(home)] if len(home) > 1 else []
        homes += [r"/(?:home|Users|nethome|lustre/home)/[^\s/'\"`:;,()]+", r"[A-Z]:\\Users\\[^\s\\'\"`:;,()]+"]
        return [(re.compile(f"(?:{'|'.join(homes)}){below}"), _shorten_home)]

    def redact_text(self, text: str) -> str:
        """Return a text without private data."""
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement, text)
        return text

    def redact(self, value: object) -> Any:
        """Return plain values, nested in lists and dictionaries, without private data."""
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, dict):
            return {key: self.redact(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.redact(item) for item in value]
        return value


def _shorten_home(match: re.Match[str]) -> str:
    last = re.split(r"[/\\]", match["rest"])[-1]
    return f"~/.../{last}" if last else "~"


def _match_word(word: str) -> Pattern[str]:
    return re.compile(rf"(?<![A-Za-z0-9]){re.escape(word)}(?![A-Za-z0-9])", re.IGNORECASE)


def _list_hosts() -> List[str]:
    named = [socket.gethostname(), os.environ.get("HOSTNAME", ""), os.environ.get("MASTER_ADDR", "")]
    named += [value for name, value in os.environ.items() if name.endswith(("_HOST", "_HOSTS")) and value]
    words = {word for name in named for word in (name, name.partition(".")[0])}
    return sorted(
        (word for word in words if len(word) >= _SHORTEST_NAME and word != "localhost"), key=len, reverse=True
    )


def _list_users() -> List[str]:
    names = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")}
    try:
        names.add(getpass.getuser())
    except (KeyError, OSError, ImportError):  # a user without a name, as in containers
        pass
    return sorted(
        (name for name in names if len(name) >= _SHORTEST_NAME and name not in _PLAIN_USERS), key=len, reverse=True
    )
