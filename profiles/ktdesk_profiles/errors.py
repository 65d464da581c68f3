"""Every error that reading a profile raises on purpose.

ProfileError    a profile has an unknown, missing or wrong key
"""

from __future__ import annotations


class ProfileError(Exception):
    """A profile is not as it must be. One line: file, key, what was expected."""
