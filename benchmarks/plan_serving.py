"""Errors of served models against a table of public end-to-end rows: python benchmarks/plan_serving.py FILE

FILE has a row per served model (model_path, system, mode, isl, osl, batch_size, tp_size, gemm_quant_mode, silicon_tpot_ms), a table of
others that is no part of this project. Rows of one replica in bf16 or fp8 are compared; nothing was fitted to them.
"""

import csv
import statistics
import sys
from pathlib import Path

from roofline.errors import RooflineError
from roofline.plan.catalogue import load_model
from roofline.plan.chips import chips_of
from roofline.plan.serving import GPU_ENGINES, Replica, Server
from roofline.plan.words import FORMATS

NAMES = {"deepseek-r1": "deepseek-v3", "qwen3-235b-a22b-fp8": "qwen3-235b"}
WIDTHS = {"": "bf16", "bfloat16": "bf16", "nvfp4": "nvfp4"}


def main(path):
    errors = {}
    for row in csv.DictReader(Path(path).read_text().splitlines()):
        if row["mode"] != "agg":
            continue
        name = row["model_path"].lower().rpartition("/")[2]
        format = WIDTHS.get(row["gemm_quant_mode"], "fp8")
        try:
            model = load_model(NAMES.get(name, name))
            chips = chips_of(row["system"].replace("_sxm", ""), int(row["tp_size"]))
            replica = Replica(
                tensor=int(row["tp_size"]),
                batch=int(row["batch_size"]),
                prompt=int(row["isl"]),
                answer=int(row["osl"]),
                format=FORMATS[format],
            )
            served = Server(model, chips).serve(replica)
        except RooflineError as error:
            print(f"left out: {name}: {str(error)[:90]}")
            continue
        measured = float(row["silicon_tpot_ms"]) / 1e3
        errors.setdefault(format, []).append(served.tpot_s / measured - 1)
        parts = " ".join(f"{part} {seconds * 1e3:.1f}" for part, seconds in served.parts.items())
        print(
            f"{name:20s} {row['system']:9s} {row['backend']:7s} {format} tp{row['tp_size']} b{row['batch_size']} {row['isl']}/{row['osl']} "
            f"measured {measured * 1e3:.1f} predicted {served.tpot_s * 1e3:.1f} ms {errors[format][-1]:+.0%}; {parts}"
        )
    low, high = GPU_ENGINES.interval
    for format, found in {**errors, "bf16 and fp8": errors.get("bf16", []) + errors.get("fp8", [])}.items():
        within = sum(low <= 1 / (1 + error) <= high for error in found)
        sizes = [abs(error) for error in found]
        figures = f"mean {statistics.mean(sizes):.1%}, median {statistics.median(sizes):.1%}, bias {statistics.mean(found):+.1%}"
        print(f"{format}: {len(found)} rows, {figures}; {within} within the interval")


if __name__ == "__main__":
    main(sys.argv[1])
