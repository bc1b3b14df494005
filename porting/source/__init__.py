"""Users' programs as source: read without being run, what happens in them as facts, and rules that judge the facts."""
