"""Tests: of the core, of Spark, of Kafka, of the command line, of setup."""

import pytest

# A failed assertion of a helper shows its values too.
pytest.register_assert_rewrite("tests.core", "tests.kafka", "tests.spark")
