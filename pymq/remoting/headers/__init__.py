"""The header fields of each operation, typed, one definition each; `base` says what a header is.

from pymq.remoting.headers.pull import PullMessageRequestHeader

header = PullMessageRequestHeader.from_fields(request.command.fields)
Command(RequestCode.PULL_MESSAGE, header.to_fields())
"""
