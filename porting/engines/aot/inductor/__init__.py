"""Changes to torch's compiler while it compiles a program: all in `required`, and each in `optional` by itself."""
