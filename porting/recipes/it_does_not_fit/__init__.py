"""Plan a transformer that does not fit: the ladder of options, the stages, and the speed to expect."""
