"""Seconds that a search of plans takes, in this process, the first time: python benchmarks/plan_speed.py"""

import time

import roofline as rl

start = time.perf_counter()
plans = rl.plan("deepseek-v3", "gb300", 256, batch=4096, seq=16384, format="bf16,mxfp8", recompute="none,selective,full", microbatch="1,2")
seconds = time.perf_counter() - start
print(f"{plans.tried:,} plans in {seconds:.2f} s ({len(plans.plans):,} of them fit): {4000 * seconds / plans.tried:.2f} s for 4,000")
