"""The categories that can be compared. One more is a class with the methods of `Category` and a line here."""

from parity.categories.base import Category
from parity.categories.memory import MemoryCategory

CATEGORIES: dict[str, Category] = {
    category.name: category for category in (MemoryCategory("kv"), MemoryCategory("vector"), MemoryCategory("rec_sum"))
}

__all__ = ["CATEGORIES", "Category"]
