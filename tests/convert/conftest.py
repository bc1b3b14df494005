"""Programs of proofs are forks of a process that has loaded what they need; the miniature project is not imported."""

from tests.verify.conftest import _server, fork_programs

__all__ = ["_server", "fork_programs"]

collect_ignore_glob = ["miniature/*"]
