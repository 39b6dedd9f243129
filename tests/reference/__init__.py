"""A plain-Python reading of the store's formats: the oracle of the native codecs.

Written for the reader, not for speed: `struct`, slices and dictionaries, nothing shared with the C core. Where the two
disagree, Apache RocketMQ's own files under tests/data decide which one is wrong.
"""
