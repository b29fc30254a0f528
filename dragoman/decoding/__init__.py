"""Decoding: search, sampling and scoring over any model, and the translator from text to text."""
