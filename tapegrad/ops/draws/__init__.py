"""Random draws from parametrized distributions, and their gradients; loaded at first use."""
