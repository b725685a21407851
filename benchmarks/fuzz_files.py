"""Small files of every format that roofline reads, for `fuzz.py` to damage."""

import gzip
import json
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
HAS_PYARROW = find_spec("pyarrow") is not None

TABLE = b"""name,category,scope,location,count,time [ms],flops,dtype,bytes,step,device
"a",dot,l0/x,f.py:3,2,1.5,1e9,bf16,1 MB,0,0
b,copy,,,1,2,,,3e6,1,0
"""
HLO = b"""HloModule jit_step, is_scheduled=true, entry_computation_layout={(f32[8,16]{1,0}, f32[16,4]{1,0})->f32[8,4]{1,0}}

%body (p: (s32[], f32[8,4])) -> (s32[], f32[8,4]) {
  %p = (s32[], f32[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %x = f32[8,4]{1,0} get-tuple-element(%p), index=1
  ROOT %t = (s32[], f32[8,4]{1,0}) tuple(%next, %x)
}

%condition (p.1: (s32[], f32[8,4])) -> pred[] {
  %p.1 = (s32[], f32[8,4]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%p.1), index=0
  %n = s32[] constant(5)
  ROOT %less = pred[] compare(%i.1, %n), direction=LT
}

ENTRY %main (a: f32[8,16], b: f32[16,4]) -> f32[8,4] {
  %a = f32[8,16]{1,0} parameter(0)
  %b = f32[16,4]{1,0} parameter(1), sharding={devices=[2,1]<=[2]}
  %dot = f32[8,4]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="jit(f)/d"}
  %zero = s32[] constant(0)
  %state = (s32[], f32[8,4]{1,0}) tuple(%zero, %dot)
  %loop = (s32[], f32[8,4]{1,0}) while(%state), condition=%condition, body=%body
  %y = f32[8,4]{1,0} get-tuple-element(%loop), index=1
  %sum = f32[8,4]{1,0} all-reduce(%y), replica_groups=[2,4]<=[8], to_apply=%add
  %window = f32[4,4]{1,0} slice(%sum), slice={[0:8:2], [0:4]}
  %padded = f32[8,4]{1,0} pad(%window, f32[] constant(0)), padding=0_4_0x0_0
  ROOT %r = f32[8,4]{1,0} custom-call(%padded), custom_call_target="Sharding", backend_config={"a": [1, 2]}
}

%add (x.1: f32[], y.1: f32[]) -> f32[] {
  %x.1 = f32[] parameter(0)
  %y.1 = f32[] parameter(1)
  ROOT %s = f32[] add(%x.1, %y.1)
}
"""
MLIR = b"""module @jit_f attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<8x16xf32> {mhlo.sharding = "{replicated}"}, %arg1: tensor<16x4xbf16>) -> (tensor<8x4xf32>) {
    %0 = stablehlo.convert %arg1 : (tensor<16x4xbf16>) -> tensor<16x4xf32> loc("f.py":3:1)
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0] : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    %cst = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<8x4xf32>
    %3 = stablehlo.maximum %1, %2 : tensor<8x4xf32>
    %4 = func.call @relu(%3) : (tensor<8x4xf32>) -> tensor<8x4xf32>
    return %4 : tensor<8x4xf32>
  }
  func.func private @relu(%arg0: tensor<8x4xf32>) -> tensor<8x4xf32> {
    %0 = stablehlo.exponential %arg0 : tensor<8x4xf32>
    return %0 : tensor<8x4xf32>
  }
}
"""
MACHINE = b"""schema = "roofline.machine/1"
name = "mine"
extends = "h100-sxm"
aliases = ["my card"]
[[compute]]
resource = "matrix/bf16"
rate = "900 TFLOP/s"
provenance = "measured"
source = ["own"]
[[memory]]
level = "hbm"
rate = "3 TB/s"
capacity = "80 GB"
[[link]]
resource = "nvlink"
rate = "25 GB/s"
count = 18
[[limit]]
name = "half"
resource = "hbm"
fraction = 0.5
"""
NCU = b"""
"ID","Process ID","Kernel Name","Stream","Block Size","Grid Size","Device","CC","gpu__time_duration.sum","dram__bytes.sum"
"","","","","","","","","nsecond","Kbyte"
"0","12","gemm(float*)","7","(128, 1, 1)","(64, 2, 1)","0","9.0","4,096","1,234.5"
"1","12","copy","7","(64, 1, 1)","(6, 2, 1)","0","9.0","2048","12"
"""
NCU_LONG = b"""==PROF== Connected to process 12
"ID","Process ID","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","12","gemm(float*)","1","7","(128, 1, 1)","(64, 2, 1)","0","9.0","Command line","dram__bytes.sum","byte","4,096"
"0","12","gemm(float*)","1","7","(128, 1, 1)","(64, 2, 1)","0","9.0","Command line","gpu__time_duration.sum","ns","195,232"
"1","12","copy","1","7","(64, 1, 1)","(6, 2, 1)","0","9.0","Command line","gpu__time_duration.sum","ns","12"
"""  # noqa: E501


def calibration() -> bytes:
    """What is known of a chip's real times."""
    return (ROOT / "src" / "roofline" / "machines" / "calibrations" / "b200.toml").read_bytes()


def gpu_profile() -> bytes:
    """A small profile of a GPU, with a step, a launch and a program."""
    sys.path.insert(0, str(ROOT / "tests"))
    from xspace_writer import Event, Line, Plane, Unsigned, space

    launch = {"correlation_id": 7, "_r": 1, "step_num": 3, "step_name": "train"}
    kernel = {"correlation_id": 7, "hlo_op": "dot.1", "hlo_module": "jit_f", "program_id": 5, "kernel_details": "grid:1,1,1 block:8,1,1"}
    device = Plane(
        "/device:GPU:0",
        [Line("Stream #1", [Event("gemm", 1000 * n, 900, kernel) for n in range(3)], timestamp_ns=5), Line("Steps", [Event("3", 0, 3000)])],
        stats={"peak_teraflops_per_second": 900.0, "device_type": "NVIDIA H100 80GB HBM3", "clock_rate": Unsigned(1980000)},
    )
    host = Plane("/host:CPU", [Line("python", [Event("train", 0, 4000, launch), Event("cuLaunchKernel", 10, 5, launch)])])
    return space([device, host], hostnames=["host"])


def tpu_profile() -> bytes:
    """A small profile of a TPU, with a step, a program, a copy in two halves and a host that enqueues."""
    sys.path.insert(0, str(ROOT / "tests"))
    from xspace_profiles import Instruction, annotation, hlo, host, programs
    from xspace_writer import Event, Line, Metadata, Plane, space

    shared = {"program_id": 7, "symbol_id": 1, "flops": 10, "bytes_accessed": 100, "source": "model.py:3", "tf_op": "jit(f)/mlp/add:"}
    ops = [
        Metadata(f"%{name} = f32[1024]{{0}} {opcode}(f32[1024]{{0}} %x)", name, {"hlo_category": category, **shared})
        for name, opcode, category in (("fusion.1", "fusion", "loop fusion"), ("copy-start.1", "copy-start", "copy-start"))
    ]
    ops.append(Metadata("%copy-done.1 = f32[1024]{0} copy-done(%copy-start.1)", "copy-done.1", {"hlo_category": "copy-done", **shared}))
    clock = {"device_offset_ps": 5, "device_duration_ps": 40}
    events = [Event(op.name, 100 * place, 50, {**clock, "device_offset_ps": 100 * place}) for place, op in enumerate(ops)]
    runs = [Event("jit_f(7)", 0, 300, {"run_id": 1, "device_offset_ps": 0, "device_duration_ps": 300})]
    lines = [Line("XLA Ops", events, id=3), Line("XLA Modules", runs, id=2), Line("Steps", [Event("1", 0, 300, clock)], id=1)]
    rated = {"device_type_string": "TPU v6 Lite", "peak_teraflops_per_second": 918.0, "peak_hbm_bw_gigabytes_per_second": 1638.0}
    main = [Instruction("x", "parameter"), Instruction("fusion.1", "add", ("x", "x"), op_name="jit(f)/add")]
    enqueue = Event("TpuLoadedProgram::Enqueue", 0, 9, {"run_id": 1})
    return space(
        [Plane("/device:TPU:0", lines, rated, ops), host([annotation(1, 0, 400), enqueue]), programs({7: hlo("jit_f", {"main": main})})]
    )


def cpu_profile() -> bytes:
    """A small profile of XLA on a CPU."""
    sys.path.insert(0, str(ROOT / "tests"))
    from xspace_profiles import Instruction, annotation, hlo, host, programs
    from xspace_writer import Event, space

    said = {"hlo_op": "add.1", "hlo_module": "jit_f", "program_id": 7, "device_ordinal": 0}
    thunks = [Event("add.1", 100 * run, 50, {**said, "run_id": run}) for run in range(3)]
    main = [Instruction("x", "parameter"), Instruction("add.1", "add", ("x", "x"), op_name="jit(f)/add")]
    return space([host(thunks, [annotation(1, 0, 400)]), programs({7: hlo("jit_f", {"main": main})})], hostnames=["host"])


def torch_traces() -> list[bytes]:
    """Small traces of the PyTorch profiler: training, a graph and its capture, collectives, compiled kernels, a real one's start."""
    sys.path.insert(0, str(ROOT / "tests"))
    from torch_writer import TorchTrace, training

    graph = TorchTrace(with_stack=1)
    graph.launch(0, "cudaStreamBeginCapture")
    graph.op("aten::_scaled_dot_product_flash_attention", 10, 10, [(2, 4, 8, 16)] * 3, values=("0.0", "True", "False"))
    graph.launch(12)
    graph.launch(50, "cudaStreamEndCapture")
    graph.ran("flash_fwd_kernel", 110, 5, graph.launch(100, "cudaGraphLaunch"))
    ranks = training(1, distributedInfo={"rank": 3, "world_size": 8, "pg_config": [{"pg_name": "0", "ranks": [0, 1]}]})
    said = {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "BFloat16", "Group size": 8}
    ranks.op("record_param_comms", 41, 4)
    ranks.events[-1]["args"] |= said | {"Process Group Ranks": "[0, 1, 2, ...]"}
    ranks.run("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", launched=42, start=995, dur=30, stream=20, **said)
    compiled = TorchTrace(base=1.7e15)
    compiled.op("triton_poi_fused_relu_0", 10, 5, [(8, 4), (8, 4)], kernel_file="/tmp/x.py", kernel_hash="abc", kernel_num_gb="0.1")
    compiled.run("triton_poi_fused_relu_0", launched=12, start=20, dur=3, grid=(4, 1, 1))
    compiled.op("aten::convolution", 40, 5, [(2, 8, 9, 9), (4, 8, 3, 3)], values=("[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"))
    compiled.run("implicit_convolve_sgemm", launched=42, start=50, dur=3)
    compiled.op("aten::_foreach_add_", 60, 5, values=("[[8, 4], [8]]",))
    compiled.run("Memcpy HtoD (Pageable -> Device)", launched=62, start=70, dur=3, cat="gpu_memcpy", bytes=4096)
    compiled.frame("cudaStreamSynchronize", 75, 9)
    real = json.loads(gzip.decompress((DATA / "torch_cpu.json.gz").read_bytes()))
    real["traceEvents"] = real["traceEvents"][:60]
    return [training(2).text(), graph.text(), ranks.text(), compiled.text(), json.dumps(real).encode()]


def baseline() -> bytes:
    """A baseline of the report on the small table."""
    import roofline
    from roofline.checking.baselines import baseline_of
    from roofline.sources.baseline_json import write_baseline

    with tempfile.TemporaryDirectory() as folder:
        table, path = Path(folder, "ops.csv"), Path(folder, "baseline.json")
        table.write_bytes(TABLE)
        write_baseline(path, baseline_of(roofline.analyze(table, "h100")))
        return path.read_bytes()


def json_rows() -> list[dict[str, object]]:
    """The small table as rows of JSON."""
    return [
        {"name": "a", "count": 2, "time": "1.5 ms", "flops": 1e9, "dtype": "bf16", "bytes": 1000, "step": 0, "device": 0},
        {"name": "b", "scope": "l0/x", "time": 2, "matrix/bf16": 5, "bytes": None},
    ]


def report() -> bytes:
    """The report on the small table."""
    import roofline

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "ops.csv")
        path.write_bytes(TABLE)
        return bytes(roofline.to_json(roofline.analyze(path, "h100")))


def parquet() -> bytes:
    """The small table as Parquet."""
    import io

    import pyarrow
    from pyarrow import parquet as files

    out = io.BytesIO()
    files.write_table(pyarrow.table({"name": ["a", "b"], "time": [1.0, 2.0], "bytes": [3, None]}), out)
    return out.getvalue()


def small_files(folder: str, suffix: str, most: int = 40_000) -> list[bytes]:
    """Real files of the tests below a size."""
    found = [path.read_bytes() for path in sorted((DATA / folder).glob(f"*{suffix}*"))]
    plain = [gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data for data in found]
    return [data for data in plain if len(data) <= most]


def tpu_programs(suffix: str) -> list[bytes]:
    """Small programs of the TPU compiler, as text or as protobuf."""
    return small_files("tpu", suffix, 20_000) + small_files("tpu/memory", suffix, 35_000)
