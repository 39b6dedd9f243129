"""The Python face of the native store: settings, retention, consumer offsets, statistics.

`message_store.MessageStore` is the door; `pymq.embedded` builds the pleasant API on it.
"""
