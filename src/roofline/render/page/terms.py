"""The words of the page: each term with its meaning, for tooltips and for the glossary that is one click away."""

from ...quantities import OF_OPS, OP, REPORT

UNNEEDED = {  # classes of work that the model did not need, of `OpInfo.unneeded`
    "recomputed": "computed a second time in the backward pass (rematerialisation)",
    "padded": "arithmetic on padding of matmuls and tiles",
    "masked": "the half of causal attention that is masked out",
    "duplicated": "the same value computed twice",
    "dense": "one-hot matmuls, or experts that every token goes through",
    "unused": "results of which only a part is used",
    "layout": "copies and transposes that only change the layout",
    "copied": "whole buffers copied for an update of a part, and slices copied for a matmul",
    "wide": "arithmetic in a wider number format than its inputs have",
}
_THINGS = {  # besides quantities
    "Busy": "time in which at least one op ran on the device",
    "Ceiling": "the peak rate of one resource of the chip, with its source",
    "Counters": "hardware counters of an op (Nsight Compute), beside the amounts that the model gives",
    "Device-seconds": "time summed over devices",
    "Finding": "a diagnosis: the ops that it is about, what it could save, and what to try",
    "Communication": "time on links between chips or to the host that no computation covers",
    "Known cost": "share of busy time of ops whose FLOP and bytes are known",
    "Launch latency": "time that starting a kernel takes; smaller ops are bound by it",
    "Memory level": "a memory of the chip, such as HBM, L2 or VMEM, whose bytes the x axis counts",
    "Per-op roofline": "the ops' minimum times over the measured time, where ops that overlap share the time in which they ran",
    "Roof": "the attainable FLOP/s at each arithmetic intensity: slanted where a memory limits it, flat at the peak of a unit",
    "Step": "one annotated training or inference step, else one run of the longest program, from its first device work to that of the next",
    "Straggler": "a device or host that is slower than the others, which wait for it",
    "Unneeded work": "work that the model did not need: " + "; ".join(f"{word}: {meaning}" for word, meaning in UNNEEDED.items()),
}
_OF_REPORT = {"MFU": "mfu", "HFU": "hfu", "Idle": "idle", "Peak memory": "peak memory"}
TERMS = tuple(  # (word on the page, meaning), in alphabetical order
    sorted(
        {
            **{quantity.title[:1].upper() + quantity.title[1:]: quantity.meaning for quantity in OF_OPS if quantity.on_page},
            **{word: REPORT[name].meaning for word, name in _OF_REPORT.items()},
            "Arithmetic intensity": OP["intensity"].meaning,
            **_THINGS,
        }.items(),
        key=lambda term: term[0].lower(),
    )
)
