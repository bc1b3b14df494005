"""The `porting` command, one file a verb."""
