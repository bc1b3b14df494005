"""From a model and its first arguments to an executable, and the vendor's functions that make executors."""
