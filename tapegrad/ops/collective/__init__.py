"""Collectives: operations in which several processes take part."""
