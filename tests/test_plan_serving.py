"""Serving plans: the step by hand, memory of keys and values, objectives, and the public rows where their table is."""

import json
import re
import sys
from pathlib import Path

import pytest

import roofline as rl
from roofline.cli import main
from roofline.errors import UsageError
from roofline.plan.catalogue import load_model
from roofline.plan.chips import chips_of
from roofline.plan.serving import GPU_ENGINES, HOST_S, TPU_ENGINES, Replica, Server
from roofline.plan.serving_plans import asked_objective
from roofline.plan.words import FORMATS

ROOT = Path(__file__).parent.parent
ROWS = ROOT.parent / "shared" / "data" / "third_party" / "silicon" / "silicon_refs.csv"


def test_a_step_reads_the_weights_and_the_cache_once() -> None:
    model = load_model("llama3-8b")
    server = Server(model, chips_of("h100", 1))
    replica = Replica(tensor=1, batch=1, prompt=1000, answer=1000, format=FORMATS["bf16"])
    served = server.serve(replica)
    # All weights but the embedding once at 3.35 TB/s, and not much more: kernels reach 0.8 of the bandwidth
    least = 2 * (model.parameters - model.embedding) / 3.35e12
    assert least < served.parts["products"] + served.parts["head"] < 1.5 * least
    assert served.parts["kernels"] == pytest.approx(32 * 8 * GPU_ENGINES.kernel_s)
    assert served.parts["host"] == HOST_S
    assert "exchange" not in served.parts or served.parts["exchange"] == 0
    assert served.tpot_s == pytest.approx(sum(served.parts.values()))
    # 8 heads of 128, keys and values, in 2 bytes, 32 layers, 2000 tokens
    assert served.kv == 2 * 8 * 128 * 2 * 32 * 2000
    assert served.parts["others' prefills"] == pytest.approx(served.prefill_s / 1000)


def test_latent_keys_are_not_split_and_windows_bound_the_cache() -> None:
    deepseek = Server(load_model("deepseek-v3"), chips_of("h200", 8))
    replica = Replica(tensor=8, batch=1, prompt=1000, answer=24, format=FORMATS["fp8"])
    assert deepseek.kv_bytes(replica) == 61 * (512 + 64) * 2 * 1024
    oss = Server(load_model("gpt-oss-120b"), chips_of("h100", 8))
    assert oss.kv_bytes(replica) == (18 * 128 + 18 * 1024) * 2 * 64 * 2  # one head of keys a device, windows of 128


def test_tpus_serve_with_the_engines_of_their_kind() -> None:
    # Published: 32.9 ms per token with 31 sequences (vLLM, Llama 3.1 8B on a v6e); 135 sequences on the two devices of a v7x in fp8,
    # 1,024 tokens in and 8,192 out, give 3,960 tokens a second
    llama = rl.plan_serving("llama3-8b", "v6e", 1, prompt=1800, answer=128, batch=31).best
    assert llama.low_s < 32.89e-3 < llama.high_s
    assert llama.parts["kernels"] == pytest.approx(32 * 8 * TPU_ENGINES.kernel_s)
    qwen = rl.plan_serving("qwen3-32b", "v7x", 1, prompt=1024, answer=8192, batch=135, format="fp8", kv="fp8", mesh="tp=2").best
    assert qwen.low_s < 135 / 3960 < qwen.high_s
    assert qwen.tokens_per_s_per_chip == pytest.approx(135 / qwen.tpot_s)
    # What the weights leave of 0.98 of a device's 96 GiB, less 1 GB
    assert qwen.most == (0.98 * 96 * 2**30 - 1e9 - qwen.weights) // qwen.kv


def test_every_figure_of_a_serving_plan_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "llama3-70b", "v6e", "x16", "serve", "--format", "fp8", "--price", "3", "--rate", "2"]
    assert main([*words, "--explain", "1"]) == 0
    text = capsys.readouterr().out
    for name in ("products", "attention", "exchange", "others' prefills", "KV of a sequence", "interval", "chips needed", "million tokens"):
        assert re.search(rf"^{name} +\S.* \d", text, re.MULTILINE), name
    assert main([*words, "--explain", "2"]) == 0
    assert "requests/s" not in capsys.readouterr().out  # that of the best plan
    assert main([*words, "--explain", "99"]) == 2
    assert "there are plans 1 to" in capsys.readouterr().err


def test_more_sequences_take_longer_and_bring_more() -> None:
    plans = rl.plan_serving("llama3-70b", "h100", 8, prompt=1024, answer=512, format="fp8", mesh="tp=8")
    times = [served.tpot_s for served in plans.batches]
    assert times == sorted(times)
    rates = [served.tokens_per_s_per_chip for served in plans.batches]
    assert rates == sorted(rates)
    assert plans.best.batch <= plans.best.most


def test_the_best_is_the_largest_batch_under_the_objective() -> None:
    plans = rl.plan_serving("llama3-70b", "h100", 8, prompt=1024, answer=1024, format="fp8", slo="tpot<20ms", rate=10)
    assert plans.best.tpot_s <= 20e-3
    more = rl.plan_serving("llama3-70b", "h100", 8, prompt=1024, answer=1024, format="fp8", mesh=f"tp={plans.best.mesh['tp']}",
                           batch=plans.best.batch + 1)  # fmt: skip
    assert more.best.tpot_s > 20e-3
    # 10 requests a second of 1024 tokens, over what a replica brings, in whole replicas
    per_replica = plans.best.batch / plans.best.tpot_s
    assert plans.chips_needed == -(-10 * 1024 // per_replica) * plans.best.mesh["tp"]
    missed = rl.plan_serving("llama3-70b", "h100", 8, slo="tpot<1ms")
    assert not missed.meets(missed.best)


def test_replicas_that_prefill_apart_keep_up_with_those_that_decode() -> None:
    given = {"format": "fp8", "mesh": "tp=2", "batch": "1..64"}
    together = rl.plan_serving("llama3-70b", "h200", 64, **given)
    apart = rl.plan_serving("llama3-70b", "h200", 64, split="prefill,decode", rate=40, **given)
    assert [served.batch for served in apart.batches] == [1, 2, 4, 8, 16, 32, 64]
    assert apart.best.tpot_s == pytest.approx(together.best.tpot_s - together.best.parts["others' prefills"])
    assert apart.best.tokens_per_s_per_chip == pytest.approx(together.best.tokens_per_s_per_chip)
    # 32 replicas: as many requests are prefilled as decoded, in whole replicas
    decoded = 64 / (1000 * apart.best.tpot_s)
    assert apart.prefill_replicas
    assert apart.requests_per_s == min(apart.prefill_replicas / apart.best.prefill_s, (32 - apart.prefill_replicas) * decoded)
    assert 0.9 * together.requests_per_s < apart.requests_per_s <= together.requests_per_s
    # 40 requests a second: replicas that prefill, and replicas that decode, each whole
    assert apart.chips_needed == 2 * (-(-40 * apart.best.prefill_s // 1) + -(-40 // decoded))


def test_state_space_layers_keep_a_state_of_one_size() -> None:
    server = Server(load_model("nemotron3-nano"), chips_of("h200", 1))
    short, long = (Replica(tensor=1, batch=1, prompt=length, answer=1000, format=FORMATS["bf16"]) for length in (1000, 9000))
    # 6 layers of attention with 2 heads of 128; the states of 23 layers, 64 heads of 64 channels with 128 states in fp32, do not grow
    assert server.kv_bytes(long) - server.kv_bytes(short) == 6 * 2 * 2 * 128 * 2 * 8000
    assert server.kv_bytes(short) == 6 * 2 * 2 * 128 * 2 * 2000 + 23 * 64 * 64 * 128 * 4


def test_objectives_and_sizes_that_cannot_be_are_errors() -> None:
    assert asked_objective("ttft<1s tpot<30ms") == {"ttft": 1.0, "tpot": 0.03}
    with pytest.raises(UsageError, match="write ttft or tpot < TIME"):
        asked_objective("latency<1s")
    with pytest.raises(UsageError, match="does not fit"):
        rl.plan_serving("deepseek-v3", "h100", 4)
    for option, message in (
        ({"mesh": "tp=3"}, "8 devices are not whole replicas of 3"),
        ({"mesh": "ep=8"}, "split by tp alone"),
        ({"batch": 10**6}, "sequences fit a replica of"),
        ({"batch": "5..2"}, "such as 16 or 1..256"),
        ({"split": "prefill"}, "write prefill,decode"),
        ({"split": "prefill,decode", "mesh": "tp=8"}, "not two replicas of 8"),
    ):
        with pytest.raises(UsageError, match=message):
            rl.plan_serving("llama3-8b", "h100", 8, **option)


def test_the_command_prints_a_row_per_batch_and_writes_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "deepseek-r1", "h200", "x8", "serve", "--prompt", "1024", "--answer", "1024", "--format", "fp8", "--slo", "tpot<30ms"]
    assert main([*words, "--price", "3", "--rate", "12/s"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"Batch \d+ on replicas of 8 meets tpot < 30 ms: ", text)
    assert "12 requests/s need" in text
    assert "----" in text
    assert main([*words, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["task"]) == ("roofline.plan/1", "serve")
    assert found["plans"][0]["low_s"] < found["plans"][0]["tpot_s"] < found["plans"][0]["high_s"]


@pytest.mark.skipif(not ROWS.is_file(), reason="the table of served models is not there")
def test_public_rows_are_predicted(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    sys.modules.pop("plan_serving", None)
    import plan_serving

    plan_serving.main(str(ROWS))
    last = capsys.readouterr().out.splitlines()[-1]
    found = re.fullmatch(r"bf16 and fp8: (\d+) rows, mean ([\d.]+)%, .*; (\d+) within the interval", last)
    assert found, last
    assert float(found[2]) < 18
    assert 0.75 <= int(found[3]) / int(found[1]) <= 0.92
