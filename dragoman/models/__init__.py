"""Models: pure functions of tensors; no text, no files, no ranks."""
