"""What can go wrong between two peers, as exceptions that name the address or the code.

PymqError
  CodecError                    bytes that are no frame, or a header nobody can read
  RemotingError                 a peer's refusal, or a handler's: a response code and its remark
  RemotingCallError             a call that got no answer; `address` says from whom
    RemotingConnectError        no connection could be made, or the one there was is gone
    RemotingSendRequestError    the request could not be written, or its connection went before the answer came
    RemotingTimeoutError        written, but not answered in time
    RemotingTooMuchRequestError nothing was sent: no time or no permit was left
"""

from __future__ import annotations

from pymq.errors import PymqError
from pymq.remoting.codes import ResponseCode, response_name


class CodecError(PymqError, ValueError):
    """Bytes that are not a frame or not a header; the connection they came from cannot be trusted any more."""


class RemotingError(PymqError):
    """A refusal with a code. Raised by a handler it becomes the answer; raised by a client it was one.

    Attributes:
        code: the response code.
        remark: the words that go with it.
    """

    def __init__(self, code: int = ResponseCode.SYSTEM_ERROR, remark: str = "") -> None:
        super().__init__(f"{response_name(code)} ({int(code)}): {remark}")
        self.code = int(code)
        self.remark = remark


class RemotingCallError(PymqError):
    """A call that got no answer.

    Attributes:
        address: whom the call was for, as "host:port".
    """

    def __init__(self, address: str, text: str) -> None:
        super().__init__(text)
        self.address = address


class RemotingConnectError(RemotingCallError, ConnectionError):
    """There is no connection to the address and none could be made in time."""

    def __init__(self, address: str, reason: str = "") -> None:
        super().__init__(address, f"connect to {address} failed" + (f": {reason}" if reason else ""))


class RemotingSendRequestError(RemotingCallError, ConnectionError):
    """The request was not written, or its connection was lost before the answer came. It may have been served."""

    def __init__(self, address: str, reason: str = "") -> None:
        super().__init__(address, f"send request to {address} failed" + (f": {reason}" if reason else ""))


class RemotingTimeoutError(RemotingCallError, TimeoutError):
    """No answer in time. The request may have been served all the same."""

    def __init__(self, address: str, timeout_s: float, reason: str = "") -> None:
        text = f"wait response on the channel {address} timeout, {round(timeout_s * 1000)} ms"
        super().__init__(address, text + (f": {reason}" if reason else ""))
        self.timeout_s = timeout_s


class RemotingTooMuchRequestError(RemotingCallError):
    """Nothing was sent: the caller's time was over before it could be."""

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(address, f"request to {address} not sent: {reason}")
