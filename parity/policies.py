"""Policies made for parity alone."""

from __future__ import annotations

from bfcl_rollout.scripted import Policy

POLICIES: dict[str, Policy] = {}
