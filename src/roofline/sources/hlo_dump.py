"""Files of XLA programs: HLO text, HloProto, StableHLO text or bytecode, plain or gzipped, and folders that ``--xla_dump_to`` wrote."""

import os
import re
from pathlib import Path

from msgspec.structs import replace

from ..errors import SourceError
from ..hlo.ir.module import HloModule
from ..hlo.read import parse, parse_all, recognise
from .files import all_of, head_of, profiles_in, traces_in
from .unsupported import describe_contents
from .xspace.recognition import sniff as is_profile

NOT_A_PROGRAM = "a profile, not a program; use roofline analyze, which also reads the programs in a profile"
# module_0001.jit_step.sm_9.0_gpu_after_optimizations.hlo.pb: number and name of the module, before or after optimization, format.
_DUMPED = re.compile(
    r"(?P<module>module_\d+\.[^.]+)\..*?(?P<when>after_codegen|after_optimizations|before_optimizations)\.(?P<how>hlo\.pb|pb|txt|hlo)(?:\.gz)?\Z"
)
# Prefer the compiled program to the compiler's input, and a protobuf to text, which rounds constants. A TPU's has cycles and scoped memory
# only after code generation, and its buffer assignment only before.
_CODEGEN, _ASSIGNED = "after_codegen", "after_optimizations"
_PREFERENCE = {
    (when, is_proto): 2 * place + (not is_proto)
    for place, when in enumerate((_CODEGEN, _ASSIGNED, "before_optimizations"))
    for is_proto in (True, False)
}


def sniff(head: bytes, path: Path) -> bool:
    """HLO or StableHLO text by its first words, bytecode by its magic number, HloProto by a module name in the right field."""
    return recognise(head) != ""


def read_modules(path: Path) -> tuple[HloModule, ...]:
    """Every program in a file, or in the files of a folder, in order of file name."""
    if not path.is_dir():
        if is_profile(head_of(path)):
            raise SourceError(f"{path}: {NOT_A_PROGRAM}")
        return parse_all(all_of(path), str(path))
    files = program_files(path)
    if not files:
        if profiles_in(path) or traces_in(path):
            raise SourceError(f"{path}: {NOT_A_PROGRAM}")
        there = describe_contents(path) or "name a file, or a folder that a profiler or --xla_dump_to wrote"
        raise SourceError(f"{path}: no profile, trace or HLO program in this folder; {there}")
    return tuple(_with_assignment(module, file) for file in files for module in parse_all(all_of(file), str(file)))


def _with_assignment(module: HloModule, file: Path) -> HloModule:
    """A program after code generation, with the buffer assignment of the stage before, where that was dumped."""
    before, found, _ = file.name.partition(_CODEGEN)
    assigned = file.with_name(f"{before}{_ASSIGNED}.hlo.pb")
    if not found or not _DUMPED.match(file.name) or not assigned.is_file():
        return module
    return replace(module, buffer_assignment=parse(all_of(assigned), str(assigned)).buffer_assignment)


def program_files(folder: Path) -> tuple[Path, ...]:
    """One file per program: for each dumped module the compiled program, else the compiler's input; in other folders every program."""
    chosen: dict[str, tuple[int, Path]] = {}
    try:
        files = sorted(file for file in folder.iterdir() if os.path.isfile(file))
    except OSError as error:
        raise SourceError(f"{folder}: cannot read: {error}") from None
    for file in files:
        match = _DUMPED.match(file.name)
        if match is not None:
            rank = _PREFERENCE[match["when"], match["how"].endswith("pb")]
            if match["module"] not in chosen or rank < chosen[match["module"]][0]:
                chosen[match["module"]] = (rank, file)
    if chosen:
        return tuple(file for _, file in chosen.values())
    return tuple(file for file in files if sniff(head_of(file), file))
