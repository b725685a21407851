"""What a thread does is told by the names of its open events."""

from every import every
from roofline.sources.host_activity import Activity, activity

CALL = ["step", "$train.py:52 main", "PjitFunction(update)", "PjRtCApiLoadedExecutable::Execute", "[0] GpuExecutable::ExecuteThunks"]


@every(
    ("stack", "told"),
    [
        ([], Activity()),
        (["step"], Activity()),
        (["step", "$train.py:52 main"], Activity("python", "main", "train.py:52")),
        # A library works for its caller, and is what the caller called.
        (["$data.py:9 augment", "$numeric.py:1226 roll", "$builtins len"], Activity("python", "augment", "data.py:9", "roll")),
        (["$data.py:9 load", "$time sleep"], Activity("python", "load", "data.py:9", "time.sleep")),
        # A generator goes by the function around it, at its own line.
        (["$log.py:3 write", "$<unknown> join", "$log.py:5 <genexpr>"], Activity("python", "write", "log.py:5")),
        (CALL, Activity("launch", "main", "train.py:52", program="update")),
        ([*CALL[:3], "CommonPjRtClient::BufferFromHostBuffer"], Activity("copy", "main", "train.py:52", program="update")),
        (["$train.py:52 main", "$array_methods.py:302 _mean"], Activity("launch", "main", "train.py:52")),
        (
            ["$train.py:52 main", "$array_methods.py:876 set", "$scatter.py:40 _scatter_update", "$scatter.py:95 _scatter_impl"],
            Activity("launch", "main", "train.py:52"),
        ),
        # JAX's own random numbers, which no program of the user was traced from.
        (
            ["$train.py:52 main", "$random.py:236 split", "$prng.py:636 random_split", "$threefry2x32.py:312 threefry_split"],
            Activity("launch", "main", "train.py:52"),
        ),
        (
            [*CALL, "pure_callback.1", "$callback.py:224 _callback", "$train.py:9 on_host"],
            Activity("callback", "on_host", "train.py:9", detail="inside"),
        ),
        ([*CALL, "pure_callback.1"], Activity("callback", "main", "train.py:52")),
        (["$train.py:52 main", "$array.py:293 __float__", "$array.py:629 _value"], Activity("wait", "main", "train.py:52", detail="float")),
        (["$train.py:52 main", "$api.py:2757 block_until_ready"], Activity("wait", "main", "train.py:52")),
        (
            ["$train.py:52 main", "$array.py:333 __getitem__", "$indexing.py:277 expand_bool_indices", "$array.py:629 _value"],
            Activity("wait", "main", "train.py:52", detail="mask"),
        ),
        (["CommonPjRtBuffer::Await"], Activity("wait")),
        (["cuStreamSynchronize"], Activity("wait")),
        (["H2D Dispatch", "Transpose::Execute"], Activity("copy")),
        (
            ["$train.py:52 main", "PjitFunction(update)", "$pjit.py:257 cache_miss", "PJRT_Client_Compile", "HLO Transforms:jit_update"],
            Activity("compile", "main", "train.py:52", detail="update"),
        ),
        (
            ["$train.py:52 main", "PjitFunction(update)", "$pjit.py:9 _trace_to_jaxpr"],
            Activity("compile", "main", "train.py:52", detail="update"),
        ),
        (["PjRtCpuClient::Compile", "HLO Transforms:jit_f"], Activity("compile", detail="f")),
    ],
)
def test_a_stack_says_what_its_thread_does(stack: list[str], told: Activity) -> None:
    assert activity(stack) == told


def test_a_file_that_programs_come_from_is_the_users_whatever_its_name() -> None:
    stack = ["$train.py:1 main", "$core.py:7 advance"]
    assert activity(stack).location == "train.py:1"
    assert activity(stack, {"core.py"}) == Activity("python", "advance", "core.py:7")


@every(
    ("stack", "told"),
    [
        (["$train.py:3 main", "$util.py:8 prepare", "$time sleep"], Activity("python", "prepare", "util.py:8", "time.sleep")),
        (["$train.py:3 main", "$core.py:8 get", "$queue.py:154 get"], Activity("python", "get", "core.py:8", "get")),
        (["$train.py:3 main", "$util.py:8 load_batch"], Activity("python", "load_batch", "util.py:8")),
        (["$util.py:8 load_batch", "$util.py:90 read", "$json loads"], Activity("python", "read", "util.py:90", "json.loads")),
        # What a framework does with its own files is launching.
        (["$train.py:3 main", "$core.py:8 bind", "$util.py:302 wrapper"], Activity("launch", "main", "train.py:3")),
        (["$train.py:3 main", "$util.py:8 wrapper", "$builtins isinstance"], Activity("launch", "main", "train.py:3")),
        (["$train.py:3 main", "$pjit.py:8 call", "$util.py:90 sleep", "$time sleep"], Activity("launch", "main", "train.py:3")),
    ],
)
def test_files_of_the_user_that_are_called_like_those_of_a_framework(stack: list[str], told: Activity) -> None:
    assert activity(stack) == told
