"""Random draws from distributions with parameters, and their gradients; loaded at first use."""
