"""How many files this process may have open: every connection is one."""

from __future__ import annotations

import logging
import resource


def raise_file_limit(log: logging.Logger) -> tuple[int, int]:
    """Raise the number of files this process may open to what it is allowed; the limits then in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard or (hard == resource.RLIM_INFINITY and soft != hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            log.info("open files limit raised from=%d to=%d", soft, hard)
        except (ValueError, OSError) as error:
            log.warning("open files limit stays soft=%d hard=%d error=%s", soft, hard, error)
    return resource.getrlimit(resource.RLIMIT_NOFILE)
