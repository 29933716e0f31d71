# SPDX-License-Identifier: Apache-2.0
"""Doors for code that calls another library today: same names, same arguments."""
