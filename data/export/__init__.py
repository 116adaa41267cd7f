"""Tuned programs in forms that need no tensortune: a script, a C library, a database."""

from .database import write_database
from .library import ExportError, write_library
from .script import write_script

__all__ = ["ExportError", "write_database", "write_library", "write_script"]
