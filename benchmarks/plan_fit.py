"""Fit the sustained load of training plans on published runs, leaving models out by thirds, and print the errors of models left out.

    python benchmarks/plan_fit.py FOLDER [--write | --chips]

FOLDER has clean_gpu.csv and clean_tpu.csv, tables of published training steps of others, which are no part of this project. A row counts
if it is complete (kind "full") and of the newest software. Every figure printed is of models that the fit had not seen; `--write` then fits
all rows and writes the calibration.
"""

import argparse
import csv
import itertools
import math
import statistics
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

from roofline.plan.catalogue import load_model
from roofline.plan.chips import chips_of
from roofline.plan.mesh import Mesh
from roofline.plan.plans import mesh_kind
from roofline.plan.run import Run
from roofline.plan.step import step_of
from roofline.plan.times import FILE, Times, training_calibration
from roofline.plan.words import FORMATS, OTHER_GRAPHS, OTHER_STACKS, STACKS, recompute_of

CLOCKS = (
    "a100-sxm4-40",
    "a100-sxm4-80",
    "h100-sxm",
    "h200-sxm",
    "b200",
    "b300",
    "gb200",
    "gb300",
    "tpu-v4",
    "tpu-v5e",
    "tpu-v5p",
    "tpu-v6e",
    "tpu-v7x",
)

PRIOR = training_calibration().prior | {f"clock.{name}": 1.0 for name in CLOCKS} | {"clock.h100-sxm-500w": 0.85}
START = training_calibration().assumed | PRIOR
FREE = list(PRIOR)
WEIGHT, TIED, STEP = 8.0, 0.7, 0.02
SAME = 0.03  # rows this close are in no order
TIGHT = 1.15


class Row:
    """A published step: its model, chips and run."""

    def __init__(self, cells):
        def whole(key):
            return int(float(cells[key] or 0))

        self.cells, self.name, self.step_s = cells, cells["model"].lower(), float(cells["step_s"])
        self.model = load_model(self.name)
        slices = max(1, whole("slices"))
        self.chips = chips_of(cells["chip"], whole("count"), slices=slices)
        tensor, pipeline, context = whole("tp"), whole("pp"), whole("cp")
        data = max(1, self.chips.devices // (tensor * pipeline * context))
        sharded = cells["zero3"] == "True"
        fsdp = (data // slices if self.chips.is_tpu else min(data, whole("fsdp") or data)) if sharded else 1
        microbatch = min(float(cells["mbs"]), float(cells["gbs"]) / data)
        if self.chips.is_tpu and context > 1:
            microbatch = float(cells["gbs"]) / data
        mesh = Mesh(
            tensor=tensor,
            pipeline=pipeline,
            context=context,
            virtual=whole("vp") or 1,
            experts=whole("ep") or 1,
            fsdp=fsdp,
            data=data // fsdp,
        )
        modules, share = cells["modules"], float(cells["recompute"] or 0)
        words = (
            modules
            if modules and modules not in ("full", "custom", "no products", "all but qkv", "selective", "default", "block of 5 layers")
            else str(share)
        )
        self.run = Run(
            mesh=mesh,
            batch=whole("gbs"),
            microbatch=microbatch,
            length=whole("seq"),
            format=FORMATS[cells["dtype"]],
            recompute=recompute_of(words, self.model),
            stack=STACKS[OTHER_STACKS.get(cells["stack"], cells["stack"])],
            graphs=OTHER_GRAPHS.get(cells["graphs"], cells["graphs"]),
            pipelined=True if cells["async_tp"] == "True" else None,
            expert_overlap=cells["ep_overlap"] == "True",
            offload=cells["offload"] == "True",
        )

    def times(self, values):
        return Times(self.chips, self.run.format, self.run.stack.former_attention, values)

    def predicted(self, values):
        return step_of(self.model, self.run, self.times(values))

    @property
    def base(self):
        return self.name.removesuffix("-mtp")

    @property
    def group(self):
        return self.name, self.cells["chip"], self.run.stack.name

    @property
    def mesh_kind(self):
        return mesh_kind(self.run.mesh.as_words(), self.chips.is_tpu).partition(" ")[2]

    @property
    def kind(self):
        return "experts" if self.model.has_experts else "dense"


def read_rows(folder):
    rows = []
    for name in ("clean_gpu.csv", "clean_tpu.csv"):
        for cells in csv.DictReader((Path(folder) / name).read_text().splitlines()):
            if cells["kind"] == "full" and cells["step_s"] and cells["newest"] == "True":
                rows.append(Row(cells))
    return rows


class Used(dict):
    """Values that remember which of them were asked for."""

    def __init__(self, values):
        super().__init__(values)
        self.names = set()

    def __getitem__(self, name):
        self.names.add(name)
        return super().__getitem__(name)

    def get(self, name, default=None):
        self.names.add(name)
        return super().get(name, default)


def is_overlap(name):
    return name.startswith("overlap")


def bounds(name):
    """The least and largest value that a constant may take; one that ends on either is not shipped."""
    if is_overlap(name):
        return 0.01, 0.98
    if name.startswith("clock"):
        return 0.6, 1.25
    if name.startswith(("products", "attention", "experts", "scan")):
        return 0.1, 1.6
    return 0.05 * PRIOR[name], 20 * PRIOR[name]


def width(name):
    """How far the fit may go from the prior: one standard deviation, in logarithms, of an overlap in log-odds."""
    if is_overlap(name):
        return 1.0
    if name.startswith("clock"):
        return 0.1
    return 0.2 if name.startswith(("products", "attention", "experts", "host")) else 0.35


def encode(value, name):
    return math.log(value / (1 - value)) if is_overlap(name) else math.log(value)


def decode(x, name):
    low, high = bounds(name)
    return min(max(1 / (1 + math.exp(-x)) if is_overlap(name) else math.exp(x), low), high)


def fit(rows):
    """Constants by soft least squares of the log errors; each model on each chip with each stack weighs as the root of its rows."""
    groups = Counter(row.group for row in rows)
    used = []
    for row in rows:
        asked = Used(START)
        row.predicted(asked)
        used.append(asked.names & set(START))
    names = sorted(set().union(*used) & set(FREE))
    start = np.array([encode(START[name], name) for name in names])
    widths = np.array([width(name) for name in names])
    weights = np.array([WEIGHT * groups[row.group] ** -0.5 for row in rows])

    def errors(x, only=None):
        values = START | {name: decode(value, name) for name, value in zip(names, x, strict=True)}
        chosen = rows if only is None else [rows[index] for index in only]
        return np.array([math.log(row.predicted(values).time_s / row.step_s) for row in chosen])

    def residuals(x):
        return np.concatenate([weights * errors(x), TIED * (x - start) / widths])

    def slopes(x):
        at = errors(x)
        matrix = np.zeros((len(rows) + len(names), len(names)))
        for column, name in enumerate(names):
            only = [index for index, names_used in enumerate(used) if name in names_used]
            moved = x.copy()
            moved[column] += STEP
            matrix[only, column] = weights[only] * (errors(moved, only) - at[only]) / STEP
            matrix[len(rows) + column, column] = TIED / widths[column]
        return matrix

    found = least_squares(residuals, start, jac=slopes, loss="soft_l1", max_nfev=15, xtol=1e-3)
    return {name: decode(value, name) for name, value in zip(names, found.x, strict=True)}


def thirds(rows):
    """Models in three parts: those of the most rows first, dense and experts apart, dealt in turn."""
    counts = Counter(row.base for row in rows)
    kinds = {row.base: row.kind for row in rows}
    parts = [set(), set(), set()]
    for kind in ("dense", "experts"):
        for index, model in enumerate(sorted((m for m in counts if kinds[m] == kind), key=lambda m: (-counts[m], m))):
            turn = index % 6
            parts[turn if turn < 3 else 5 - turn].add(model)
    return parts


def out_of_fold(rows):
    """Each row's predicted step with constants that were fitted without its third of the models; and the constants."""
    constants = []
    for part in thirds(rows):
        constants.append(fit([row for row in rows if row.base not in part]))
        for row in rows:
            if row.base in part:
                row.found = row.predicted(START | constants[-1])
                row.ratio = row.found.time_s / row.step_s
    return constants


def naive(rows):
    """Errors of one share of the peak per architecture, format and kind, fitted on the other thirds."""

    def peak(row):
        device = row.chips.machine.rate(f"matrix/{row.run.format.compute}")
        return row.run.batch * row.run.length * row.model.flops_per_token(row.run.length) / row.chips.devices / device

    for part in thirds(rows):
        shares = defaultdict(list)
        for row in rows:
            if row.base not in part:
                for key in ((row.chips.architecture, row.run.format.name, row.kind), ()):
                    shares[key].append(peak(row) / row.step_s)
        for row in rows:
            if row.base in part:
                share = statistics.median(shares.get((row.chips.architecture, row.run.format.name, row.kind)) or shares[()])
                row.naive = peak(row) / share / row.step_s


def band(rows, level=0.8):
    """Quantiles of measured over predicted, each model one vote, a little wider for the models that were not seen (conformal)."""
    models = Counter(row.base for row in rows)
    ordered = sorted((1 / row.ratio, 1 / models[row.base]) for row in rows)
    total = sum(weight for _, weight in ordered) * (1 + 1 / max(1, len(models)))
    # the bound that is missing weight lies beyond the last row: half of it on each side
    low = high = None
    passed = (total - len(models)) / 2
    for ratio, weight in ordered:
        passed += weight
        if low is None and passed >= total * (1 - level) / 2:
            low = ratio
        if passed <= total * (1 + level) / 2:
            high = ratio
    return low or ordered[0][0], high or ordered[-1][0]


def anchored(rows):
    """Ratios of a prediction to the measured step, corrected by another step of its model, chip and software; with the model."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.base, row.cells["chip"], row.run.stack.name].append(row)
    pairs = [pair for members in groups.values() for pair in itertools.permutations(members, 2)]
    return [(one.base, other.ratio / one.ratio) for one, other in pairs]


def anchored_band(rows, level=0.8):
    """The middle 80% of such ratios, each model one vote, a little wider for models not seen; mean error, pairs, models, coverage."""

    def within(pairs):
        votes = Counter(model for model, _ in pairs)
        ordered = sorted((ratio, 1 / votes[model]) for model, ratio in pairs)
        passed = np.cumsum([weight for _, weight in ordered]) / len(votes)
        wider = min(level * (1 + 1 / len(votes)), 0.99)
        return tuple(ordered[int(np.searchsorted(passed, edge))][0] for edge in ((1 - wider) / 2, (1 + wider) / 2))

    pairs = anchored(rows)
    models = {model for model, _ in pairs}
    inside = []
    for model in models:
        low, high = within([pair for pair in pairs if pair[0] != model])
        inside += [low <= ratio <= high for name, ratio in pairs if name == model]
    return *within(pairs), statistics.mean(abs(1 / ratio - 1) for _, ratio in pairs), len(pairs), len(models), statistics.mean(inside)


def coverage(rows):
    """The share of rows within the band of the other models of their kind."""
    inside = []
    for model in {row.base for row in rows}:
        low, high = band([row for row in rows if row.base != model])
        inside += [low <= 1 / row.ratio <= high for row in rows if row.base == model]
    return statistics.mean(inside)


def table(rows):
    """Lines of the table of errors: a class, its rows and models, and errors in percent."""
    classes = [
        ("all", lambda row: "all rows"),
        ("kind", lambda row: row.kind),
        ("chip", lambda row: row.cells["chip"]),
        ("format", lambda row: row.run.format.name),
        ("stack", lambda row: row.run.stack.name),
        ("mesh", lambda row: row.mesh_kind),
        ("model", lambda row: row.name),
    ]
    lines = ["| | | rows | mean | median | bias | worst | one MFU |", "|---|---|---|---|---|---|---|---|"]
    for title, key in classes:
        groups = defaultdict(list)
        for row in rows:
            groups[key(row)].append(row)
        for name, members in sorted(groups.items()):
            errors = [row.ratio - 1 for row in members]
            sizes = [abs(error) for error in errors]
            figures = (statistics.mean(sizes), statistics.median(sizes), statistics.mean(errors), max(errors, key=abs))
            shown = f"{figures[0]:.1%} | {figures[1]:.1%} | {figures[2]:+.1%} | {figures[3]:+.0%}"
            rough = statistics.mean(abs(row.naive - 1) for row in members)
            lines.append(f"| {title} | {name} | {len(members)} | {shown} | {rough:.1%} |")
    return lines


def ranking(rows):
    """Regret of the plan that would be chosen, and pairs of meshes in the right order, where several meshes of one model were published."""
    groups = defaultdict(list)
    for row in rows:
        groups[row.base, row.cells["chip"], row.chips.count, row.run.length, row.run.stack.name, row.run.format.name].append(row)
    regrets, right, pairs = [], 0, 0
    for members in groups.values():
        per_mesh = defaultdict(list)
        for row in members:
            per_mesh[row.run.mesh, row.run.microbatch, row.run.recompute.text].append(row)
        best = [min(same, key=lambda row: row.step_s / row.run.batch) for same in per_mesh.values()]
        if len(best) < 2:
            continue
        fastest = min(row.step_s / row.run.batch for row in best)
        chosen = min(best, key=lambda row: row.found.time_s / row.run.batch)
        regrets.append(chosen.step_s / chosen.run.batch / fastest - 1)
        for one, other in itertools.combinations(best, 2):
            measured, found = (
                math.log(a / b)
                for a, b in (
                    (one.step_s / one.run.batch, other.step_s / other.run.batch),
                    (one.found.time_s / one.run.batch, other.found.time_s / other.run.batch),
                )
            )
            if abs(measured) > SAME:
                pairs += 1
                right += measured * found > 0
    return regrets, right, pairs


def report(rows, constants):
    print("\n".join(table(rows)))
    for kind in ("dense", "experts"):
        members = [row for row in rows if row.kind == kind]
        low, high = band(members)
        covers = f"covers {coverage(members):.0%} of rows of models left out"
        print(f"\n80% of measured steps of {kind} models: {low:.2f} to {high:.2f} of the prediction; {covers}")
    low, high, error, count, models, covers = anchored_band(rows)
    print(f"\nwith one measured step of the same model, chip and software ({count} pairs, {models} models): {low:.2f} to {high:.2f} of the")
    print(f"prediction, mean error {error:.1%}; covers {covers:.0%} of pairs of models left out")
    regrets, right, pairs = ranking(rows)
    print(f"\nchoices between meshes: {len(regrets)}, mean regret {statistics.mean(regrets):.1%}, worst {max(regrets):.0%}")
    print(f"pairs of meshes in the right order: {right} of {pairs}")
    tight = [row for row in rows if row.found.memory.total > row.chips.capacity]
    refused = [row for row in tight if row.found.memory.total > TIGHT * row.chips.capacity]
    print(f"memory: {len(refused)} of {len(rows)} runs refused (above {TIGHT} of the capacity), {len(tight) - len(refused)} tight")
    for row in refused:
        print(f"  {row.cells['id']} {row.name} {row.cells['chip']} {row.run.mesh} {row.found.memory.total / row.chips.capacity:.2f}")
    print("\nworst:")
    for row in sorted(rows, key=lambda row: -abs(row.ratio - 1))[:12]:
        run = f"{row.run.mesh} mbs{row.run.microbatch:g} {row.run.format.name}"
        print(f"  {row.cells['id']} {row.name} {row.cells['chip']} {run} {row.ratio - 1:+.0%}")
    print()
    for name in sorted(set().union(*constants)):
        print(f"{name:28s} {START[name]:8.3f}", *(f"{found.get(name, math.nan):8.3f}" for found in constants))


def unseen_chips(rows):
    """Errors on each chip with constants that were fitted without its rows."""
    for chip in sorted({row.cells["chip"] for row in rows}):
        constants = START | fit([row for row in rows if row.cells["chip"] != chip])
        ratios = [row.predicted(constants).time_s / row.step_s - 1 for row in rows if row.cells["chip"] == chip]
        mean = statistics.mean(abs(ratio) for ratio in ratios)
        print(f"unseen {chip:10s} {len(ratios):3d} rows, mean {mean:.1%}, bias {statistics.mean(ratios):+.1%}", flush=True)


def on_bound(constants):
    """The constants that ended on a bound."""
    return [name for name, value in constants.items() if value in bounds(name)]


def written(rows, constants):
    """The calibration file of constants fitted on all rows, with the bands of models left out."""
    lines = FILE.read_text().partition("[fitted]")[0].rstrip().splitlines()
    lines = [f"rows = {len(rows)}" if line.startswith("rows =") else line for line in lines]
    lines += ["", "[fitted]", *(f'"{name}" = {value:.4g}' for name, value in sorted(constants.items()))]
    for kind in ("dense", "experts"):
        members = [row for row in rows if row.kind == kind]
        low, high = band(members)
        error, models = statistics.mean(abs(row.ratio - 1) for row in members), len({row.base for row in members})
        lines += ["", f"[band.{kind}]", f"low = {low:.3f}", f"high = {high:.3f}", f"error = {error:.3f}"]
        lines += [f"rows = {len(members)}", f"models = {models}", f"covers = {coverage(members):.2f}"]
    low, high, error, pairs, models, covers = anchored_band(rows)
    lines += ["", "[band.anchored]", f"low = {low:.3f}", f"high = {high:.3f}", f"error = {error:.3f}"]
    lines += [f"rows = {pairs}", f"models = {models}", f"covers = {covers:.2f}"]
    lines += ["", "[meshes]"]
    for kind in ("dense", "experts"):
        seen = {mesh_kind(row.run.mesh.as_words(), row.chips.is_tpu) for row in rows if row.kind == kind}
        quoted = ", ".join(f'"{name}"' for name in sorted(seen))
        lines.append(f"{kind} = [{quoted}]")
    FILE.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--write", action="store_true", help="fit all rows and write the calibration")
    parser.add_argument("--chips", action="store_true", help="leave out chips instead of models")
    args = parser.parse_args()
    rows = read_rows(args.folder)
    if args.chips:
        unseen_chips(rows)
    else:
        constants = out_of_fold(rows)
        naive(rows)
        report(rows, constants)
    if args.write:
        fitted = fit(rows)
        if stuck := on_bound(fitted):
            raise SystemExit(f"not written: {', '.join(stuck)} ended on a bound")
        written(rows, fitted)


if __name__ == "__main__":
    main()
