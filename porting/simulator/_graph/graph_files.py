"""The compiled graph for people and for files: its record, its export, and its lines in the log.

The record is JSON and does not depend on where the source lies or in which order memory was allocated, so that equal
graphs have equal records in every process.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from typing import Any, Dict, Mapping

from ...capture import StepGraph
from ...capture.graph_identity import identify_graph
from ...support.atomic_files import write_atomically
from .._logging import cpp_log, cpp_log_enabled

__all__ = ["GRAPH_FORMAT", "export_graph", "hash_record", "make_graph_record", "trace_graph"]

# raised with each change of what the record holds: executables of another format are refused, not misread
GRAPH_FORMAT = 3

_PROTO_FILE = "POPTORCH_EXPORT_PROTO_FILE"
_MAX_LINES = "POPTORCH_MAX_GRAPH_LEN"
_DEFAULT_MAX_LINES = 10
_AS_COMPRESSED = "POPTORCH_EXPORT_PROTO_AS_BINARY"


def make_graph_record(graph: StepGraph) -> Dict[str, Any]:
    """Return `graph` as JSON: what enters it, its operators, what leaves it, and the hashes of its constants."""
    identity = identify_graph(graph)
    return {"format": GRAPH_FORMAT, **identity.tensors, **identity.graph, "constants": identity.constants}


def hash_record(record: Mapping[str, Any], *, settings: Any = None) -> str:
    """Return the hash of a graph's record and of the settings that it runs with.

    >>> hash_record({"a": 1}) == hash_record({"a": 1}), hash_record({"a": 1}) == hash_record({"a": 2})
    (True, False)
    """
    return hashlib.sha256(json.dumps([record, settings], sort_keys=True, default=str).encode()).hexdigest()


def export_graph(graph: StepGraph) -> None:
    """Write `graph` to the file that ``POPTORCH_EXPORT_PROTO_FILE`` names; nothing happens without it.

    It is text with a line for each operator, or with ``POPTORCH_EXPORT_PROTO_AS_BINARY`` the compressed record.
    """
    name = os.environ.get(_PROTO_FILE)
    if not name:
        return
    if _AS_COMPRESSED in os.environ:
        content = zlib.compress(json.dumps(make_graph_record(graph)).encode())
    else:
        content = f"# {graph.mode} graph of the simulator, format {GRAPH_FORMAT}\n{graph}\n".encode()
    write_atomically(name, content)


def trace_graph(graph: StepGraph) -> None:
    """Log the last lines of `graph` at trace level: ``POPTORCH_MAX_GRAPH_LEN`` says how many, all if not positive."""
    # asked first: the text of a large graph is costly
    if not cpp_log_enabled("trace"):
        return
    text = os.environ.get(_MAX_LINES, "")
    most = int(text) if text.lstrip("-").isdigit() else _DEFAULT_MAX_LINES
    lines = str(graph).splitlines()
    for line in lines[-most:] if most > 0 else lines:
        cpp_log("trace", line)
