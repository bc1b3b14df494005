"""The command `porting-check`: `porting check` of sources, from the standard library alone."""
