"""The faults of meaning, ten for each of A13 to A19 and A21 to A23."""

from __future__ import annotations

from tests.spark_jobs.faults import client_faults, waiting_faults

FAULTS = (*waiting_faults.FAULTS, *client_faults.FAULTS)
