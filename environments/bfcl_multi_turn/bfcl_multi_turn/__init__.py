"""BFCL V4 multi-turn."""
