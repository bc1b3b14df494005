"""Train digits with accelerate, Ignite, Lightning and transformers, and get equal losses with each library."""
