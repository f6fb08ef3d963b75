"""Texts, their batches, and what embeddings are worth: a task a file."""
