"""Functions for layers: activations, normalization, attention, embeddings, recurrence."""
