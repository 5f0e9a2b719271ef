"""BFCL V4 memory."""
