"""Functions compiled for slices that are not here: names of slices, meshes, shardings, and the compiler's answers."""

import argparse
import gzip
import json
import os
import pickle
import platform
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from msgspec.structs import replace

import roofline as rl
import roofline.jax.tpu
import tpu_compiler
from every import every
from roofline.analysis.findings.writing import Writer
from roofline.analysis.memory import out_of_memory
from roofline.cli import compare, main
from roofline.cli.analyze import parser
from roofline.cli.forms import make_it_fit
from roofline.cli.forms.slice_variants import Variant, _described, rank, variant_rows, variants, variants_text
from roofline.cli.options.slice_options import chips_and_meshes, function_job, record
from roofline.errors import UsageError
from roofline.hlo.price.collectives import network_of
from roofline.jax.tpu import _refused_kernel, changes, compiling, lowering
from roofline.jax.tpu.compiling import Job, mesh_of, options_of
from roofline.jax.tpu.lowering import Misfit, mesh_axes, placed, replicated
from roofline.jax.tpu.slices import slice_named
from roofline.peak_memory import LiveLayer, LiveOwner, PeakMemory
from roofline.render.tables import Paper
from roofline.report import VariantInfo
from roofline.sources import cluster, programs
from roofline.workload import Recording, Workload

# A name, both names of the slice, its devices for JAX, and its topology for the compiler. v4 and v5p have two TensorCores a chip, which are
# one device of a v4 or v5p and two of a v7x; a slice is named by its TensorCores where it has a number.
SLICES = (
    ("v5e-16", "v5e-16 (4x4, 16 chips)", 16, {"topology_name": "v5e:4x4"}),
    ("v5e:4x4", "v5e-16 (4x4, 16 chips)", 16, {"topology_name": "v5e:4x4"}),
    ("v5p-128", "v5p-128 (4x4x4, 64 chips)", 64, {"topology_name": "v5p:4x4x4"}),
    ("v4-128", "v4-128 (4x4x4, 64 chips)", 64, {"topology_name": "v4:4x4x4", "chip_config_name": "megacore"}),
    ("tpu7x-128", "v7x-128 (4x4x4, 64 chips)", 128, {"topology_name": "tpu7x:4x4x4"}),
    ("v6e", "v6e-1 (1x1, 1 chip)", 1, {"topology_name": "v6e:1x1", "chips_per_host_bounds": [1, 1, 1]}),
    ("2x v6e:16x16", "2x v6e-256 (16x16, 512 chips)", 512, {"topology_name": "v6e:16x16", "num_slices": 2}),
)


def test_a_slice_is_named_by_cores_or_by_shape_and_shows_both() -> None:
    for name, title, devices, topology in SLICES:
        found = slice_named(name)
        assert (found.title, found.devices, found.topology) == (title, devices, topology)
    with pytest.raises(UsageError, match="not a slice of a TPU"):
        slice_named("h100")


def test_a_mesh_has_as_many_devices_as_its_slice() -> None:
    assert mesh_of(["fsdp=4,tensor=4"]) == mesh_of(["fsdp=4", "tensor=4"]) == {"fsdp": 4, "tensor": 4}
    assert mesh_of([]) is None
    Job(slice=slice_named("v6e-16"), mesh={"fsdp": 4, "tensor": 4})
    with pytest.raises(UsageError, match=r"mesh fsdp=4,tensor=8 has 32 devices, and v6e-16 .* has 16"):
        Job(slice=slice_named("v6e-16"), mesh={"fsdp": 4, "tensor": 8})
    for wrong in ("fsdp", "fsdp=0", "fsdp=4x"):
        with pytest.raises(UsageError, match="write AXIS=SIZE"):
            mesh_of([wrong])
    with pytest.raises(UsageError, match="the axis fsdp is named twice"):
        mesh_of(["fsdp=16", "fsdp=4", "tensor=4"])
    assert options_of(["--xla_a=true", "xla_b=3"]) == {"xla_a": "true", "xla_b": "3"}


def struct(*sizes: int, spec: tuple[Any, ...] | None = None, mesh: Any = None) -> jax.ShapeDtypeStruct:
    sharding = None if spec is None else NamedSharding(mesh, PartitionSpec(*spec))
    return jax.ShapeDtypeStruct(sizes, jnp.bfloat16, sharding=sharding)


def specs(found: Any) -> list[tuple[Any, ...]]:
    return [tuple(leaf.sharding.spec) for leaf in jax.tree.leaves(found) if hasattr(leaf, "sharding")]


HERE = AbstractMesh((2, 1), ("fsdp", "tensor"))  # a mesh of devices that are here
THERE = AbstractMesh((4, 4), ("fsdp", "tensor"))  # that of a slice


def test_shardings_are_moved_by_the_names_of_axes() -> None:
    args = ({"w": struct(64, 32, spec=("fsdp", "tensor"), mesh=HERE), "scale": struct(32)}, struct(16, 64, spec=("fsdp",), mesh=HERE))
    found = placed((args, {}), THERE)
    assert specs(found.args) == [(), ("fsdp", "tensor"), ("fsdp",)]  # scale has no sharding: replicated
    assert found.assumed == ()
    with pytest.raises(Misfit, match="names the axis 'fsdp', which the mesh data=16 does not have"):
        placed((args, {}), AbstractMesh((16,), ("data",)))


def test_without_shardings_the_first_axis_divides_the_last_argument() -> None:
    # The last argument is static, so the batch is the one before; 6 rows are not divisible by 4.
    args = ({"w": struct(64, 32), "b": struct(7)}, (struct(16, 64), struct(6)), "relu")
    found = placed((args, {}), THERE)
    assert specs(found.args) == [(), (), ("fsdp",), ()]
    assert found.args[2] == "relu"
    assert "fsdp is taken to divide the leading dimension of the last argument, and the rest is replicated" in found.assumed[0]
    assert "bfloat16[6]: fsdp=4 does not divide it" in found.assumed[1]
    # Labels come last, and their rows before: that these are a batch too is not assumed, but said.
    labelled = placed((({"w": struct(64, 32)}, struct(16, 64), struct(16)), {}), THERE)
    assert specs(labelled.args) == [(), (), ("fsdp",)]
    assert labelled.assumed[1] == "argument 1 has the same leading dimension; to divide it too: --batch-args 1,2"
    # With an axis for the parameters it divides the largest dimension that is divisible; b has none.
    assert specs(placed((args, {}), THERE, shard="tensor").args) == [(), ("tensor",), ("fsdp",), ()]
    assert specs(placed((args, {}), THERE, batch=[0]).args) == [(), ("fsdp",), (), ()]
    with pytest.raises(Misfit, match="no such axis; it has fsdp, tensor"):
        placed((args, {}), THERE, shard="model")


def test_arrays_that_an_axis_would_divide_are_named_where_every_device_has_them_whole() -> None:
    # w is sharded; of 64 x 32 and 7 numbers in bf16 only the first can be divided, by either axis of 4.
    args = (struct(64, 32, spec=("fsdp",), mesh=THERE), {"v": struct(64, 32), "b": struct(7)})
    whole = replicated(placed((args, {}), THERE).args, THERE)
    assert whole == {"arrays": 1, "bytes": 64 * 32 * 2, "largest": "bfloat16[64,32]", "axis": "fsdp"}
    assert replicated(placed((args[:1], {}), THERE).args, THERE) == {}


def test_without_a_mesh_it_is_that_of_the_shardings_or_one_axis() -> None:
    sharded = [struct(16, spec=("fsdp",), mesh=THERE)]
    assert mesh_axes([struct(8)], 16, None) == {"data": 16}
    assert mesh_axes(sharded, 16, None) == {"fsdp": 4, "tensor": 4}
    assert mesh_axes([struct(16, spec=("fsdp",), mesh=AbstractMesh((1,), ("fsdp",)))], 16, None) == {"fsdp": 16}
    with pytest.raises(Misfit, match="sharded over the mesh fsdp=4,tensor=4, which has 16 devices, not 64; give a mesh"):
        mesh_axes(sharded, 64, None)


def test_elsewhere_one_line_says_why_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv(compiling.PYTHON_VARIABLE, raising=False)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert main(["analyze", "train.py:step", "--chip", "v6e:4x4"]) == 2
    assert "runs on x86-64 Linux only" in (said := capsys.readouterr().err)
    assert said.count("\n") == 1
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(compiling, "find_spec", lambda name: None)
    assert "pip install 'roofline[tpu]'" in compiling.why_not()


@every("words", [["--args", "8x512"], ["--compile", "mesh=fsdp=4,tensor=4"], ["--compile", "shard=a", "xla-a=1"]])
def test_options_of_functions_are_refused_for_files(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "program.hlo", *words]) == 2
    assert "is for a function that is compiled for a slice" in capsys.readouterr().err


def test_options_that_change_nothing_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    program = gzip.decompress((Path(__file__).parent / "data" / "tpu" / "exchanges" / "halo.hlo.pb.gz").read_bytes())
    other = gzip.decompress((Path(__file__).parent / "data" / "tpu" / "exchanges" / "healthy.hlo.pb.gz").read_bytes())
    for folder, data in (("made", program), ("same", program), ("other", other)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "module_0000.jit_f.after_codegen.hlo.pb").write_bytes(data)
    job = Job(slice=slice_named("v5e:2x2"), function="f", options={"xla_a": "true"})
    for plain, is_told in (("same", True), ("other", False), ("missing", False), ("", False)):
        made = compiling.Compilation(tmp_path / "made", compiling.Answer(plain_key=plain), 1.0)
        without = compiling.Compilation(tmp_path / "other", compiling.Answer(), 1.0)
        asked = []

        def compiled(job: Job, made: Any = made, without: Any = without, asked: Any = asked, **how: Any) -> Any:
            asked.append(dict(job.options))
            return nullcontext(made if job.options else without)

        monkeypatch.setattr(roofline.jax.tpu, "compiled", compiled)
        monkeypatch.setattr(compiling, "program_cache", lambda: tmp_path)
        recording, _ = record(parser().parse_args(["train.py:f"]), job)
        same = "the compiler options xla_a=true change nothing: the program is the same without them"
        other = "the compiler options xla_a=true change the program: it is another one without them"
        assert (same in recording.notes) is (f"roofline: {same}\n" in capsys.readouterr().err) is is_told
        assert (other in recording.notes) is not is_told
        assert asked == [{"xla_a": "true"}, *([] if plain in ("same", "other") else [{}])]  # without them only where that is not known


THREE_SLICES = "v5e:2x2,v6e:2x2,v5p:2x2x1"
COMPILES = """
import signal, sys
from roofline.cli import main
from roofline.cli.forms import slice_variants
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell leaves ignored in the background
slice_variants.at_once = lambda: 2
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("number", "chips"),
    [(signal.SIGTERM, "v5e:2x2,v6e:2x2,v5p:2x2x1"), (signal.SIGINT, "v5e:2x2,v6e:2x2,v5p:2x2x1"), (signal.SIGTERM, "v5e:2x2")],
)
def test_compilations_end_with_the_command(number: signal.Signals, chips: str, tmp_path: Path) -> None:
    child, pids, scratch = tmp_path / "python", tmp_path / "pids", tmp_path / "scratch"
    child.write_text(f"#!/bin/sh\necho $$ >> {pids}\nexec sleep 300\n")
    child.chmod(0o755)
    scratch.mkdir()
    variables = {**os.environ, compiling.PYTHON_VARIABLE: str(child), "TMPDIR": str(scratch), "ROOFLINE_CACHE": str(tmp_path / "cache")}
    words = [sys.executable, "-c", COMPILES, "analyze", "train.py:step", "--chip", chips]
    command = subprocess.Popen(words, cwd=tmp_path, env=variables, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    at_once = min(2, chips.count(",") + 1)
    try:
        began = time.monotonic()
        while not pids.exists() or len(pids.read_text().splitlines()) < at_once:
            assert command.poll() is None
            assert time.monotonic() - began < 120
            time.sleep(0.05)
        command.send_signal(number)
        assert command.wait(30) == 128 + number
    finally:
        command.kill()
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == at_once
    for pid in started:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert list(scratch.iterdir()) == []


SLEEPS = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(300)\n"


@pytest.mark.tpu
def test_a_compilation_does_not_outlive_a_command_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLEEPS)
    variables = {**os.environ, compiling.PYTHON_VARIABLE: str(tpu_compiler.PYTHON)}
    words = [sys.executable, "-m", "roofline", "analyze", "train.py:step", "--args", "8x8", "--chip", "v5e:2x2"]
    with subprocess.Popen(words, cwd=tmp_path, env=variables, stderr=subprocess.DEVNULL) as command:
        pid, began = tmp_path / "pid", time.monotonic()
        while (not pid.exists() or not pid.read_text()) and time.monotonic() - began < 60:
            time.sleep(0.1)
        command.kill()
    child, began = Path(f"/proc/{pid.read_text()}"), time.monotonic()
    while child.exists() and "\nState:\tZ" not in (child / "status").read_text() and time.monotonic() - began < 5:
        time.sleep(0.1)
    assert not child.exists() or "\nState:\tZ" in (child / "status").read_text()


STEP = """
import jax, jax.numpy as jnp
from jax.sharding import PartitionSpec as P

def step(w, x):
    return w - 1e-3 * jax.grad(lambda w: jax.lax.with_sharding_constraint(jnp.tanh(x @ w), P("data")).astype(jnp.float32).sum())(w)

def too_large():
    scores = lambda x: jax.nn.softmax(jnp.einsum("bqd,bkd->bqk", x, x), -1)
    return jax.jit(lambda x: jnp.flip(scores(x), 1) * scores(x)), (jax.ShapeDtypeStruct((16, 32768, 512), jnp.float32),)
"""


@pytest.mark.tpu
def test_a_function_is_compiled_for_a_slice_and_the_report_is_one_device_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(compiling.PYTHON_VARIABLE, str(tpu_compiler.PYTHON))
    monkeypatch.setenv("ROOFLINE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "train.py"
    file.write_text(STEP)
    words = ["analyze", f"{file}:step", "--args", "1024x512:bf16", "4096x1024:bf16", "--chip", "v5e-4", "--json"]
    assert main([*words, str(tmp_path / "first.json")]) == 0
    assert "fits" in capsys.readouterr().err
    report = json.loads((tmp_path / "first.json").read_text())
    assert report["input"]["files"] == [f"{file}:step"]
    notes = "\n".join(report["input"]["notes"])
    assert "v5e-4 (2x2, 4 chips), mesh data=4" in notes
    assert "data is taken to divide the leading dimension of the last argument" in notes
    # Two products (forward, and the gradient of the weights) of a quarter of the 4096 rows.
    flop = sum(op["work"].get("matrix/bf16", 0) for op in report["ops"])
    assert flop == 2 * 2 * (4096 // 4) * 1024 * 512
    assert any(op["category"] == "all-reduce" for op in report["ops"])  # of the gradients
    assert main([*words, str(tmp_path / "again.json")]) == 0
    again = json.loads((tmp_path / "again.json").read_text())
    assert again["ops"] == report["ops"]
    assert any(note.startswith("compiled before") for note in again["input"]["notes"])
    # The same from Python, where the function may be a closure, for two slices.
    found = rl.jax.analyze(lambda w, x: jnp.tanh(x @ w), chip="2x v5e:2x2", mesh={"data": 8})(
        jax.ShapeDtypeStruct((1024, 512), jnp.bfloat16), jax.ShapeDtypeStruct((4096, 1024), jnp.bfloat16)
    )
    assert sum(op.work.get("matrix/bf16") or 0 for op in found.ops) == 2 * (4096 // 8) * 1024 * 512


LARGE_KERNEL = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

def kernel(x_ref, y_ref, scratch):
    scratch[0, :] = x_ref[0, :]
    y_ref[...] = x_ref[...] + scratch[0, :]

def double(x):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(kernel, out_shape=shape, scratch_shapes=[pltpu.VMEM((16384, 1024), jnp.float32)])(x)
"""


@pytest.mark.tpu
def test_a_pallas_kernel_that_does_not_fit_vmem_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(compiling.PYTHON_VARIABLE, str(tpu_compiler.PYTHON))
    file = tmp_path / "kernels.py"
    file.write_text(LARGE_KERNEL)
    words = ["analyze", f"{file}:double", "--args", "8x1024:f32", "--chip", "v5e", "--json", str(tmp_path / "report.json")]
    assert main(words) == 3
    report = json.loads((tmp_path / "report.json").read_text())
    (vmem,) = (space for space in report["memory"]["spaces"] if space["space"] == "vmem")
    assert vmem["scoped_bytes"] >= 16384 * 1024 * 4 > vmem["capacity_bytes"]
    assert report["findings"][0]["kind"] == "out-of-memory"
    assert "to try what makes it fit" not in capsys.readouterr().err  # donation, recomputation, half the batch: none changes the kernel


@pytest.mark.tpu
def test_a_program_that_does_not_fit_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(compiling.PYTHON_VARIABLE, str(tpu_compiler.PYTHON))
    file = tmp_path / "train.py"
    file.write_text(STEP)
    assert main(["analyze", f"{file}:too_large", "--chip", "v5e:2x2", "--json", str(tmp_path / "report.json")]) == 3
    report = json.loads((tmp_path / "report.json").read_text())
    memory = report["memory"]
    # Scores of 4 of the 16 sequences: 4 x 32768² x 4 bytes are 17 GB, and the result is as large.
    assert memory["capacity_bytes"] == int(15.75 * 2**30)
    assert memory["peak_bytes"] > 2 * 4 * 32768**2 * 4
    assert memory["largest"][0]["bytes"] == 4 * 32768**2 * 4
    assert report["findings"][0]["kind"] == "out-of-memory"
    assert "to try what makes it fit: --make-it-fit" in capsys.readouterr().err


def test_several_slices_and_meshes_are_named_in_lists() -> None:
    for words, chips, meshes in (
        (["--chip", "v5e:4x4"], ["v5e:4x4"], [""]),
        (["--chip", "v5e:4x4, v6e-16", "--compile", "mesh=fsdp=4,tensor=4"], ["v5e:4x4", "v6e-16"], ["fsdp=4,tensor=4"]),
        (["--chip", "v6e-16", "--compile", "mesh=fsdp=16/fsdp=4,tensor=4"], ["v6e-16"], ["fsdp=16", "fsdp=4,tensor=4"]),
        (["--chip", "v6e-16", "--mesh", "fsdp=16/fsdp=4,tensor=4", "--resume"], ["v6e-16"], ["fsdp=16", "fsdp=4,tensor=4"]),
    ):
        assert chips_and_meshes(parser().parse_args(["train.py:step", *words])) == (chips, meshes)


@every(
    "words",
    [
        [
            "train.py:step",
            "--mesh",
            "fsdp=4,tensor=4",
            "--shard",
            "fsdp",
            "--batch-args",
            "0,2",
            "--xla",
            "a=1",
            "--xla",
            "b=x=2",
            "--make-it-fit",
        ],
        [
            "--mesh",
            "fsdp=4",
            "tensor=4",
            "train.py:step",
            "--shard=fsdp",
            "--batch-args",
            "0",
            "--batch-args",
            "2",
            "--xla",
            "a=1",
            "--xla=b=x=2",
        ],
    ],
)
def test_values_of_a_compilation_are_options_too(words: list[str]) -> None:
    args = parser().parse_args([*words, "--chip", "v6e-16"])
    job = function_job(args, *args.path)
    assert (job.function, job.mesh, job.shard, job.batch_args) == ("train.py:step", {"fsdp": 4, "tensor": 4}, "fsdp", (0, 2))
    assert job.options == {"a": "1", "b": "x=2"}
    assert args.make_it_fit is ("--make-it-fit" in words)


def test_variants_are_ranked_by_the_chip_seconds_of_a_step() -> None:
    data = Path(__file__).parent / "data" / "tpu"
    layer = rl.analyze(data / "layer_gradient_v5e_2x2.hlo.gz", "v5e:2x2")
    gathers = rl.analyze(data / "hidden_gathers_v5e_2x2.hlo.gz", "v5e:2x2", per_step={"tokens": 1024})
    fast = _described(layer, VariantInfo(chip="v5e:2x2", mesh="fsdp=4"), False)
    slow = _described(gathers, VariantInfo(chip="v5e:2x2", mesh="data=4"), False)
    large = VariantInfo(chip="v5e:2x2", mesh="data=2", fits=False, needed_bytes=20e9, capacity_bytes=16e9)
    failed = VariantInfo(chip="v5e:2x2", mesh="data=8", reason="the mesh data=8 has 8 devices")
    assert gathers.predicted is not None
    assert slow.chip_seconds == pytest.approx(4 * gathers.predicted.time_s)  # four chips of one device each
    assert sorted((failed, large, slow, fast), key=rank) == [fast, slow, large, failed]
    text = variants_text([fast, slow, large, failed], Paper(width=160))
    assert text.splitlines()[0].split()[:3] == ["slice", "mesh", "step"]
    assert "not compiled: v5e:2x2 data=8: the mesh data=8 has 8 devices" in text
    assert "tokens" in text.splitlines()[2]
    assert "does not fit" in text.splitlines()[3]
    rows = variant_rows([fast, slow, large, failed])
    assert [row["mesh"] for row in rows] == ["fsdp=4", "data=4", "data=2", "data=8"]
    assert rows[1]["tokens_per_chip_hour"] == pytest.approx(1024 / gathers.predicted.time_s / 4 * 3600)
    assert rows[0]["tokens_per_chip_hour"] is None


def test_several_slices_are_compiled_on_a_cluster_each_by_one_call(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = Path(__file__).parent / "data" / "tpu"
    called = []

    def call(address: str, function: Any, job: Job, **how: Any) -> tuple[Recording, bool]:
        called.append((address, function, job.function, job.slice.title))
        pickle.dumps((function, job, how))  # as it is sent
        return programs.read(data / "layer_gradient_v5e_2x2.hlo.gz", job.slice.machine, network=network_of), False

    monkeypatch.setattr(cluster, "call_on_cluster", call)
    monkeypatch.chdir(tmp_path)
    args = parser().parse_args(["train.py:plan", "--chip", "v5e:2x2,v6e:2x2", "--cluster", "tcp://here:8786", "--resume"])
    found = variants(args)
    assert sorted(called, key=lambda one: one[3]) == [
        ("tcp://here:8786", roofline.jax.tpu.record_job, f"{tmp_path}/train.py:plan", slice_named(chip).title)
        for chip in ("v5e:2x2", "v6e:2x2")
    ]
    assert [(variant.info.chip, variant.recording and variant.recording.files) for variant in found] == [
        ("tpu-v6e:2x2", ("train.py:plan",)),
        ("tpu-v5e:2x2", ("train.py:plan",)),
    ]


def test_a_function_for_several_slices_is_compared_as_one_version_each(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train.py:plan", "--chip", "v5e:2x2,v6e:2x2", "--compile", "mesh=fsdp=4/fsdp=2,tensor=2"]
    args = compare.parser().parse_args(words)
    found = compare._functions(args)
    assert args.files == [
        "train.py:plan v5e:2x2 fsdp=4",
        "train.py:plan v5e:2x2 fsdp=2,tensor=2",
        "train.py:plan v6e:2x2 fsdp=4",
        "train.py:plan v6e:2x2 fsdp=2,tensor=2",
    ]
    assert [(own.path, own.chip, own.mesh) for own in found.values()][1] == (["train.py:plan"], "v5e:2x2", ["fsdp=2,tensor=2"])
    two = compare.parser().parse_args(["train.py:old", "train.py:new", "--chip", "v5e:2x2"])
    assert [*compare._functions(two)] == ["train.py:old", "train.py:new"]
    with pytest.raises(UsageError, match="several slices or meshes are for functions alone"):
        compare._functions(compare.parser().parse_args(["train.py:plan", "before.json", "--chip", "v5e:2x2,v6e:2x2"]))


def test_a_function_of_pmap_is_a_jitted_one_over_its_devices() -> None:
    def step(w: Any, x: Any, rate: Any) -> Any:
        return w - rate * jax.lax.pmean(jnp.mean(x) * w, "replica")

    mapped = jax.pmap(step, axis_name="replica", in_axes=(0, 0, None), donate_argnums=0)
    assert lowering.is_mapped(mapped)
    assert not lowering.is_mapped(jax.jit(step))
    w, x = (jax.ShapeDtypeStruct((1, *sizes), jnp.float32) for sizes in ((8, 8), (4, 8)))  # one device is here
    function, (args, _) = lowering.unmapped(mapped, ((w, x, jax.ShapeDtypeStruct((), jnp.float32)), {}))
    assert specs(args) == [("replica",), ("replica",), ()]
    found = lowering.exported(function, args, {})
    assert found.donated == (0,)
    with pytest.raises(lowering.Misfit, match=r"write jax\.jit\(jax\.shard_map"):
        lowering.unmapped(jax.pmap(step, axis_name="replica", in_axes=(0, 0, None)), ((w, x, 0.1), {}))


def small_step(weights: Any, moments: Any, rate: float, batch: Any) -> Any:
    value, gradient = jax.value_and_grad(lambda weights: jnp.sum(jnp.tanh(batch @ weights["w"])))(weights)
    moments = jax.tree.map(lambda m, g: 0.9 * m + g, moments, gradient)
    return jax.tree.map(lambda w, m: w - rate * m, weights, moments), moments, value


def of_step(change: str, **jit: Any) -> changes.Flat:
    """The step after a change, for four devices; the weights are whole, the batch is divided."""
    mesh = AbstractMesh((4,), ("data",))
    whole, part = (NamedSharding(mesh, PartitionSpec(*spec)) for spec in ((), ("data",)))
    weights = {"w": jax.ShapeDtypeStruct((16, 64), jnp.float32, sharding=whole)}
    batch = jax.ShapeDtypeStruct((8, 16), jnp.float32, sharding=part)
    with jax.sharding.use_abstract_mesh(mesh):
        flat = changes.flattened(jax.jit(small_step, **jit), (weights, weights, 0.1, batch), {})
        after = changes._CHANGES[change](flat)
        after.jitted().trace(*after.arrays)  # it is a program
    return after


def test_changes_of_a_step_find_its_state_and_its_batch() -> None:
    # The arrays are the weights, their moments and the batch; the first two come back, and the value depends on the weights alone.
    assert of_step("donate").donated == (0, 1)
    assert of_step("donate", donate_argnums=1).donated == (0, 1)
    assert [array.dtype.name for array in of_step("narrow").arrays] == ["float32", "bfloat16", "float32"]
    assert [array.shape for array in of_step("half").arrays] == [(16, 64), (16, 64), (4, 16)]
    assert specs(of_step("divide").arrays) == [(None, "data"), (None, "data"), ("data",)]
    with pytest.raises(changes.NoEffect, match="donated already"):
        of_step("donate", donate_argnums=(0, 1))


def test_changes_are_tried_one_by_one_and_together_where_none_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = {"donate": 18e9, "half": 17e9, "remat": 20e9}  # before it is 20 GB
    fitting = {("donate", "half")}

    def variant(args: Any, job_of: Any, named: VariantInfo) -> Variant:
        job = job_of()
        if job.mesh or not {*job.changes} & {*needed}:
            return Variant(info=replace(named, reason="no effect"))
        fits = job.changes in fitting
        size = 15e9 if fits else needed[job.changes[0]]
        return Variant(info=replace(named, fits=fits, needed_bytes=size, chip_seconds=1.0 if fits else None))

    monkeypatch.setattr(make_it_fit, "variant", variant)
    memory = PeakMemory(peak_bytes=int(20e9), method="buffer assignment")
    refused = Recording(workload=Workload(()), format="hlo", memory=memory, mesh={"fsdp": 4, "tensor": 4})
    found = make_it_fit.attempts(
        argparse.Namespace(chip="v6e-16"),
        lambda changes=(), mesh=None: Job(slice=slice_named("v6e-16"), changes=changes, mesh=mesh),
        refused,
    )
    assert (found[0].change, found[0].fits, found[0].chip_seconds) == ("donate and half", True, 2.0)  # two steps are the whole batch
    assert [info.needed_bytes for info in found[1:4]] == [17e9, 18e9, 20e9]
    assert {info.mesh for info in found if info.change == "mesh"} == {"fsdp=8,tensor=2", "fsdp=2,tensor=8"}


def test_as_many_layers_are_recomputed_as_keep_what_is_missing() -> None:
    # Of 32 layers each keeps 1 GB, and 4 GB are too much: five, since a recomputed one keeps its input
    layers = LiveOwner(owner="activations", bytes=32 * 10**9, buffers=1, layers=(LiveLayer(layer="", bytes=32 * 10**9, layers=32),))
    memory = PeakMemory(peak_bytes=20 * 10**9, capacity_bytes=16 * 10**9, method="buffer assignment", owners=(layers,))
    assert make_it_fit.some_layers(memory) == "5 of 32"
    assert not make_it_fit.some_layers(replace(memory, peak_bytes=60 * 10**9))
    assert not make_it_fit.some_layers(replace(memory, owners=()))
    stacks = jnp.arange(32.0).reshape(8, 4)

    def total(scan: Any, stacks: Any) -> Any:
        carried, kept = scan(lambda x, w: (jnp.sin(x * w), x), jnp.ones(4), stacks)
        return jnp.sum(carried) + jnp.sum(kept)

    some = partial(changes._scan_of_some_checkpointed, jax.lax.scan, 3, 8)
    whole, parts = (jax.value_and_grad(partial(total, scan)) for scan in (jax.lax.scan, some))
    assert jax.tree.map(lambda one, other: bool(jnp.allclose(one, other)), whole(stacks), parts(stacks)) == (True, True)
    loops = str(jax.make_jaxpr(partial(total, some))(stacks))
    assert (loops.count("length=3"), loops.count("length=5")) == (1, 1)


# What the compiler says of a kernel (libtpu 0.0.42.1).
KERNEL = """JaxRuntimeError: RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:
Ran out of memory in memory space vmem while allocating on stack for %matmul.1 = f32[4096,4096]{1,0:T(8,128)} custom-call(%x.1, %y.1).
Scoped allocation with size 96.00M and limit 32.00M exceeded scoped vmem limit by 64.00M."""

ALLOCATION = (
    "JaxRuntimeError: RESOURCE_EXHAUSTED: Allocation (size=268435456) would exceed memory (size=134217728) :: #allocation2 "
    "[shape = 'f32[65536,1024]{1,0:T(8,128)}', space=vmem, size = 0x10000000, scoped, tag = 'scratch operand'] :: double.1"
)


def test_a_kernel_that_needs_too_much_vmem_is_the_first_finding() -> None:
    kernel = _refused_kernel(KERNEL)
    assert kernel is not None
    assert (kernel.space, kernel.at, kernel.scoped_bytes, kernel.capacity_bytes) == ("vmem", "matmul.1", 96 * 2**20, 32 * 2**20)
    memory = PeakMemory(peak_bytes=10**6, method="buffer assignment", spaces=(kernel,))
    evidence = out_of_memory(memory, rl.chip("v6e"))
    assert evidence is not None
    finding = Writer(("tpu",)).finding(evidence)
    assert (
        finding.message == "matmul.1 needs 100.7 MB of vmem and 33.55 MB is the limit: 67.11 MB too much, so the program does not compile."
    )
    one = _refused_kernel(ALLOCATION)
    assert one is not None
    assert (one.space, one.at, one.scoped_bytes, one.capacity_bytes) == ("vmem", "double.1", 2**28, 2**27)
    assert _refused_kernel("exceeds available HBM (15.75G)") is None
