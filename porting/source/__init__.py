"""Users' programs as source: read without being run, what happens in them as facts, and rules that judge the facts."""

from __future__ import annotations

from porting.source.facts import Facts, Kind
from porting.source.project import Project, read_programs
from porting.source.walk import collect_facts

__all__ = ["Facts", "Kind", "Project", "collect_facts", "read_programs"]
