"""Inputs at addresses: files, run folders and log folders read as they do from a disk, and what goes wrong is one line."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

import roofline
from every import every
from roofline.cli import main
from roofline.errors import SourceError
from roofline.sources.xspace.recording import merge, read_part

fsspec = pytest.importorskip("fsspec")
DATA = Path(__file__).parent / "data"
FUSION = (DATA / "h200" / "jax_fusion.xplane.pb").read_bytes()
SCAN = (DATA / "h200" / "jax_scan.xplane.pb.gz").read_bytes()
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def bucket() -> Iterator[str]:
    """A bucket with a log folder of one run of two hosts, one of them gzipped, and a table."""
    system = fsspec.filesystem("memory")
    system.store.clear()
    system.pipe("/bucket/logs/plugins/profile/monday/host0.xplane.pb", FUSION)
    system.pipe("/bucket/logs/plugins/profile/monday/host1.xplane.pb.gz", SCAN)
    system.pipe("/bucket/ops.csv", b"name,flops,hbm,time\nadd,1000,12000,1 us\n")
    yield "memory://bucket"
    system.store.clear()


def local_run() -> "roofline.Recording":
    files = [DATA / "h200" / "jax_fusion.xplane.pb", DATA / "h200" / "jax_scan.xplane.pb.gz"]
    names = ["host0.xplane.pb", "host1.xplane.pb.gz"]
    folder = "memory://bucket/logs/plugins/profile/monday"
    return merge([read_part(f"{folder}/{name}", data=file.read_bytes(), shared=True) for file, name in zip(files, names, strict=True)])


@every("folder", ["/logs/plugins/profile/monday", "/logs/plugins/profile/monday/", "/logs"])
def test_a_run_at_an_address_is_the_run_on_a_disk(bucket: str, folder: str) -> None:
    expected = local_run()
    assert roofline.read(bucket + folder).workload == expected.workload
    recording = roofline.read([bucket + folder], jobs=2)  # of which one reads: no other process sees this memory
    assert recording == expected
    assert recording.files == tuple(
        f"memory://bucket/logs/plugins/profile/monday/{name}" for name in ("host0.xplane.pb", "host1.xplane.pb.gz")
    )


def test_one_profile_at_an_address(bucket: str) -> None:
    here = roofline.read(DATA / "h200" / "jax_fusion.xplane.pb")
    address = f"{bucket}/logs/plugins/profile/monday/host0.xplane.pb"
    assert roofline.read(address) == replace(here, files=(address,))


def test_the_command_takes_addresses(bucket: str, tmp_path: Path) -> None:
    folder = f"{bucket}/logs/plugins/profile/monday"
    whole, apart, disk = (tmp_path / f"{name}.json" for name in ("whole", "apart", "disk"))
    assert main(["analyze", folder, "--json", str(whole)]) == 0
    assert main(["analyze", f"{folder}/host1.xplane.pb.gz", f"{folder}/host0.xplane.pb", "--read", "cache=no", "--json", str(apart)]) == 0
    assert whole.read_bytes() == apart.read_bytes()
    (tmp_path / "host0.xplane.pb").write_bytes(FUSION)
    (tmp_path / "host1.xplane.pb.gz").write_bytes(SCAN)
    assert main(["analyze", str(tmp_path), "--json", str(disk)]) == 0
    assert json.loads(whole.read_bytes())["ops"] == json.loads(disk.read_bytes())["ops"]


def test_other_kinds_of_input_are_read_from_addresses_too(bucket: str, tmp_path: Path, capsys: Capture) -> None:
    table = roofline.read(f"{bucket}/ops.csv")
    assert [(op.name, op.cost["hbm"]) for op in table.workload] == [("add", 12000)]
    assert table.files == ("memory://bucket/ops.csv",)
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/packed.csv.gz", gzip.compress(b"name,flops,hbm\nadd,1000,12000\n"))
    assert roofline.read(f"{bucket}/packed.csv.gz").workload.ops[0].cost["hbm"] == 12000
    report = tmp_path / "report.json"
    assert main(["analyze", f"{bucket}/ops.csv", "--json", str(report)]) == 0
    system.pipe("/bucket/before.json", report.read_bytes())
    capsys.readouterr()
    assert main(["compare", f"{bucket}/before.json", f"{bucket}/ops.csv", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["speedup"] == 1.0


def test_what_is_wrong_names_the_address(bucket: str, capsys: Capture) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/half.xplane.pb", FUSION[: len(FUSION) // 2])
    system.pipe("/bucket/empty.xplane.pb", b"")
    system.pipe("/bucket/noise.bin", b"\xff\xfe\xfd" * 100)
    system.pipe("/bucket/bad.csv", b"name,flops,hbm\nadd,many,1\n")
    system.pipe("/bucket/logs/plugins/profile/tuesday/host0.xplane.pb", FUSION)
    system.pipe("/bucket/dump/notes.txt", b"nothing")
    expected = {
        "half.xplane.pb": "memory://bucket/half.xplane.pb: truncated after",
        "empty.xplane.pb": "memory://bucket/empty.xplane.pb: the file is empty",
        "noise.bin": "memory://bucket/noise.bin: unknown format",
        "bad.csv": "memory://bucket/bad.csv",
        "gone.csv": "memory://bucket/gone.csv: no such file or folder",
        "gone.csv.gz": "memory://bucket/gone.csv.gz: no such file or folder",
        "gone.xplane.pb": "memory://bucket/gone.xplane.pb: no such file or folder",
        "logs": "memory://bucket/logs: 2 runs in this folder (plugins/profile/monday, plugins/profile/tuesday); name one",
        "dump": "memory://bucket/dump: no .xplane.pb file in this folder",
    }
    for name, message in expected.items():
        assert main(["analyze", f"{bucket}/{name}"]) == 1
        said = capsys.readouterr().err
        assert message in said
        assert said.count("\n") == 1
        assert "/tmp" not in said.replace("memory://", "")


def test_a_damaged_profile_at_an_address_can_be_salvaged(bucket: str, capsys: Capture) -> None:
    fsspec.filesystem("memory").pipe("/bucket/half.xplane.pb", FUSION[: len(FUSION) * 9 // 10])
    assert main(["analyze", f"{bucket}/half.xplane.pb", "--read", "salvage"]) == 0
    assert "truncated after" in capsys.readouterr().out


def test_an_unknown_scheme_and_a_missing_package_are_told(capsys: Capture) -> None:
    assert main(["analyze", "nowhere://bucket/host.xplane.pb"]) == 1
    assert "nowhere://bucket/host.xplane.pb: cannot read: ValueError: Protocol not known: nowhere" in capsys.readouterr().err


def test_a_file_system_that_refuses_is_one_line() -> None:
    class Refusing(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "refusing"

        def info(self, path: str, **_: object) -> dict[str, object]:
            raise RuntimeError("Anonymous caller does not have storage.objects.get access.\nPermission denied on resource.")

    fsspec.register_implementation("refusing", Refusing, clobber=True)
    with pytest.raises(SourceError) as refused:
        roofline.read("refusing://bucket/ops.csv")
    assert str(refused.value) == (
        "refusing://bucket/ops.csv: cannot read: RuntimeError: Anonymous caller does not have storage.objects.get access; "
        "check the URL and your credentials"
    )
