"""Tiles of matrix products, and the chips they are made for, read from the names that libraries give their kernels.

>>> tile_of("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopB_NNT")
Tile(rows=256, columns=128, split=None)
>>> tile_of("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize64x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas")
Tile(rows=64, columns=128, split=None)
>>> tile_of("ampere_bf16_s16816gemm_bf16_128x64_sliced1x2_ldg8_f2f_stages_64x5_tn")
Tile(rows=128, columns=64, split=None)
>>> tile_of("void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x128_16x3_nn_align4>(cutlass::Params)")
Tile(rows=256, columns=128, split=None)
>>> tile_of("loop_add_fusion") is None
True
>>> generation_of("cutlass_80_wmma_tensorop_i161616gemm_s8_forwardCompat_128x128_32x2_nn_align4"), generation_of("volta_sgemm_128x64_nn")
(8, 7)
"""

import re
from functools import lru_cache

from msgspec import Struct

_NAMES = (r"nvjet_(?:sm\d+_)?[a-z]+_(\d+)x(\d+)_\d+x\d+_", r"tilesize(\d+)x(\d+)x\d+", r"gemm_(?:[a-z0-9]+_)*?(\d+)x(\d+)_")
_GENERATION = r"\b(?:cutlass_|sm_?)(\d+)\d[a-z]?_|\b(volta|turing|ampere|hopper)_"
_NAMED = {"volta": 7, "turing": 7, "ampere": 8, "hopper": 9}
_SPLIT = r"[sS]plit[-_]?[kK][-_]?(\d+)"


class Tile(Struct, frozen=True):
    """Rows and columns of the result that one block computes, and into how many parts k is split, where the name says."""

    rows: int
    columns: int
    split: int | None = None


@lru_cache(maxsize=4096)
def tile_of(kernel: str) -> Tile | None:
    """The tile of a kernel; ``None`` where its name has none."""
    for pattern in _NAMES:
        if found := re.search(pattern, kernel):
            split = re.search(_SPLIT, kernel)
            return Tile(int(found[1]), int(found[2]), int(split[1]) if split else None)
    return None


def generation_of(kernel: str) -> int | None:
    """The major compute capability that a library's kernel is made for, where its name says so."""
    found = re.search(_GENERATION, kernel)
    if found is None:
        return None
    return int(found[1]) if found[1] else _NAMED[found[2]]
