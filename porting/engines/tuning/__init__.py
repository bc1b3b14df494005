"""Which way to run a step is the fastest one, found by measuring those that agree with replay."""
