"""Evaluation: metrics with their signatures, and the report kept in a model's card."""
