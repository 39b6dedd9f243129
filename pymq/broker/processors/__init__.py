"""Requests served by Python, one module per subject; each has a class with `register(server)`."""
