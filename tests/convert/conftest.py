"""The miniature project is converted and run, not imported."""

collect_ignore_glob = ["miniature/*"]
