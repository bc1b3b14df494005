"""Train digits with four libraries, accelerate, Ignite, Lightning and transformers, and get equal losses with each."""
