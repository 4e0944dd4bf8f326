"""What layers are made of: activations, normalization, attention, embeddings, recurrence."""
