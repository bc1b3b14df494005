"""Port skip-gram word vectors: a small step on many samples, where the round trip to the device costs the most."""
