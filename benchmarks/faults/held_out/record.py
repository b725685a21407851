"""record.py OUT WORKER OF: capture this worker's share; compile side by side, measure alone."""
import fcntl, glob, gzip, json, os, shutil, sys, time
import jax
import set_a, set_b, healthy
out, worker, of = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
limit = float(os.environ.get("LIMIT_S", 270)); begun = float(os.environ.get("BEGUN", time.time()))
steps = 5
jobs = []
for module in (set_a, set_b):
    for name in module.FAULTS:
        for fixed in (False, True): jobs.append((name + ".fixed" * fixed, lambda m=module, n=name, f=fixed: getattr(m, n)(f)))
jobs += [(h.__name__, h) for h in healthy.HEALTHY]
only = os.environ.get("ONLY", "").split()
lock = open("/tmp/jheld.lock", "w")
for name, make in jobs[worker::of]:
    if only and name.split(".")[0] not in only: continue
    if time.time() - begun > limit: print(name, "LEFT OUT", flush=True); continue
    try:
        t0 = time.time()
        fcntl.flock(lock, fcntl.LOCK_SH)
        step = make()
        for _ in range(3): last = step()
        jax.block_until_ready(last)
        fcntl.flock(lock, fcntl.LOCK_UN); fcntl.flock(lock, fcntl.LOCK_EX)
        times = []
        for _ in range(2):
            jax.block_until_ready(step()); t = time.perf_counter()
            for _ in range(steps): last = step()
            jax.block_until_ready(last); times.append((time.perf_counter() - t) / steps)
        jax.profiler.start_trace(f"{out}/{name}.raw")
        for i in range(steps):
            with jax.profiler.StepTraceAnnotation("step", step_num=i): last = step()
        jax.block_until_ready(last)
        jax.profiler.stop_trace()
        fcntl.flock(lock, fcntl.LOCK_UN)
        (found,) = glob.glob(f"{out}/{name}.raw/**/*.xplane.pb", recursive=True)
        with open(found, "rb") as f: packed = gzip.compress(f.read(), 6)
        shutil.rmtree(f"{out}/{name}.raw")
        if len(packed) < 1.5e6: open(f"{out}/{name}.xplane.pb.gz", "wb").write(packed)
        print(json.dumps(dict(name=name, step_ms=min(times) * 1e3, gz=len(packed), took=round(time.time() - t0, 1), at=round(time.time() - begun))), flush=True)
    except Exception as error:
        fcntl.flock(lock, fcntl.LOCK_UN)
        print("FAILED", name, type(error).__name__, str(error)[:400].replace("\n", " "), flush=True)
    step = last = None
    jax.clear_caches()
