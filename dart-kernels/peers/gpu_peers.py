#!/usr/bin/env python3
"""Peers of the GPU kernels on the same inputs, and the table of all.

    gpu_peers.py --ours gpu_check.json [--json FILE] [--quick]
    gpu_peers.py --self-test

`gpu_check --json` measures ours; this measures torch eager, torch.compile, a one-pass Triton kernel
written for this comparison, Liger and CCE where they can be imported, and the bare matrix products.
Inputs are a hash of a counter, the same bits as in examples/gpu_check/inputs.rs.

Exit code 0: the table was printed. 1: inputs differ from those of Rust. 2: no torch or no GPU.
"""

import argparse
import json
import statistics
import sys

try:
    import torch
except ImportError:
    torch = None

RUNS = 50
SHAPES = [(8192, 152064), (8192, 128256), (4096, 32768), (2048, 151936), (64, 152064)]
LINEAR_SHAPES = [(8192, 3584, 152064), (8192, 4096, 131072)]
NO_GPU = 2

# ---- inputs ----


def signed(number):
    """A 64-bit constant as torch's signed integers have it."""
    return number - 2**64 if number >= 2**63 else number


def shifted(x, by):
    """Logical shift to the right."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def hashes(stream, counters):
    x = counters + signed((stream * 0xD1342543DE82EF95 + 0x9E3779B97F4A7C15) % 2**64)
    x = (x ^ shifted(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ shifted(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ shifted(x, 31)


def normal(stream, first, count, device):
    """Nearly normal numbers of standard deviation 3, in f32."""
    bits = hashes(stream, torch.arange(first, first + count, dtype=torch.int64, device=device))
    total = sum(shifted(bits, 16 * i) & 0xFFFF if i else bits & 0xFFFF for i in range(4))
    return (total - 131070).to(torch.float32) * 7.9288e-5


def matrix(stream, rows, columns, dtype):
    """Rows of such numbers, made in pieces that fit beside the result."""
    out = torch.empty(rows, columns, dtype=dtype, device="cuda")
    step = max(1, (1 << 26) // columns)
    for row in range(0, rows, step):
        part = out[row : row + step]
        part.copy_(normal(stream, row * columns, part.numel(), "cuda").view_as(part))
    return out


def targets(stream, rows, vocab):
    bits = hashes(stream, torch.arange(rows, dtype=torch.int64))
    unsigned = [int(number) % 2**64 for number in bits]
    return torch.tensor([number % vocab for number in unsigned], device="cuda")


def sample():
    """What both languages print of their inputs: bits of a few numbers."""
    values = torch.cat([normal(3, 997 * i, 1, "cpu") for i in range(16)])
    return values.view(torch.int32).tolist()


# ---- measuring ----


class Bench:
    """Collects rows of the table."""

    def __init__(self, runs):
        self.runs = runs
        self.rows = []
        self.notes = []

    def time(self, who, operation, key, run, counted=0.0, error=None, buffers=1):
        """Median over events; run(i) uses buffer i. A peer that fails is a note, not an end."""
        element, shape = key
        try:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            for i in range(2 * buffers + 1):
                run(i % buffers)
            times = []
            for i in range(self.runs):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                start.record()
                run(i % buffers)
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end))
            peak = (torch.cuda.max_memory_allocated() - before) / 2**20
        except Exception as reason:  # any peer may fail in its own way
            self.note(who, operation, key, reason)
            return
        self.rows.append(
            dict(who=who, operation=operation, element=element, shape=shape, bytes=counted,
                 median_ms=statistics.median(times), peak_mib=peak, error=error)
        )

    def note(self, who, operation, key, reason):
        first = (str(reason).splitlines() or [""])[0]
        self.notes.append(f"not run: {who}, {operation} {key[0]} {key[1]}: "
                          f"{type(reason).__name__}: {first[:160]}")
        torch.cuda.empty_cache()


def exact(logits, target):
    """Log-probabilities and entropies in f64 of the first rows."""
    logits = logits[:64].double()
    log_p = torch.log_softmax(logits, -1)
    return log_p.gather(1, target[:64, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


def largest_error(got, want):
    return max(float((g[:64].double() - w).abs().max()) for g, w in zip(got, want))


# ---- peers: rows ----


def composed(logits, target):
    """Log-probability and entropy in plain torch."""
    log_p = torch.log_softmax(logits.float(), -1)
    return log_p.gather(1, target[:, None])[:, 0], -(log_p.exp() * log_p).sum(-1)


def paper_loss(logits, target, fields):
    """Clipped, truncated importance, k3: what ours computes in its fused kernel."""
    advantage, old, rollout, reference, weight = fields
    log_p, entropy = composed(logits, target)
    ratio = torch.exp((log_p - old).clamp(-20, 20))
    surrogate = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.28))
    surrogate = torch.where(advantage < 0, torch.minimum(surrogate, -10 * advantage), surrogate)
    importance = torch.exp((old - rollout).clamp(-20, 20)).clamp(max=1.0)
    distance = (reference - log_p).clamp(-20, 20)
    divergence = (torch.expm1(distance) - distance).clamp(-10, 10)
    return (weight * (importance * surrogate + 0.1 * divergence - 0.0 * entropy)).sum()


def training(loss):
    """Forward and backward of a loss of logits; the gradient is a new tensor."""

    def run(logits, target, fields):
        logits.requires_grad_(True)
        loss(logits, target, fields).backward()
        logits.grad = None
        logits.requires_grad_(False)

    return run


def triton_one_pass():
    """Log-probability and entropy in one pass with a centred sum: one program per row."""
    import triton
    import triton.language as tl

    @triton.jit
    def kernel(logits, target, log_probs, entropies, stride, vocab: tl.constexpr,
               BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        base = logits + row * stride
        top = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        weighted = tl.zeros([BLOCK], tl.float32)
        for start in range(0, vocab, BLOCK):
            at = start + tl.arange(0, BLOCK)
            x = tl.load(base + at, mask=at < vocab, other=float("-inf")).to(tl.float32)
            higher = tl.maximum(top, x)
            fall = tl.where(higher == float("-inf"), 0.0, top - higher)
            scale = tl.exp(fall)
            weighted = scale * (weighted + tl.where(scale > 0.0, fall, 0.0) * total)
            depth = tl.where(x == float("-inf"), 0.0, x - higher)
            e = tl.where(x == float("-inf"), 0.0, tl.exp(depth))
            total = scale * total + e
            weighted += depth * e
            top = higher
        peak = tl.max(top, 0)
        fall = tl.where(top == float("-inf"), 0.0, top - peak)
        scale = tl.where(top == float("-inf"), 0.0, tl.exp(fall))
        everything = tl.sum(scale * total, 0)
        spread = tl.sum(scale * (weighted + fall * total), 0)
        chosen = tl.load(base + tl.load(target + row)).to(tl.float32)
        log_total = tl.log(everything)
        tl.store(log_probs + row, chosen - peak - log_total)
        tl.store(entropies + row, log_total - spread / everything)

    def run(logits, target):
        rows, vocab = logits.shape
        out = torch.empty(2, rows, dtype=torch.float32, device=logits.device)
        kernel[(rows,)](logits, target, out[0], out[1], logits.stride(0), vocab,
                        BLOCK=4096, num_warps=8)
        return out[0], out[1]

    return run


def forward_peers():
    """Names and functions of logits and targets that give log-probabilities and entropies."""
    yield "torch eager", lambda: composed
    yield "torch.compile", lambda: torch.compile(composed, dynamic=False)
    yield "Triton one-pass", triton_one_pass


def measure_rows(bench, rows, vocab, dtype):
    name = {torch.bfloat16: "bf16", torch.float32: "f32"}[dtype]
    key = (name, f"{rows}x{vocab}")
    first = matrix(0, rows, vocab, dtype)
    size = first.numel() * first.element_size()
    free, _ = torch.cuda.mem_get_info()
    buffers = [first] + [first.clone() for _ in range(min(3, int(free * 0.25 // size)))]
    target = targets(1, rows, vocab)
    want = exact(first, target)
    for who, make in forward_peers():
        try:
            run = make()
            error = largest_error(run(first, target), want)
        except Exception as reason:
            bench.note(who, "log_prob_entropy", key, reason)
            continue
        bench.time(who, "log_prob_entropy", key, lambda i: run(buffers[i], target), size, error,
                   len(buffers))
    measure_training(bench, key, buffers, target, size)


def measure_training(bench, key, buffers, target, size):
    rows = buffers[0].shape[0]
    uniform = [normal(10 + i, 0, rows, "cuda") * 0.1 for i in range(4)]
    fields = [uniform[0], uniform[1] - 11, uniform[2] - 11, uniform[3] - 11,
              torch.full((rows,), 1.0 / rows, device="cuda")]
    for who, loss in [("torch eager", lambda: paper_loss),
                      ("torch.compile", lambda: torch.compile(paper_loss, dynamic=False))]:
        run = training(loss())
        bench.time(who, "rl_loss", key, lambda i: run(buffers[i], target, fields), 3 * size,
                   buffers=len(buffers))
    try:
        from liger_kernel.ops.cross_entropy import LigerCrossEntropyFunction as liger
    except ImportError as reason:
        bench.note("Liger", "cross entropy with gradient", key, reason)
        return

    def cross_entropy(i):
        # In its forward it overwrites the logits by their gradient. No entropy, no policy loss.
        liger.apply(buffers[i].requires_grad_(True), target, None)
        buffers[i].requires_grad_(False)

    bench.time("Liger cross entropy", "rl_loss", key, cross_entropy, 3 * size,
               buffers=len(buffers))


# ---- peers: linear layer ----


def measure_linear(bench, rows, width, vocab):
    key = ("bf16", f"{rows}x{width}x{vocab}")
    hidden = matrix(3, rows, width, torch.bfloat16)
    weight = matrix(4, vocab, width, torch.bfloat16)
    target = targets(1, rows, vocab)
    gradient = torch.zeros(rows, vocab, dtype=torch.bfloat16, device="cuda")

    def products(_):
        torch.mm(hidden, weight.t(), out=gradient)
        gradient.mm(weight)
        gradient.t().mm(hidden)

    bench.time("products alone", "fused_linear forward", key, lambda _: hidden.mm(weight.t()))
    bench.time("products alone", "fused_linear full", key, products)
    del gradient
    for who, forward in linear_peers(bench, key):
        with_gradient = training(lambda h, w, t: forward(h, w, t))

        def full(_):
            weight.requires_grad_(True)
            with_gradient(hidden, weight, target)
            weight.grad = None
            weight.requires_grad_(False)

        bench.time(who, "fused_linear forward", key, lambda _: forward(hidden, weight, target))
        bench.time(who, "fused_linear full", key, full)


def linear_peers(bench, key):
    """Functions of hidden states, weight and targets; all are cross entropies, none has more."""
    yield "torch eager", lambda h, w, t: torch.nn.functional.cross_entropy((h @ w.t()).float(), t)
    try:
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        liger = LigerFusedLinearCrossEntropyLoss()
        yield "Liger", lambda h, w, t: liger(w, h, t)
    except ImportError as reason:
        bench.note("Liger", "fused_linear", key, reason)
    try:
        from cut_cross_entropy import linear_cross_entropy

        yield "CCE", lambda h, w, t: linear_cross_entropy(h, w, t)
    except ImportError as reason:
        bench.note("CCE", "fused_linear", key, reason)


# ---- table ----

FORMS = {"rl_loss three passes": "rl_loss", "rl_loss fused": "rl_loss"}


def ours_rows(report):
    for time in report["times"]:
        operation = FORMS.get(time["operation"], time["operation"])
        form = time["operation"].removeprefix("rl_loss").strip()
        who = f"ours, {form}" if operation == "rl_loss" else "ours"
        yield dict(time, who=who, operation=operation, peak_mib=None)


def print_table(rows, notes, checks):
    copy = next((r for r in rows if r["operation"] == "copy"), None)
    copy_speed = copy["bytes"] / copy["median_ms"] if copy else None
    for note in notes:
        print(note)
    for check in checks:
        verdict = "ok" if check["passed"] else "FAILED"
        print(f"{verdict}: {check['name']}")
    print()
    print("| operation | type | shape | who | ms | GB/s | % of copy | largest error | peak MiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    groups = {}
    for row in rows:
        groups.setdefault((row["operation"], row["element"], row["shape"]), []).append(row)
    for (operation, element, shape), members in groups.items():
        for row in sorted(members, key=lambda r: r["median_ms"]):
            speed = row["bytes"] / row["median_ms"] if row["bytes"] else None
            cells = [
                operation, element, shape, row["who"], f"{row['median_ms']:.3f}",
                f"{speed / 1e6:.0f}" if speed else "",
                f"{100 * speed / copy_speed:.0f}" if speed and copy_speed else "",
                f"{row['error']:.1e}" if row["error"] is not None else "",
                f"{row['peak_mib']:.0f}" if row["peak_mib"] is not None else "",
            ]
            print("| " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ours", help="the JSON file of gpu_check")
    parser.add_argument("--json", help="where to write all measurements")
    parser.add_argument("--quick", action="store_true", help="ten runs each, two shapes")
    parser.add_argument("--self-test", action="store_true", help="print the bits of a few inputs")
    arguments = parser.parse_args()
    if torch is None:
        print("torch cannot be imported: the peers cannot be measured")
        return NO_GPU
    if arguments.self_test:
        print(json.dumps(sample()))
        return 0
    if not torch.cuda.is_available():
        print("torch sees no GPU: the peers cannot be measured")
        return NO_GPU
    report = dict(times=[], checks=[], inputs=sample())
    if arguments.ours:
        with open(arguments.ours, encoding="utf-8") as file:
            report = json.load(file)
    if report["inputs"] != sample():
        print("the inputs of Rust and Python differ: nothing can be compared")
        return 1
    bench = Bench(10 if arguments.quick else RUNS)
    for rows, vocab in SHAPES[2:4] if arguments.quick else SHAPES:
        for dtype in (torch.bfloat16, torch.float32):
            measure_rows(bench, rows, vocab, dtype)
    for shape in LINEAR_SHAPES[:1] if arguments.quick else LINEAR_SHAPES:
        measure_linear(bench, *shape)
    rows = list(ours_rows(report)) + bench.rows
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(dict(report, peers=bench.rows, notes=bench.notes), file, indent=1)
    name = torch.cuda.get_device_name()
    print(f"{name}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    print_table(rows, bench.notes, report["checks"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
