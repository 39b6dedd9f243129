"""What the cffi module offers: the C names declared in _build.py, as attributes of `lib`."""

from typing import Any

ffi: Any
lib: Any
