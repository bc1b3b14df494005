"""From a model and its first arguments to an executable."""
