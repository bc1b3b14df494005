"""Recurrent layers by compiled loops over time, in a step that is otherwise replayed."""
