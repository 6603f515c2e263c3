import os

import tally


def main(event, context):
    order = event["data"] if isinstance(event["data"], dict) else {}
    cents = tally.total(order.get("items", []))
    return {"total": f"{cents / 100:.2f}", "currency": os.environ["CURRENCY"]}
