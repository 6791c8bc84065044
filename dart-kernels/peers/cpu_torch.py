"""Times torch, eager and compiled, on the numbers of the example `cpu_speed`; JSON lines.

Arguments: rows, vocabulary, repeats. One thread.
"""

import json
import statistics
import sys
import time

import torch

import inputs


def log_prob_entropy(logits, targets):
    log_p = torch.log_softmax(logits, dim=-1)
    log_prob = log_p.gather(1, targets[:, None])[:, 0]
    entropy = -(log_p.exp() * log_p).sum(-1)
    return log_prob, entropy


def loss(logits, targets, old, rollout, reference, advantage):
    """Clipped surrogate with a dual clip, truncated importance weights, k3, entropy bonus; mean."""
    log_prob, entropy = log_prob_entropy(logits, targets)
    ratio = (log_prob - old).clamp(-20, 20).exp()
    surrogate = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(0.8, 1.28))
    dual = torch.minimum(surrogate, -advantage * 10)
    surrogate = torch.where(advantage < 0, dual, surrogate)
    weight = (old - rollout).clamp(-20, 20).exp().clamp(max=1)
    apart = (reference - log_prob).clamp(-20, 20)
    kl = (apart.exp() - apart - 1).clamp(-10, 10)
    return (weight * surrogate + 0.1 * kl - 0.01 * entropy).mean()


def report(who, what, repeats, buffers, run):
    times, checksum = [], 0.0
    for round_ in range(repeats + 1):
        at = round_ % buffers
        milliseconds, total = run(at)
        if round_ > 0:
            times.append(milliseconds)
        if at == 0:
            checksum = total
    line = {"who": who, "what": what, "ms": statistics.median(times), "least_ms": min(times)}
    print(json.dumps({**line, "checksum": checksum}), flush=True)


def main():
    rows, vocab, repeats = (int(argument) for argument in sys.argv[1:4])
    torch.set_num_threads(1)
    count = inputs.rotation(rows, vocab)
    buffers = [torch.from_numpy(inputs.logits(seed, rows, vocab)) for seed in range(count)]
    targets = torch.from_numpy(inputs.targets(rows, vocab))
    old, rollout, reference = (
        torch.from_numpy(inputs.log_probs(seed << 16, rows)) for seed in (1, 2, 3)
    )
    advantage = torch.tensor([1.0, -1.0]).repeat(rows)[:rows]

    def forward(operation):
        def run(at):
            with torch.no_grad():
                start = time.perf_counter()
                log_prob, entropy = operation(buffers[at], targets)
                milliseconds = (time.perf_counter() - start) * 1e3
            return milliseconds, float((log_prob + entropy).double().sum())

        return run

    def training(operation):
        def run(at):
            logits = buffers[at].clone().requires_grad_()
            start = time.perf_counter()
            value = operation(logits, targets, old, rollout, reference, advantage)
            value.backward()
            milliseconds = (time.perf_counter() - start) * 1e3
            return milliseconds, float(value.detach())

        return run

    for who, wrap in (("torch eager", lambda f: f), ("torch.compile", torch.compile)):
        report(who, "forward", repeats, count, forward(wrap(log_prob_entropy)))
        report(who, "training", repeats, count, training(wrap(loss)))


main()
