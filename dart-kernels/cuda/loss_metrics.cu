// Sums of what tokens gave, in two stages whose trees depend on no schedule: bits repeat.
#include "token_loss.cuh"

struct SumsScratch { LossSums threads[METRIC_THREADS]; };

DEVICE LossSums no_sums() {
    LossSums sums{};
    sums.importance_max = -INFINITE;
    return sums;
}

DEVICE double larger(double a, double b) { return b > a ? b : a; }

DEVICE LossSums add(const LossSums& a, const LossSums& b) {
    LossSums c;
    c.loss = a.loss + b.loss;
    c.surrogate = a.surrogate + b.surrogate;
    c.log_prob = a.log_prob + b.log_prob;
    c.entropy = a.entropy + b.entropy;
    c.kl = a.kl + b.kl;
    c.importance = a.importance + b.importance;
    c.importance_squared = a.importance_squared + b.importance_squared;
    c.importance_max = larger(a.importance_max, b.importance_max);
    c.ratio_k1 = a.ratio_k1 + b.ratio_k1;
    c.ratio_k3 = a.ratio_k3 + b.ratio_k3;
    c.tokens = a.tokens + b.tokens;
    c.clip_low = a.clip_low + b.clip_low;
    c.clip_high = a.clip_high + b.clip_high;
    c.clip_dual = a.clip_dual + b.clip_dual;
    c.importance_bound = a.importance_bound + b.importance_bound;
    c.not_finite = a.not_finite + b.not_finite;
    c.all_masked = a.all_masked + b.all_masked;
    c.bad_label = a.bad_label + b.bad_label;
    c.target_masked = a.target_masked + b.target_masked;
    return c;
}

// Whether truncation or the mask changed the weight.
DEVICE bool is_bounded(const Loss& loss, float importance) {
    if (loss.importance == IMPORTANCE_TRUNCATED) return importance == loss.importance_high;
    return loss.importance == IMPORTANCE_MASKED && importance == 0.0f;
}

DEVICE void count_broken(LossSums& sums, unsigned status) {
    sums.not_finite += (status & ROW_NOT_FINITE) != 0;
    sums.all_masked += (status & ROW_ALL_MASKED) != 0;
    sums.bad_label += (status & ROW_BAD_LABEL) != 0;
    sums.target_masked += (status & ROW_TARGET_MASKED) != 0;
}

DEVICE LossSums sums_of(const RowStats& stats, const Token& token, const Outcome& outcome,
                        const Loss& loss) {
    LossSums sums = no_sums();
    if (token.weight == 0.0f) return sums;
    sums.loss = outcome.loss;
    count_broken(sums, stats.status);
    if (stats.status != 0) return sums;
    const float log_ratio = clamp(outcome.log_ratio, -LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    sums.surrogate = outcome.surrogate;
    sums.log_prob = stats.log_prob;
    sums.entropy = stats.entropy;
    sums.kl = outcome.kl;
    sums.importance = outcome.importance;
    sums.importance_squared = (double)outcome.importance * outcome.importance;
    sums.importance_max = outcome.importance;
    sums.ratio_k1 = -(double)log_ratio;
    sums.ratio_k3 = exp_beyond_linear(log_ratio);
    sums.tokens = 1;
    sums.clip_low = outcome.clip == CLIP_LOW;
    sums.clip_high = outcome.clip == CLIP_HIGH;
    sums.clip_dual = outcome.clip == CLIP_DUAL;
    sums.importance_bound = is_bounded(loss, outcome.importance);
    return sums;
}

// Thread 0 gets the sum over the CTA, which has METRIC_THREADS threads.
DEVICE LossSums block_sum(const LossSums& mine, SumsScratch& scratch) {
    scratch.threads[threadIdx.x] = mine;
    for (unsigned half = METRIC_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            scratch.threads[threadIdx.x] =
                add(scratch.threads[threadIdx.x], scratch.threads[threadIdx.x + half]);
        }
    }
    return scratch.threads[0];
}

extern "C" __global__ void __launch_bounds__(METRIC_THREADS) loss_metrics_partial(
    const RowStats* stats, const Token* tokens, const Outcome* outcomes, Loss loss, int rows,
    LossSums* partials) {
    SHARED(SumsScratch, scratch);
    LossSums sums = no_sums();
    for (i64 i = (i64)blockIdx.x * METRIC_THREADS + threadIdx.x; i < rows;
         i += METRIC_BLOCKS * METRIC_THREADS) {
        sums = add(sums, sums_of(stats[i], tokens[i], outcomes[i], loss));
    }
    sums = block_sum(sums, scratch);
    if (threadIdx.x == 0) partials[blockIdx.x] = sums;
}

extern "C" __global__ void __launch_bounds__(METRIC_THREADS) loss_metrics_total(
    const LossSums* partials, LossSums* total) {
    SHARED(SumsScratch, scratch);
    const LossSums mine = threadIdx.x < METRIC_BLOCKS ? partials[threadIdx.x] : no_sums();
    const LossSums sums = block_sum(mine, scratch);
    if (threadIdx.x == 0) *total = sums;
}
