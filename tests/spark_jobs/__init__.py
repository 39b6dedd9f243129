"""Tests of the Spark jobs: readers are called directly wherever that shows as much; one session serves the rest."""
