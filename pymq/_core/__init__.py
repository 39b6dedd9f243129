"""The Cython bindings of the stateful native objects. Use `pymq` or `pymq.store`; this package is their ground."""
