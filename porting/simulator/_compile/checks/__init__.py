"""What a device would refuse in a graph that was captured."""
