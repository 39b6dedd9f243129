"""The error tree: one class per status of the core, and texts that name the thing and the way out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pymq
from pymq import errors
from pymq.errors import STATUS_ERRORS, PymqError, StoreError, error_table

BASE_HEADER = Path(__file__).resolve().parents[2] / "csrc/include/pymq/base.h"


def test_every_status_of_the_core_has_exactly_one_class():
    """Goal: no status without a name in Python. Method: the enum in base.h against the table."""
    statuses = set(re.findall(r"^\s+(PYMQ_E[A-Z]+) = -\d+,", BASE_HEADER.read_text(), re.MULTILINE))
    assert len(statuses) > 15
    assert set(STATUS_ERRORS) == statuses


def test_two_classes_for_one_status_are_refused():
    """Goal: the table is closed. Method: a tree with a double."""

    class Root(StoreError):
        """A tree of its own."""

    class First(Root):
        """One."""

        status_name = "PYMQ_EX"

    class Second(First):
        """Two."""

        status_name = "PYMQ_EX"

    with pytest.raises(TypeError, match="both claim PYMQ_EX"):
        error_table(Root)
    assert Second.status_name == First.status_name


def test_every_error_is_a_pymq_error_with_a_docstring():
    """Goal: one root to catch, one sentence to read. Method: every class of the module."""
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert len(classes) > 20
    for kind in classes:
        assert issubclass(kind, PymqError), kind
        assert kind.__doc__, kind


def test_errors_carry_status_and_details():
    """Goal: programs can react. Method: a class with details and one whose status comes from outside."""
    error = errors.PoolExhaustedError("text", pool_size=5, waited_ms=200)
    assert (error.status, error.pool_size, error.waited_ms, str(error)) == ("PYMQ_EPOOL", 5, 200, "text")
    assert StoreError("text", status="PYMQ_ENEW", errno=28).status == "PYMQ_ENEW"
    assert errors.StoreIOError("text", errno=5).errno == 5


def test_every_error_can_be_imported_from_the_package():
    """Goal: `except pymq.StoreLockedError`. Method: each class of the module, by its name in the package."""
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, errors.PymqError):
            assert getattr(pymq, name) is value
            assert name in pymq.__all__
