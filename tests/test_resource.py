"""Resources know their unit and what they are counted in."""

import copy
import pickle

import pytest

from every import every
from roofline.errors import UnitError
from roofline.resource import Resource, matrix, vector


@every(
    ("name", "unit", "measure"),
    [
        ("matrix/bf16", "matrix", "FLOP"),
        ("vector/transcendental", "vector", "FLOP"),
        ("hbm", "hbm", "B"),
        ("vmem.read", "vmem.read", "B"),
        ("ici", "ici", "B"),
        ("ici/hop", "ici", "hop"),
    ],
)
def test_the_part_before_the_slash_is_the_unit(name: str, unit: str, measure: str) -> None:
    resource = Resource(name)
    assert (resource.unit, resource.measure, resource.per) == (unit, measure, f"{measure}/s")


def test_a_resource_is_compute_memory_or_link_and_only_one_of_them() -> None:
    for name in ("matrix/fp8", "vector/fp32", "hbm", "l2", "host", "nvlink", "xgmi.package", "pcie"):
        resource = Resource(name)
        assert [resource.is_compute, resource.is_memory, resource.is_link].count(True) == 1


def test_transcendentals_are_compute_but_not_arithmetic() -> None:
    assert Resource("vector/transcendental").is_compute
    assert not Resource("vector/transcendental").is_arithmetic


def test_number_formats_name_the_roof_they_run_under() -> None:
    assert matrix("f8e4m3fn").name == "matrix/fp8"
    assert vector("float32").name == "vector/fp32"


@every("name", ["", "/bf16", "HBM", "matrix/", "a b", "../x", "é", "a/b/c", "a/b.c", "9a", "a\n", None, ["hbm"]])
def test_a_misspelt_resource_is_refused(name: object) -> None:
    with pytest.raises(UnitError, match="is not a resource"):
        Resource(name)  # type: ignore[arg-type]


def test_a_resource_is_one_object_however_it_was_made() -> None:
    assert Resource("hbm") is Resource("hbm") is copy.deepcopy(Resource("hbm")) is pickle.loads(pickle.dumps(Resource("hbm")))
