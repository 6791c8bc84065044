// Means over segments of tokens, and what tokens take from their sequence. One warp per segment.
#include "token_loss.cuh"

// Sums over a warp in one fixed tree: bits repeat.
DEVICE double warp_sum(double x) {
    for (int distance = 16; distance > 0; distance /= 2) {
        x += __shfl_xor_sync(0xffffffffu, x, distance);
    }
    return x;
}

DEVICE i64 global_warp() { return ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; }

extern "C" __global__ void segment_means(const float* values, const i64* offsets, int segments,
                                         float* means) {
    const i64 segment = global_warp();
    if (segment >= segments) return;  // whole warps leave
    const i64 from = offsets[segment], to = offsets[segment + 1];
    double sum = 0.0;
    for (i64 i = from + threadIdx.x % 32; i < to; i += 32) sum += values[i];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) means[segment] = (float)(sum / (double)(to - from));
}

// Sums over the tokens of a sequence that are read.
struct SequenceSums { double log_ratio, tokens, log_weight, weighted_tokens; };

DEVICE SequenceSums sum_sequence(const RowStats* stats, const Token* tokens, const Loss& loss,
                                 i64 from, i64 to) {
    SequenceSums sums{0.0, 0.0, 0.0, 0.0};
    for (i64 i = from + threadIdx.x % 32; i < to; i += 32) {
        const Token token = tokens[i];
        if (token.weight == 0.0f) continue;
        sums.log_ratio += log_ratio_of(loss, token, stats[i].log_prob);
        sums.tokens += 1.0;
        if ((token.present & HAS_ROLLOUT) == 0) continue;
        sums.log_weight += log_weight_of(token, stats[i].log_prob);
        sums.weighted_tokens += 1.0;
    }
    return SequenceSums{warp_sum(sums.log_ratio), warp_sum(sums.tokens), warp_sum(sums.log_weight),
                        warp_sum(sums.weighted_tokens)};
}

// Ratio and weight that the tokens of a sequence share. Without any rollout log-probability the
// weight is 1.
DEVICE SequenceTerm term_of_sequence(const Loss& loss, const SequenceSums& sums) {
    double log_weight = sums.log_weight;
    if (loss.importance_level == LEVEL_SEQUENCE_MEAN) log_weight /= sums.weighted_tokens;
    const bool weighted = loss.importance != IMPORTANCE_OFF && sums.weighted_tokens > 0.0;
    return SequenceTerm{(float)(sums.log_ratio / sums.tokens),
                        weighted ? importance_of(loss, (float)log_weight) : 1.0f};
}

extern "C" __global__ void sequence_terms(const RowStats* stats, const Token* tokens,
                                          const i64* offsets, int sequences, Loss loss,
                                          SequenceTerm* terms) {
    const i64 sequence = global_warp();
    if (sequence >= sequences) return;  // whole warps leave
    const i64 from = offsets[sequence], to = offsets[sequence + 1];
    const SequenceSums sums = sum_sequence(stats, tokens, loss, from, to);
    const SequenceTerm shared = term_of_sequence(loss, sums);
    for (i64 i = from + threadIdx.x % 32; i < to; i += 32) {
        SequenceTerm term = own_term(loss, tokens[i], stats[i].log_prob);
        if (loss.ratio_level != LEVEL_TOKEN) term.log_ratio = shared.log_ratio;
        if (loss.importance_level != LEVEL_TOKEN) term.importance = shared.importance;
        terms[i] = tokens[i].weight == 0.0f ? SequenceTerm{0.0f, 1.0f} : term;
    }
}
