"""This package reads users' programs without running them, and judges what happens in them.

`porting check` uses it: files become facts, and rules go through these.
"""

from __future__ import annotations

from porting.source.facts import Facts, Kind
from porting.source.project import Project, read_programs
from porting.source.walk import collect_facts

__all__ = ["Facts", "Kind", "Project", "collect_facts", "read_programs"]
