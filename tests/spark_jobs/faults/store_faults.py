"""The faults of the audits over the store's files: A1 to A12, A20 and A24, ten each."""

from __future__ import annotations

from tests.spark_jobs.faults import Fault, index_faults, log_faults, queue_faults, state_faults, twin_faults

FAULTS: tuple[Fault, ...] = (
    *log_faults.FAULTS,
    *queue_faults.FAULTS,
    *index_faults.FAULTS,
    *state_faults.FAULTS,
    *twin_faults.FAULTS,
)
