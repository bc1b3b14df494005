"""Fine-tune a Hugging Face BERT to tell praise from blame: frozen layers, its own loss, warm-up, half precision."""
