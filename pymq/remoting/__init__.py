"""RocketMQ's remoting protocol: commands, their two codecs, server, client, TLS.

Bytes and sockets are csrc/wire and csrc/remoting; this package is the control loop's side of them and the codec that
reads what the fast one does not.
"""
