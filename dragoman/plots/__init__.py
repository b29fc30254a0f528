"""Pictures of models and of what they learned."""
