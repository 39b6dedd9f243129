"""Tests of the audits, one file each."""
