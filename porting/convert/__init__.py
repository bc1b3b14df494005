"""Turn a plain PyTorch training project into a proven port, and a port back; `porting convert` and `eject` do it.

A conversion is a list of edits of files. It is planned from what the program's objects are, tried on a copy of the
project, and written once the copy was run beside the original.
"""
