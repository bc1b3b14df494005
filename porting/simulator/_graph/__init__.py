"""Show the compiled graph as the vendor's tools do: names, anchored tensors, and files."""
