"""Programs of proofs are forks of a process that has loaded what they need."""

from tests.verify.conftest import _server, fork_programs

__all__ = ["_server", "fork_programs"]
