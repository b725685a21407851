"""Files of programs: plain, gzipped, and the folders that a compiler dumps."""

import gzip
from pathlib import Path

import pytest

from hlo_programs import DATA, load
from roofline.errors import SourceError
from roofline.hlo.read import recognise
from roofline.hlo.read.proto import ProtoDialect
from roofline.hlo.read.text_dialect import TextDialect
from roofline.machines import load as load_machine
from roofline.sources import programs
from roofline.sources import read as read_recording
from roofline.sources.hlo_dump import program_files, read_modules, sniff


def test_files_are_read_plain_and_gzipped_in_every_form(tmp_path: Path) -> None:
    for form in ("hlo", "pb", "stablehlo"):
        data = load(f"scan_layers.{form}")
        (tmp_path / form).write_bytes(data)
        (tmp_path / f"{form}.gz").write_bytes(gzip.compress(data))
        assert [module.name for end in ("", ".gz") for module in read_modules(tmp_path / f"{form}{end}")] == ["jit_scan_layers"] * 2


def test_a_dump_folder_gives_each_module_once_compiled_before_uncompiled(tmp_path: Path) -> None:
    files = {
        "module_0000.jit_f.before_optimizations.txt": "scan_layers.before.hlo",
        "module_0000.jit_f.sm_9.0_gpu_after_optimizations.txt": "scan_layers.hlo",
        "module_0000.jit_f.sm_9.0_gpu_after_optimizations.hlo.pb": "scan_layers.pb",
        "module_0003.jit_g.cpu_after_optimizations.txt": "cond_switch.hlo",
        "module_0003.jit_g.before_optimizations.txt": "cond_switch.before.hlo",
        "module_0007.jit_h.before_optimizations.txt": "pjit_mlp.before.hlo",
    }
    for name, source in files.items():
        (tmp_path / name).write_bytes(load(source))
    for noise in ("cpu_after_optimizations-buffer-assignment.txt", "debug_options", "ir-no-opt.ll"):
        (tmp_path / f"module_0000.jit_f.{noise}").write_text("BufferAssignment:\n")
    assert [(m.name, type(m.entry_computation[0].dialect), m.is_scheduled) for m in read_modules(tmp_path)] == [
        ("jit_scan_layers", ProtoDialect, True),
        ("jit_cond_switch", TextDialect, True),
        ("jit_pjit_mlp", TextDialect, False),
    ]


def test_any_other_folder_gives_every_program_in_it(tmp_path: Path) -> None:
    (tmp_path / "b.hlo.txt").write_bytes(load("cond_switch.hlo"))
    (tmp_path / "a.mlir").write_bytes(load("cond_switch.stablehlo"))
    (tmp_path / "notes.txt").write_text("module notes are not modules\nnor is this\n")
    assert [file.name for file in program_files(tmp_path)] == ["a.mlir", "b.hlo.txt"]


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no profile, trace or HLO program"):
        read_modules(tmp_path)
    with pytest.raises(SourceError, match="no such file"):
        read_modules(tmp_path / "missing.hlo")
    (tmp_path / "cut.hlo").write_bytes(load("cond_switch.hlo")[:1500])
    with pytest.raises(SourceError, match=r"cut.hlo: line \d+"):
        read_modules(tmp_path / "cut.hlo")


def test_every_kept_program_is_recognised_and_other_files_are_not(tmp_path: Path) -> None:
    forms = {"hlo": "hlo text", "pb": "hlo proto", "stablehlo": "stablehlo"}
    heads = {path.name: gzip.decompress(path.read_bytes())[: 2**16] for path in DATA.glob("*.gz")}
    assert {recognise(head) for head in heads.values()} == set(forms.values())
    for name, head in heads.items():
        assert recognise(head) == forms[name.split(".")[-2]], name
    others = [
        b"name,time\nx,1 ms\n",
        b'{"schema": "roofline.report/1"}',
        b"PAR1\x15\x04",
        b"",
        b"#!/bin/sh\n",
        b"\x0a\x1a\x08\x01\x12\x0f/device:GPU:0",
        bytes(64),
    ]
    assert [recognise(data) for data in others] == [""] * len(others)
    assert not sniff(b"hello", tmp_path)


SHARDED = """module @jit_f attributes {mhlo.num_partitions = PARTS : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<64x32xbf16>, %arg1: tensor<32x128xbf16>) -> tensor<64x128xbf16> {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0] : (tensor<64x32xbf16>, tensor<32x128xbf16>) -> tensor<64x128xbf16>
    return %0 : tensor<64x128xbf16>
  }
}
"""


def test_a_program_still_to_be_partitioned_counts_one_devices_share_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "f.mlir"
    file.write_text(SHARDED.replace("PARTS", "8"))
    recording = programs.read(file, load_machine("h200"))
    assert recording.workload.ops[0].cost["matrix/bf16"] == 2 * 64 * 32 * 128 // 8
    assert "one of 8 devices" in recording.notes[-1]
    file.write_text(SHARDED.replace("PARTS", "1"))
    assert programs.read(file, load_machine("h200")).workload.ops[0].cost["matrix/bf16"] == 2 * 64 * 32 * 128


def test_bytecode_that_cannot_be_read_is_refused_in_the_same_words_everywhere(tmp_path: Path) -> None:
    path = tmp_path / "program.mlir.bc"
    path.write_bytes(b"ML\xefR\x0fStableHLO_v9.0.0\0")
    for read in (read_modules, read_recording):
        with pytest.raises(SourceError, match=r"program\.mlir\.bc: MLIR bytecode of version 7; the newest"):
            read(path)


def test_a_profile_is_not_called_a_damaged_program(tmp_path: Path) -> None:
    profile = DATA.parent / "cpu" / "jax_one.xplane.pb.gz"
    with pytest.raises(SourceError, match="a profile, not a program; use roofline analyze"):
        read_modules(profile)
    run = tmp_path / "plugins" / "profile" / "one"
    run.mkdir(parents=True)
    (run / "vm.xplane.pb").write_bytes(gzip.decompress(profile.read_bytes()))
    with pytest.raises(SourceError, match="a profile, not a program"):
        read_modules(tmp_path)
