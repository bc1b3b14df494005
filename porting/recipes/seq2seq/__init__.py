"""Port translation with LSTMs: sentences of many lengths become batches of few, each with its own program."""
