"""The JSON Schema of the report, generated from its types: the content of `report.schema.json` in the package."""

from typing import Any

import msgspec

from ..blocks.results import Blocks
from ..plan.plans import Plans
from ..plan.serving_plans import ServingPlans
from ..report import SCHEMA, Report, WrittenOp

# The keys that other programs can rely on; other keys may be added.
CONTRACT = {
    "Report": "schema input machine coverage points ops by_step by_device findings",
    "InputInfo": "format files hosts devices notes",
    "Device": "id name host",
    "MachineInfo": "name ceilings",
    "CeilingInfo": "resource rate per provenance citation others",
    "Coverage": "wall_s busy_s attributed_s priced_s",
    "Point": (
        "scope step infeed_outfeed time_s busy_s work flops bytes intensity bound floor_s serial_s efficiency op_efficiency utilization"
    ),
    "OpInfo": (
        "id rank name category module scope location count kernels time_s self_time_s work flops unit dtype bytes intensity floor_s "
        "serial_s bound efficiency utilization provenance counters"
    ),
    "StepShare": "op step count time_s",
    "DeviceShare": "op device count time_s",
    "Finding": "kind ops message saving_s",
}


def report_schema() -> dict[str, Any]:
    """The schema of `roofline.report/1`: every field with its type, the contract's keys required, additions allowed."""
    (whole, _), parts = msgspec.json.schema_components([Report, WrittenOp], ref_template="#/$defs/{name}")
    parts["OpInfo"] = parts.pop("WrittenOp")  # as which ops are written
    for name, keys in CONTRACT.items():
        part = parts[name]
        missing = set(keys.split()) - set(part["properties"])
        if missing:
            raise AssertionError(f"the contract promises {name}.{', '.join(sorted(missing))}, which the report no longer has")
        part["required"] = keys.split()
    for part in parts.values():
        for field in part.get("properties", {}).values():
            field.pop("default", None)
            _join_numbers(field)
            if "anyOf" in field:
                field["anyOf"].sort(key=lambda kind: kind == {"type": "null"})  # the same order with every version of msgspec
    parts["Report"]["properties"]["schema"] = {"const": SCHEMA}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": SCHEMA,
        "description": "A program on a machine. Amounts are totals over all executions, in base units; unknown is null.",
        **whole,
        "$defs": dict(sorted(parts.items())),
    }


def plan_schema() -> dict[str, Any]:
    """The schema of `roofline.plan/1`: plans of training, or of serving, with every key that is always there."""
    return _schema_of("roofline.plan/1", "Plans of a model on chips, the best first. Seconds, bytes and FLOP.", Plans, ServingPlans)


def blocks_schema() -> dict[str, Any]:
    """The schema of `roofline.blocks/1`: configurations of a kernel, with every key that is always there."""
    return _schema_of("roofline.blocks/1", "Configurations of a kernel on a chip, the best first. Seconds, bytes and FLOP.", Blocks)


def _schema_of(title: str, description: str, *kinds: type) -> dict[str, Any]:
    wholes, parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for part in parts.values():
        part["required"] = list(part["properties"])
        for field in part["properties"].values():
            field.pop("default", None)
            _join_numbers(field)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "description": description,
        "anyOf": list(wholes),
        "$defs": dict(sorted(parts.items())),
    }


def _join_numbers(node: Any) -> None:
    """Replace ``integer or number`` by ``number``, which is equivalent."""
    for one in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        _join_numbers(one)
    if isinstance(node, dict) and isinstance(kinds := node.get("anyOf"), list) and {"type": "number"} in kinds:
        kept = [kind for kind in kinds if kind != {"type": "integer"}]
        if len(kept) > 1:
            node["anyOf"] = kept
        else:
            del node["anyOf"]
            node.update(kept[0])
