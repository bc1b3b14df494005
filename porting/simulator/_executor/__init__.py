"""Make executors, and answer for the attributes that are read from one."""
