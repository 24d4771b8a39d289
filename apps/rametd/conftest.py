"""Tests of a whole daemon that need no machine. Need the release build and root, or namespaces of users."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
