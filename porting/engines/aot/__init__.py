"""The engine `aot`: programs as shared libraries, compiled in another process."""
