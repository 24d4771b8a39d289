"""Tests of ramet-store. What they share is in stores.py: a module of its own, because each folder of tests has a conftest."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from stores import Store  # noqa: E402


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")
