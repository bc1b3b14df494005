"""Changes without which a program may be wrong or end its process: a torch that lacks their parts compiles nothing."""
