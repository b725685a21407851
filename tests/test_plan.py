"""`roofline plan` and `rl.plan`: what is tried, ranked, shown and written."""

import csv
import io
import json
from pathlib import Path

import jsonschema
import pytest
from msgspec.structs import replace

import roofline as rl
from roofline.cli import main
from roofline.cli.plan import run as main_plan
from roofline.errors import RooflineError, UsageError
from roofline.plan.plans import EQUAL, Compiled
from roofline.plan.question import sequences
from roofline.plan.schedule import spans
from roofline.render.export import to_json
from roofline.render.page.html import escaped
from roofline.render.plan.training import FORMULAS, MEMORY, compiled_text, plans_text, reason
from roofline.render.schema import plan_schema
from roofline.units import percent, show

WORDS = ["plan", "llama3-8b", "h100", "x16", "--batch", "64", "--seq", "8192"]
CONTRACT = "mesh microbatch recompute format step_s low_s high_s tokens_per_s_per_chip mfu memory exposed assumed"


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*WORDS, *words]) == 0
    return capsys.readouterr().out


def test_plans_use_all_devices_fit_and_come_fastest_first() -> None:
    plans = rl.plan("llama3-8b", "h100", 16, batch=64, seq=8192)
    assert len(plans.plans) > 20
    for plan in plans.plans:
        mesh = plan.mesh
        assert mesh["tp"] * mesh["pp"] * mesh["cp"] * mesh["fsdp"] * mesh["data"] == 16
        assert 64 % (plan.microbatch * mesh["fsdp"] * mesh["data"]) == 0
        assert plan.memory["total"] <= 1.15 * plans.capacity
        assert plan.low_s < plan.step_s < plan.high_s
        assert plan.step_s == pytest.approx(sum(plan.parts.values()))
        assert plan.tokens_per_s_per_chip == pytest.approx(64 * 8192 / plan.step_s / 16)
    order = [(plan.fits != "yes", plan.step_s) for plan in plans.plans]
    assert order == sorted(order)


def test_what_is_given_is_kept() -> None:
    plans = rl.plan(
        "llama3-70b", "gb200", "x64", batch="2M tokens", mesh="pp=4", format="mxfp8", recompute="full", microbatch="1", most={"tp": 2}
    )
    assert plans.batch == 256  # 244.1, as a number that meshes divide
    assert {plan.mesh["pp"] for plan in plans.plans} == {4}
    assert max(plan.mesh["tp"] for plan in plans.plans) <= 2
    assert {(plan.format, plan.recompute, plan.microbatch) for plan in plans.plans} == {("mxfp8", "full", 1.0)}
    assert {plan.mesh["tp"] for plan in rl.plan("llama3-8b", "h100", 8, batch=8, no=["tp"]).plans} == {1}


def test_axes_that_are_given_are_never_dropped() -> None:
    for mesh, message in (
        ("tp=8 pp=8 fsdp=1 data=2", "128 devices do not divide 64"),
        ("vp=2 pp=1", "no mesh of 64 devices"),
        ("ep=8", "ep=8, but llama3-8b has no experts"),
        ("tp=1 pp=1 cp=1 fsdp=64 data=1", "not whole microbatches of 3 on each of 64 ranks"),
    ):
        with pytest.raises(UsageError, match=message):
            rl.plan("llama3-8b", "h100", 64, batch=256, mesh=mesh, microbatch=3 if "cp" in mesh else 1)
    fewer = rl.plan("llama3-8b", "h100", 64, batch=128, mesh="tp=1 pp=1 cp=1 fsdp=64 data=1", microbatch=3).best
    assert fewer.microbatch == 2
    assert fewer.assumed[-1].startswith("microbatches of 2: a rank has no more sequences")
    virtual = rl.plan("llama3-8b", "h100", 64, batch=256, mesh="vp = 4", microbatch=1)
    assert all(plan.mesh["vp"] == 4 and plan.mesh["pp"] > 1 for plan in virtual.plans)
    assert {plan.mesh["data"] for plan in rl.plan("llama3-8b", "h100", 64, batch=256, mesh="fsdp=rest").plans} == {1}


def test_the_words_of_the_reference_are_understood() -> None:
    words = ["--nic", "50 GB/s", "--tokens", "15T", "--price", "2.5 USD/h", "--mesh", "pp=2, tp=4 data=rest", "--top", "1"]
    assert main(["plan", "llama3-8b", "h100", "x64", "train", "--batch", "256", *words]) == 0
    cube = rl.plan("llama3-8b", "v5p", "4x4x4", batch=256)
    assert (cube.chips, cube.plans) == (64, rl.plan("llama3-8b", "v5p:4x4x4", batch=256).plans)


def test_values_of_python_are_the_words_of_options(tmp_path: Path) -> None:
    words = rl.plan("llama3-8b", "h100", "x8", batch="64", mesh="tp=2 fsdp=4", format="bf16,fp8", recompute="0.35,full", no=["pp", "cp"])
    values = rl.plan(
        "llama3-8b", "h100", 8.0, batch=64.0, mesh={"tp": 2, "fsdp": 4}, format=["bf16", "fp8"], recompute=[0.35, "full"], no="pp,cp"
    )
    assert values == words
    offloading = rl.plan("llama3-8b", "h100", 8, batch=64, recompute=1.0, microbatch=1.0, settings={"offload": True, "routing": 1.5}).best
    assert "no activations in host memory" not in offloading.assumed
    with pytest.raises(RooflineError, match="no such file"):
        rl.plan(tmp_path / "config.json", "h100", 8)


def test_a_whole_mesh_is_predicted_even_where_it_does_not_fit() -> None:
    plans = rl.plan("llama3-405b", "h100", 16, batch=16, mesh="tp=8 pp=1 cp=1 fsdp=rest data=1", microbatch=1, recompute="none")
    assert [plan.fits for plan in plans.plans] == ["needs offload"]
    over = show(plans.best.memory["total"] - plans.capacity, "B", 3)
    assert f"does not fit without offload of {over} of activations or optimizer" in " ".join(plans_text(plans).split())
    assert plans.plans[0].mesh["fsdp"] == 2
    with pytest.raises(UsageError, match=r"none of .* plans fits"):
        rl.plan("llama3-405b", "h100", 16, batch=16)


def test_meshes_count_devices_and_chips_count_chips() -> None:
    plans = rl.plan("llama3-70b", "v7x", 64, batch=256, mesh="tp=1 pp=1 cp=1 fsdp=rest data=1", recompute="full", microbatch=2)
    assert (plans.chips, plans.devices, plans.plans[0].mesh["fsdp"]) == (64, 128, 128)
    assert plans.plans[0].tokens_per_s_per_chip == pytest.approx(256 * 8192 / plans.plans[0].step_s / 64)
    sliced = rl.plan("llama3-8b", "2x v5p:4x4x4", batch=256)
    assert (sliced.chips, sliced.slices) == (128, 2)
    assert sliced.plans[0].exposed["data"] > 0


def test_an_anchor_corrects_every_plan_and_narrows_the_interval() -> None:
    mesh = {"batch": 64, "seq": 8192, "recompute": "none", "microbatch": 1}
    plain = rl.plan("llama3-8b", "h100", 16, **mesh)
    chosen = next(plan for plan in plain.plans if plan.mesh["tp"] == 2 and plan.mesh["data"] == 8)
    anchored = rl.plan("llama3-8b", "h100", 16, anchor=f"tp=2 data=rest mbs=1: {1.25 * chosen.step_s} s", **mesh)
    for before, after in zip(plain.plans, anchored.plans, strict=True):
        assert after.step_s == pytest.approx(1.25 * before.step_s)
        assert sum(after.parts.values()) == pytest.approx(after.step_s)
        assert after.high_s / after.low_s < before.high_s / before.low_s
    assert "every plan takes 125% of its prediction" in anchored.anchor
    # A published row: other chips, batch and length, and its rate in tokens per second and chip
    row = rl.plan("llama3-8b", "h100", 64, batch=512, seq=4096, mesh="tp=1 pp=1 cp=1 fsdp=64 data=1", recompute="full", microbatch=2).best
    words = f"fsdp=64 data=1 chips=64 batch=512 seq=4096 recompute=full mbs=2: {row.tokens_per_s_per_chip / 1.25} tokens/s"
    published = rl.plan("llama3-8b", "h100", 16, anchor=words, **mesh)
    assert published.best.step_s == pytest.approx(anchored.best.step_s)
    for wrong, message in (
        ("tp=2", "write the run and its time"),
        ("tp=2: fast", "--anchor"),
        ("tp=2: 0 s", "positive"),
        ("tp=2 seq=x: 1 s", "seq=x: a positive whole number"),
        ("tp=3: 1 s", "no multiple"),
    ):
        with pytest.raises(RooflineError, match=message):
            rl.plan("llama3-8b", "h100", 16, anchor=wrong, **mesh)


def test_an_anchor_may_be_a_profile(capsys: pytest.CaptureFixture[str]) -> None:
    profile = next((Path(rl.__file__).parent / "samples").glob("train*.pb.gz"))
    step = next(point.time_s for point in rl.analyze(profile).points if point.scope == "average")
    text = said(capsys, "--anchor", f"fsdp=16 mbs=1: {profile}")
    mesh = ("--mesh", "tp=1 pp=1 cp=1 fsdp=16 data=1", "--microbatch", "1")
    assert said(capsys, "--anchor", str(profile), *mesh) == said(capsys, "--anchor", f"fsdp=16 mbs=1: {profile}", *mesh)
    assert step
    assert f"{show(step, 's', 3)} measured" in text


def test_batches_are_sequences_or_tokens() -> None:
    assert sequences("1536", 8192) == sequences("1536 sequences", 8192) == sequences(1536, 1) == 1536
    assert sequences("1,536", 1) == sequences("1.536e3", 1) == 1536
    assert sequences("4M tokens", 8192) == sequences("4M", 8192) == 512
    for wrong in ("many", "-3", "1.5"):
        with pytest.raises(UsageError, match="--batch"):
            sequences(wrong, 8192)


def test_the_interval_widens_where_nothing_was_published() -> None:
    known, unknown = (rl.plan("llama3-8b", chip, 8, batch=8, network="50 GB/s").plans[0] for chip in ("h100", "h20"))
    assert unknown.high_s / unknown.step_s > known.high_s / known.step_s


def test_the_first_screen_says_the_best_plan_its_interval_and_what_was_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "--tokens", "15T", "--price", "2")
    best = rl.plan("llama3-8b", "h100", 16, batch=64, seq=8192).best
    assert text.startswith("llama3-8b (8.03 G parameters, ")
    assert f"Best plan: {best.name}, microbatch" in text
    assert "15 T tokens: " in text
    assert "Assumed: the software of megatron; CUDA graphs unknown" in text
    equal = [line for line in text.splitlines() if " = " in line and line[:1].isdigit()]
    plans = rl.plan("llama3-8b", "h100", 16, batch=64, seq=8192)
    assert len(equal) == sum(plan.step_s <= best.step_s * (1 + EQUAL) for plan in plans.plans[1:8])


def test_every_term_and_every_byte_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    plans = rl.plan("qwen3-30b", "gb200", 64, batch=512, seq=16384, format="nvfp4", mesh="tp=2 pp=2 cp=2 ep=8 data=rest fsdp=1")
    assert main(["plan", "qwen3-30b", "gb200", "x64", "--batch", "512", "--seq", "16384", "--format", "nvfp4", "--mesh",
                 "tp=2 pp=2 cp=2 ep=8 data=rest fsdp=1", "--explain", "1"]) == 0  # fmt: skip
    text = capsys.readouterr().out
    for part in plans.plans[0].parts:
        assert f"\n{part} " in text
        assert FORMULAS[part][0] in text
    for part in plans.plans[0].memory:
        assert MEMORY[part] in text
    # the other figures of the first screen, and the calibrated values of this chip, stack and format alone
    best = plans.best
    for figure in (show(plans.flops_per_token, "FLOP", 4), f"{best.tokens_per_s_per_chip:,.1f}", percent(best.exposed_s / best.step_s)):
        assert figure in text
    assert {"products.blackwell.nvfp4", "products.blackwell.bf16", "clock.gb200", "rest.megatron", "experts.gpu"} <= plans.constants.keys()
    assert not {"products.hopper.bf16", "products.blackwell.fp8", "clock.gb300", "experts.tpu", "attention.tpu"} & plans.constants.keys()
    assert f"products.blackwell.nvfp4 {plans.constants['products.blackwell.nvfp4']:.3g}" in text


def test_every_formula_names_a_function() -> None:
    from importlib import import_module

    for _, where in FORMULAS.values():
        module, _, function = where.partition(".")
        assert callable(getattr(import_module(f"roofline.plan.{module}"), function))


def test_two_plans_are_compared_part_by_part(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "--compare", "1", "9")
    plans = rl.plan("llama3-8b", "h100", 16, batch=64, seq=8192)
    assert f"1: {plans.plans[0].name}" in text
    assert f"9: {plans.plans[8].name}" in text
    assert "Plan 9 takes" in text


def test_each_slower_plan_says_which_part_takes_longer() -> None:
    plans = rl.plan("llama3-8b", "h100", 16, batch=64, seq=8192)
    recomputing = next(plan for plan in plans.plans if plan.recompute == "full" and plan.mesh == plans.best.mesh)
    assert reason(plans.best, recomputing).startswith("recomputation +")
    assert reason(plans.best, plans.best) == ""


def test_requirements_decide_the_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*WORDS, "--require", "step < 100 s", "--require", "mfu > 5%", "--require", "memory < 80 GB"]) == 0
    assert main([*WORDS, "--require", "step < 1 ms"]) == 3
    assert "not met by the best plan: step < 1 ms" in capsys.readouterr().err


def test_json_has_the_contract_and_csv_a_row_per_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    found = json.loads(said(capsys, "--json", "-", "--csv", str(tmp_path / "plans.csv")))
    assert found["schema"] == "roofline.plan/1"
    for plan in found["plans"]:
        assert set(plan) >= set(CONTRACT.split())
        assert plan["memory"]["total"] == pytest.approx(sum(plan["memory"][part] for part in list(plan["memory"])[:6]))
    rows = list(csv.DictReader(io.StringIO((tmp_path / "plans.csv").read_text())))
    assert len(rows) == len(found["plans"])
    assert float(rows[0]["step_s"]) == found["plans"][0]["step_s"]


def test_the_schema_in_the_package_describes_what_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    schema = json.loads((Path(rl.__file__).parent / "plan.schema.json").read_text())
    assert schema == plan_schema(), "write it again: make schema"
    served = ["plan", "llama3-8b", "h100", "x1", "serve", "--json", "-"]
    for words in ([*WORDS, "--json", "-"], served):
        assert main(words) == 0
        jsonschema.validate(json.loads(capsys.readouterr().out), schema)


def test_programs_stand_beside_plans_and_a_difference_is_explained() -> None:
    plans = rl.plan("llama3-8b", "v5e", 64, batch=64, recompute="full", microbatch=1)
    best = plans.best
    near = Compiled(step_s=1.1 * best.step_s, low_s=best.step_s, high_s=1.2 * best.step_s, terms={"core": best.step_s})
    far = Compiled(
        step_s=9 * best.step_s, low_s=8 * best.step_s, high_s=9.5 * best.step_s, terms={"core": 1.0, "links up": 8 * best.step_s}
    )
    for program, explained in ((near, False), (far, True)):
        compared = replace(plans, plans=(replace(best, compiled=program), *plans.plans[1:]))
        text = compiled_text(compared)
        assert f"{show(program.step_s, 's', 3)}" in text
        assert ("the intervals do not meet. The program's largest term is links up" in text) == explained
        assert json.loads(to_json(compared))["plans"][0]["compiled"]["step_s"] == program.step_s
    assert compiled_text(plans) == ""
    with pytest.raises(UsageError, match="compiled for slices of TPUs, not for h100-sxm"):
        main_plan([*WORDS[1:], "--program", "math:sqrt"])


def test_the_page_holds_the_json_and_a_step_of_every_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, data = tmp_path / "plans.html", tmp_path / "plans.json"
    said(capsys, "-o", str(page), "--json", str(data), "--mesh", "pp=4")
    text = page.read_text()
    assert f'<script type="application/json" id="plans">{escaped(data.read_bytes())}</script>' in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    with pytest.raises(UsageError, match=r"does not end in \.html"):
        main_plan([*WORDS[1:], "-o", "plans.png"])


def test_stages_start_later_and_wait_as_long() -> None:
    plan = rl.plan("llama3-8b", "h100", 16, batch=64, mesh="tp=1 pp=4 vp=1 cp=1 fsdp=1 data=rest", recompute="none", microbatch=1).best
    found = spans(plan)
    rows = [[span for span in found if span.stage == stage] for stage in range(4)]
    for row in rows:
        assert sum(span.time_s for span in row) == pytest.approx(plan.step_s)
        waits = sum(span.time_s for span in row if span.part == "wait")
        assert waits == pytest.approx(plan.bubble_s)
    begins = [next(span.start_s for span in row if span.part != "wait") for row in rows]
    assert begins == sorted(set(begins))


def test_a_config_file_is_planned_like_a_name(tmp_path: Path) -> None:
    keys = {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8}
    (tmp_path / "config.json").write_text(json.dumps(keys | {"intermediate_size": 14336, "vocab_size": 128256}))
    by_file, by_name = (rl.plan(model, "h100", 8, batch=64) for model in (str(tmp_path), "llama3-8b"))
    assert by_file.plans == by_name.plans


def test_wrong_words_are_errors_with_the_words_that_are_known() -> None:
    for words, message in (
        (["llama3-8", "h100", "x8"], "no model named 'llama3-8'; did you mean 'llama3-8b'"),
        (["llama3-8b", "h10", "x8"], "no machine named 'h10'; did you mean 'h100-sxm'"),
        (["llama3-8b", "h100"], "how many chips"),
        (["llama3-8b", "h100", "many"], "number of chips"),
        (["llama3-8b", "h100", "x8", "--mesh", "tq=2"], "with an axis of tp, pp, vp, cp, ep, fsdp, data"),
        (["llama3-8b", "h100", "x8", "--format", "fp6"], "one of bf16, fp8, fp8row, fp8block, mxfp8, nvfp4, int8"),
        (["llama3-8b", "a100-80", "x8", "--format", "fp8"], "no matrix rate for fp8"),
        (["llama3-8b", "h100", "x8", "--stack", "nanotron"], "one of megatron, torchtitan"),
        (["llama3-8b", "h100", "x8", "--set", "graphs=some"], "one of none, layers, step, unknown"),
        (["llama3-8b", "h100", "x8", "--set", "speed=9"], "one of graphs, exchange-overlap, async-tp, offload, routing"),
        (["llama3-8b", "h100", "x8", "--set", "routing=0"], "1 or more"),
        (["llama3-8b", "h100", "x8", "--network", "0 GB/s"], "more than 0 bytes a second"),
        (["llama3-8b", "h100", "x8", "--recompute", "most"], "one of layernorm"),
        (["llama3-8b", "h100", "x8", "--require", "speed > 3"], "a name of step"),
        (["llama3-8b", "h100", "x8", "--explain", "100000"], "there are plans 1 to"),
        (["llama3-8b", "h100", "x7", "--batch", "64"], "no mesh of 7 devices divides 64 sequences"),
        (["qwen3-30b", "h100", "x8", "--mesh", "tp=1 pp=1 cp=1 ep=512 fsdp=8 data=1"], "ep=512 is more than the 8 ranks"),
    ):  # fmt: skip
        with pytest.raises(RooflineError, match=message):
            main_plan(words)
