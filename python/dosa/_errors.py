# SPDX-License-Identifier: Apache-2.0
"""The exceptions of the package. Arguments are refused before any work."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dosa._reports import DeviceVerification, Verification


class Error(Exception):
    """Base of all exceptions that this package raises of its own."""


class ArgumentError(Error, ValueError):
    """A shape, stride, device, value or option that is not allowed: name, found, expected."""

    @classmethod
    def of(cls, name: str, found: str, expected: str) -> ArgumentError:
        """Make the error whose line is "<name>: found <found>, expected <expected>"."""
        return cls(f"{name}: found {found}, expected {expected}")


class ArgumentTypeError(Error, TypeError):
    """An argument of a wrong type or dtype: name, found, expected."""

    @classmethod
    def of(cls, name: str, found: str, expected: str) -> ArgumentTypeError:
        """Make the error whose line is "<name>: found <found>, expected <expected>"."""
        return cls(f"{name}: found {found}, expected {expected}")


class FileError(Error, ValueError):
    """A file that is not what it claims to be, or that cannot be written."""


class UnsupportedError(Error, RuntimeError):
    """A valid request that this build or machine cannot serve."""


class InternalError(Error, RuntimeError):
    """A failure that should not happen."""


class CertificateError(Error):
    """A bound was violated or an answer differs from every key scored: a bug, please report it.

    Attributes
    ----------
    verification : Verification, DeviceVerification or None
        The whole report, with the witness; None where another call than `verify` found it.
    """

    verification: Verification | DeviceVerification | None = None
