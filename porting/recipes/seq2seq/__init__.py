"""Translation with LSTMs: sentences of many lengths as batches of few, one compiled program for each length."""
