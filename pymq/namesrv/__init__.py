"""The name server: who serves which topic, told to clients that ask."""
