"""GPU events find their operations: what they name, what they launch together, and what nobody launched."""

import os
from pathlib import Path

import pytest

from roofline.hlo.price.collectives import Network
from roofline.hlo.price.pricing import Pricer
from roofline.hlo.read.proto import parse_proto
from roofline.sources.xspace import reading
from roofline.sources.xspace.commands import launching_places
from roofline.sources.xspace.modules import Program
from xspace_profiles import (
    MICROSECOND,
    Instruction,
    gpu,
    hlo,
    host,
    kernel,
    programs,
    recorded,
)
from xspace_writer import Event

X = Instruction("x", "parameter")
ADD = Instruction("add.1", "add", ("x", "x"), op_name="jit(f)/layer0/add")
TWICE = hlo("jit_f", {"main": [X, ADD, Instruction("add.2", "add", ("add.1", "x"))]})
US = MICROSECOND


@pytest.mark.parametrize("asked", [True, False])
def test_a_program_read_ahead_is_spoken_of_only_if_events_ask_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool) -> None:
    events = [kernel("k", 0, US, hlo_op="add.1", program_id=7), *([kernel("k", 2 * US, US, hlo_op="sub.1", program_id=8)] if asked else [])]
    embedded = programs({7: TWICE, 8: hlo("jit_g", {"main": [X, ADD]})[:-20]}, {8: "jit_g"})
    executed = host([Event("GpuExecutable::ExecuteThunks", n * US, US, {"module_name": name}) for n, name in enumerate(("jit_g", "jit_f"))])
    plain = recorded(tmp_path, gpu(events), embedded, executed)
    monkeypatch.setattr(reading, "THREAD_BYTES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    assert recorded(tmp_path, gpu(events), embedded, executed) == plain
    assert any("jit_g(8)" in note for note in plain.notes) == asked


def test_a_program_is_priced_ahead_to_the_bottom_of_its_loops(tmp_path: Path) -> None:
    body = [Instruction("p", "parameter"), Instruction("add.9", "add", ("p", "p"))]
    condition = [Instruction("q", "parameter"), Instruction("less", "compare", ("q", "q"), dtype="pred")]
    main = [X, Instruction("while.1", "while", ("x",), ("body", "condition"))]
    module = parse_proto(hlo("jit_f", {"body": body, "condition": condition, "main": main}))
    program = Program(7, module, "gpu", Pricer(module, "gpu", Network.of(None, "gpu")), "7")
    # The loop, then what it calls; parameters launch nothing.
    assert {program.instruction(place).name for place in launching_places(program)} == {"while.1", "add.9", "less"}
