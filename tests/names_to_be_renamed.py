"""Names of functions that the grammar of names forbids; a test allows them until they are renamed."""

from __future__ import annotations

from typing import Dict, Set

# by package; to be made shorter, never longer
TO_BE_RENAMED: Dict[str, Set[str]] = {
    "adapters": set(
        """
        _find_even_cuts _find_ignore_indices _find_kinds _find_links _find_sources _find_stacked_lstm_sources
        _find_stateful_losses _find_uses _list_gaps _list_modules _list_named _list_orders _list_parameters
        _list_parts _make_variable _warn_of_padding find_changes find_foreign_hooks find_host_streams find_slots
        find_streams list_tensors
        """.split()
    ),
    "api": set(
        """
        _find_changes _list_changes _list_changes_of _list_kinds _list_names_of_torch _list_sharing list_cache_files
        list_changes list_frozen_findings
        """.split()
    ),
    "capture": set(
        """
        _find_places _find_positions _list_callers _list_written _make_ready _print_tensor find_frozen_values
        find_remedies find_written_nodes
        """.split()
    ),
    "diagnostics": set(
        """
        list_names
        """.split()
    ),
    "executables": set(
        """
        _find_other_changes _list_arguments _list_lines _list_new _list_references _list_sizes _list_sources
        _list_trusted_owners _make_by_name list_compiler_settings list_versions make_folder
        """.split()
    ),
    "machines": set(
        """
        list_chips list_machines
        """.split()
    ),
    "options": set(
        """
        _find_contradictions _list_names
        """.split()
    ),
    "remedies": set(
        """
        _find_singular _find_taps _list_code_modules find_substitutes
        """.split()
    ),
    "torch_insides": set(
        """
        _find_bindings
        """.split()
    ),
}
