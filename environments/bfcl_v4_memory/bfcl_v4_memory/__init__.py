"""BFCL V4 memory: scripted sessions write a memory, questions read it, the official checker grades the answers."""

from bfcl_v4_memory.env import MemoryEnv
from bfcl_v4_memory.harness import MemoryHarness
from bfcl_v4_memory.taskset import MemoryTaskset

__all__ = ["MemoryEnv", "MemoryHarness", "MemoryTaskset"]
