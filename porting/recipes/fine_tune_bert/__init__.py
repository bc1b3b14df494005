"""A Hugging Face BERT learns to tell praise from blame: frozen layers, its own loss, warm-up, half precision."""
