"""The categories that can be compared. One more is a class with the methods of `Category` and a line here."""

from parity.categories.base import Category
from parity.categories.memory import MemoryCategory
from parity.categories.multi_turn import MultiTurnCategory

_KNOWN: tuple[Category, ...] = (
    *(MemoryCategory(backend) for backend in ("kv", "vector", "rec_sum")),
    *(MultiTurnCategory(variant) for variant in ("base", "miss_func", "miss_param", "long_context")),
)

CATEGORIES: dict[str, Category] = {category.name: category for category in _KNOWN}

GROUPS: dict[str, tuple[str, ...]] = {
    group: tuple(name for name in CATEGORIES if name.startswith(f"{group}_")) for group in ("memory", "multi_turn")
}
"""Names that stand for several categories."""

__all__ = ["CATEGORIES", "GROUPS", "Category"]
