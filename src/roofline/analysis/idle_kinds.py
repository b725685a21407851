"""Kinds of findings on idle time that are more specific than its reason: by the cause of the idle time, where it is known."""

from .. import workload
from .finding_kinds import Kind

# For idle-dispatch where a step is one program already.
ONE_PROGRAM = Kind(
    "the launch of each step, which takes longer on the host than the step takes on the device",
    "Run several steps in one call, or more rows in each",
    "the host was launching the single program of a step, in {activity}",
    ("a loop on the device (lax.scan, lax.fori_loop) around several steps", "fewer and larger arguments: stack the parameters of layers"),
)
# For the same where the launch takes milliseconds, as it does with thousands of arrays.
MANY_ARRAYS = Kind(
    ONE_PROGRAM.title,
    "Pass the program a few large arrays instead of many small ones",
    ONE_PROGRAM.phrase,
    ("stack small arrays: parameters of equal layers as one, or all of an optimizer's raveled into one vector", ONE_PROGRAM.levers[0]),
)
# For idle-sync where a step reads several values, each by a call of its own.
READ_ONE_BY_ONE = Kind(
    "the values that the host reads back one by one while the device waits",
    "Read them together, and some steps later or less often",
    "the host read values back one at a time, in {activity}",
    (
        "jax.device_get(metrics), which fetches all of them at once, instead of float() of each; every hundredth step",
        "log from another thread",
    ),
)
# For idle-transfer where data goes to the device and comes back.
BOTH_WAYS = Kind(
    "the copies between host and device that nothing overlaps",
    "Keep the data on the device, or copy it while the device computes",
    "the host moved data both ways, in {activity}",
    (
        "compute on the device instead of the host: NumPy functions; in JAX also boolean indices, with jnp.where or "
        "jnp.nonzero(mask, size=…) inside jit",
        "send data ahead of its use, and fetch results a step later",
    ),
)
BY_CAUSE = {
    # For idle-sync where the values are the sizes of results of boolean masks.
    workload.BY_A_MASK: Kind(
        "the boolean masks, whose lengths the host reads back while the device waits",
        "Compute on all elements and mask the result, so that the host reads no length back",
        "the host was in {activity}",
        ("jnp.where or torch.where instead of nonzero and boolean indexing, which jax.jit cannot compile",),
    ),
    # For idle-sync where an operator waits by itself.
    workload.BY_AN_OPERATOR: Kind(
        "the operators that wait for the device themselves",
        "Call an operator that does not wait, or call it less often",
        "the host was in {activity}",
        (
            "linear algebra: torch.backends.cuda.preferred_linalg_library('cusolver'), cholesky_ex; scatter_add_ instead of bincount; "
            "x.log().cumsum(…).exp() instead of cumprod, whose gradient looks for zeros",
            "call it once for several steps",
        ),
    ),
    # For idle-sync where the host reads how often rows are repeated.
    workload.BY_REPEATS: Kind(
        "the repeat counts, which the host reads back while the device waits",
        "Pass the operator the length of its result, so that the host reads nothing back",
        "the host was in {activity}",
        ("torch.repeat_interleave(x, repeats, output_size=…), or a gather by torch.searchsorted in the cumulative sum of repeats",),
    ),
    # For idle-sync where every gradient is checked.
    workload.CHECKS_GRADIENTS: Kind(
        "anomaly detection, which checks every gradient while the device waits",
        "Turn on anomaly detection only while looking for a NaN",
        "the host was in {activity}",
        ("remove torch.autograd.set_detect_anomaly(True) and detect_anomaly() from steps that should be fast",),
    ),
    # For idle-sync where every result is checked.
    workload.CHECKS_RESULTS: Kind(
        "the NaN checks, which copy every result to the host while the device waits",
        "Turn on NaN checks only while looking for a NaN",
        "the host was in {activity}",
        (
            "turn off jax_debug_nans and jax_debug_infs (JAX_DEBUG_NANS=1) for steps that should be fast",
            "return jnp.isfinite(loss) from the step and read it every hundredth step; jax.experimental.checkify for checks on the device",
        ),
    ),
    # For idle-transfer where most of the copies are from the device.
    workload.FETCHES: Kind(
        "the copies from the device that nothing overlaps",
        "Fetch only what the host needs, while the device runs the next step",
        "the host moved data, in {activity}",
        (
            "reduce it on the device first: the chosen tokens or a sum, not whole arrays",
            "start the copy when the step is launched and use it a step later: copy_to_host_async() in JAX, non_blocking=True in PyTorch",
        ),
    ),
    # For idle-transfer where a jitted function is called with arrays of the host.
    workload.PASSES_ARRAYS: Kind(
        "the host arrays that are passed to a jitted function, which copies them to the device in every call",
        "Keep arrays that do not change on the device, and send the others ahead",
        "the host moved data, in {activity}",
        (
            "jax.device_put once for what does not change (weights loaded as NumPy arrays are copied in every call), and for each batch "
            "ahead",
            "send narrower formats: uint8 images, int32 tokens",
        ),
    ),
    # For idle-transfer where small tensors are sent, each from memory that is not pinned.
    workload.SENDS: Kind(
        "the small copies to the device, each of which the host waits for",
        "Join them on the host, and copy once",
        "the host moved data, in {activity}",
        (
            "torch.stack(samples).to(device), as a DataLoader's collate_fn does, instead of torch.stack([x.to(device) for x in samples])",
            "pinned memory and non_blocking=True, with which the host does not wait; torch.tensor(values, device=…) for all values at once",
        ),
    ),
    # For idle-compile where a library times its kernels.
    workload.TRIES_KERNELS: Kind(
        "the autotuning of convolutions, which every new shape repeats",
        "Turn off autotuning, or give the library the same shapes every step",
        "the host ran {activity} to choose the fastest",
        ("torch.backends.cudnn.benchmark = False where sizes change from step to step", "pad or crop images to a few sizes"),
    ),
    # For idle-dispatch where torch.compile had graph breaks.
    workload.GRAPH_BREAK: Kind(
        "the compiled code between graph breaks, which the host launches piece by piece",
        "Remove the graph breaks, so that the function compiles as one graph",
        "the host was launching kernels one by one, in {activity}",
        (
            "TORCH_LOGS=graph_breaks says why: print, .item(), branches on values, calls of other libraries",
            "torch.compile(model, mode='reduce-overhead') once there are no graph breaks",
        ),
    ),
    # For idle-sync where the host waits for memory.
    workload.ALLOCATES: Kind(
        "memory that is allocated and freed in every step, while the device waits",
        "Reuse the memory from one step to the next",
        "the host was in {activity}",
        (
            "do not call torch.cuda.empty_cache() in steps: the allocator reuses freed memory",
            "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where sizes change from step to step",
        ),
    ),
    # For idle-input where an operator computes on the host.
    workload.COMPUTES: Kind(
        "the operators that compute on the host, while the device waits",
        "Compute it on the device, or ahead of time",
        "the host was in {activity}",
        (
            "make tensors on the device: torch.randn(…, device='cuda') instead of torch.randn(…).to('cuda')",
            "do what must run on the host in DataLoader workers, some batches ahead",
        ),
    ),
    # For idle-input where the profile does not show what the host did.
    workload.UNSEEN: Kind(
        "host code between launches, while the device waits",
        "Do that work ahead of time, or in another thread",
        "the host was in {activity}",
        ("record Python calls to see which code it is",),
    ),
}
