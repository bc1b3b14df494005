"""Manage the user's weights while an executor owns them: wrapping, transfer, values per replica."""
