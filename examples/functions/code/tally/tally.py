"""Sums of money in cents."""


def total(items):
    return sum(round(float(item["price"]) * 100) * int(item.get("count", 1)) for item in items)
