"""Names of functions that the grammar of names forbids; a test allows them until they are renamed."""

from __future__ import annotations

from typing import Dict, Set

# by package; to be made shorter, never longer
TO_BE_RENAMED: Dict[str, Set[str]] = {
    "capture": set(
        """
        _find_places _find_positions _list_callers _list_written _make_ready _print_tensor find_frozen_values
        find_remedies find_written_nodes
        """.split()
    ),
    "executables": set(
        """
        _find_other_changes _list_arguments _list_lines _list_new _list_references _list_sizes _list_sources
        _list_trusted_owners _make_by_name list_compiler_settings list_versions make_folder
        """.split()
    ),
}
