"""The corpus is read, not imported."""

collect_ignore_glob = ["programs/*"]
