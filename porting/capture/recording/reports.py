"""Collect the findings of one capture, tell them at once, or raise them, as the device would have it.

The recorder and what it calls report here.
"""

from __future__ import annotations

from typing import Callable, Collection, List, Optional

from ...diagnostics import CaptureError, Finding, refuse

__all__ = ["Reports"]

# Custom autograd functions and hooks: without them other weights come out of a step.
_LOST_GRADIENTS = frozenset(["C005", "C007"])


class Reports:
    """Where the findings of a capture go; `findings` are those that did not stop it.

    `host_features`, `allowed` and `listener` are those of `capture_step`.
    """

    def __init__(
        self, *, host_features: str, allowed: Collection[str], listener: Optional[Callable[[Finding], None]]
    ) -> None:
        """Begin without findings."""
        self.findings: List[Finding] = []
        self._host_features = host_features
        self._allowed = allowed
        self._listener = listener

    def without_listener(self) -> Reports:
        """Return new reports that treat findings alike, and tell nobody."""
        return Reports(host_features=self._host_features, allowed=self._allowed, listener=None)

    def add(self, finding: Finding) -> None:
        """Keep a finding that is no error, and say it at once to whom it may concern."""
        self.findings.append(finding)
        if self._listener is not None:
            self._listener(finding)

    def add_once(self, finding: Finding) -> None:
        """Keep a finding unless there is one with the same message."""
        # `forward` may come by the same line in every round of a loop
        if all(finding.message != known.message for known in self.findings):
            self.add(finding)

    def refuse(self, error: CaptureError) -> None:
        """Raise `error`, which is about a feature of the host; or only report it where the device passes over those."""
        is_gradient = self._host_features == "computed" and error.code in _LOST_GRADIENTS
        if self._host_features == "refused" or (is_gradient and error.finding.slug not in self._allowed):
            refuse(error)
        else:
            self.add_once(error.finding)

    def keeps_backward_of(self, finding_slug: str) -> bool:
        """Tell whether what the slug names is recorded with a backward of its own."""
        return self._host_features == "computed" and finding_slug not in self._allowed
