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
    "source": set(
        """
        _find _find_annealed_attributes _find_annealed_globals _find_asked _find_attributes _find_configured
        _find_counted _find_device_lines _find_fetches _find_nodes _find_of_layers _find_undetached _list_additions
        _list_asked _list_attributes_read _list_beside _list_buffers _list_calls_without_gradients _list_choices
        _list_computed _list_configured _list_counters _list_declared _list_entries _list_global _list_library_bases
        _list_matching _list_mentioned _list_names _list_own _list_parameters _list_reads _list_searched _list_set
        _list_settings _list_slices _list_splits _list_stepped _list_trained _list_updates find_accumulation
        find_annealed_values find_autocast find_backward find_bare_calls find_carried_states find_changed_inputs
        find_changed_weights find_clipping find_comparison_slips find_configured_settings find_cuda_devices
        find_cuda_only find_custom_functions find_data_dependent_shapes find_data_from_models find_early_exits
        find_fed_ports find_foreign_tensors find_frozen_values find_gpu_processes find_gpu_wrappers
        find_gradients_in_forward find_gradients_in_loop find_gradients_of_gradients find_gradients_read
        find_hidden_parts find_homeless_tensors find_host_loaders find_host_reads find_kept_graphs find_kinds
        find_lengths_in_schedules find_lonely_options find_loop_over_batches find_loss_outside_forward
        find_loss_scaling find_missing_warm_up find_modules find_moved_ports find_moves_to_host find_optimizer_steps
        find_pickled_models find_process_samplers find_ragged_batches find_rates_set_by_hand find_reassigned_state
        find_refused_arguments find_result_kinds find_returned_labels find_settings_of_trainers
        find_several_optimizers find_shared_files find_short_slices find_silent_schedules find_slow_augmentation
        find_swallowed_imports find_switched_synchronisation find_synchronisation find_unapplied_precision
        find_unbound_names find_unbound_uses find_unguarded_imports find_unknown_settings
        find_unsupported_optimizers find_unsupported_settings find_unsupported_tensors find_updates
        find_updates_by_hand find_validation find_validation_of_ports find_values_read find_withheld_optimizers
        find_words find_zero_grad list_around list_attributes_of_training list_averaged list_changed list_imports
        list_lines list_modules list_words
        """.split()
    ),
    "torch_insides": set(
        """
        _find_bindings
        """.split()
    ),
    "verify": set(
        """
        _find_losses _is_constant _list_alone _list_blocks _list_contradictions _list_examples _list_facts
        _list_lines _list_misuses _list_momentum _list_notes _list_one_sided _list_ratios _list_reasons
        _list_settings _list_shapes _list_short _list_words _list_wrong_counts _list_wrong_curves _make_and_compare
        _make_runs find_factors is_steady list_causes list_changed list_missing list_notes list_rows
        list_setting_differences list_used
        """.split()
    ),
}
