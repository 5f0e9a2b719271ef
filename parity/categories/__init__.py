"""The categories that can be compared. One more is a class with the methods of `Category` and a line here."""

from parity.categories.base import Category
from parity.categories.memory import MemoryCategory
from parity.categories.multi_turn import MultiTurnCategory

CATEGORIES: dict[str, Category] = {
    category.name: category
    for category in (
        *(MemoryCategory(backend) for backend in ("kv", "vector", "rec_sum")),
        *(MultiTurnCategory(variant) for variant in ("base", "miss_func", "miss_param", "long_context")),
    )
}

__all__ = ["CATEGORIES", "Category"]
