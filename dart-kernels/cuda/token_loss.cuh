// The loss of one token and its derivatives, as closed forms: src/loss in f32.
//
// loss = weight * (importance * surrogate + beta * kl - bonus * entropy). Importance weights, the
// ratios of sequences and the other policies' log-probabilities are constants of the gradient.
// Beyond a clamp the derivative is 0. A NaN is never clipped away.
#pragma once
#include "device.cuh"

// Log-ratios are clamped to +- this before they are exponentiated.
#define LOG_RATIO_BOUND 20.0f
// k3 is clamped to +- this.
#define KL_BOUND 10.0f

// A value, its derivative by the log-probability, and what cut it.
struct Term { float value, slope; unsigned clip; };

// A probability ratio with its logarithm clamped.
struct Ratio { float value; bool inside; };

DEVICE Ratio ratio_of(float log_ratio) {
    const float clamped = clamp(log_ratio, -LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    return Ratio{expf(clamped), fabsf(log_ratio) <= LOG_RATIO_BOUND};
}

// 0 beyond the clamp, but NaN where the slope is NaN.
DEVICE float slope_inside(const Ratio& ratio, float slope) {
    return ratio.inside ? slope : 0.0f * slope;
}

// max(-A r, -A clip(r)), with the dual clip and the cap of the unclipped ratio where they are on.
DEVICE Term clipped(const Loss& loss, float advantage, float log_ratio) {
    const Ratio ratio = ratio_of(log_ratio);
    const bool capped = loss.ratio_cap > 0.0f && ratio.value > loss.ratio_cap;
    const float within = clamp(ratio.value, 1.0f - loss.clip_low, 1.0f + loss.clip_high);
    const float free = -advantage * (capped ? loss.ratio_cap : ratio.value);
    const float bounded = -advantage * within;
    const float dual = -advantage * loss.dual_clip;
    if (loss.dual_clip > 0.0f && advantage < 0.0f && fmaxf(free, bounded) > dual) {
        return Term{dual, 0.0f, CLIP_DUAL};
    }
    // A cap below 1 + high can make the clipped term the larger one where it is not clipped.
    if (bounded > free && within != ratio.value) {
        return Term{bounded, 0.0f, ratio.value > within ? CLIP_HIGH : CLIP_LOW};
    }
    if (capped && bounded <= free) return Term{free, 0.0f, CLIP_DUAL};
    const float value = -advantage * ratio.value;
    return Term{value, slope_inside(ratio, value), CLIP_NONE};
}

// -clip(r) A lp with a detached factor: clipped tokens keep a gradient.
DEVICE Term cispo(const Loss& loss, float advantage, float log_prob, float log_ratio) {
    const float ratio = ratio_of(log_ratio).value;
    float factor = ratio;
    unsigned clip = CLIP_NONE;
    if (loss.clip_low >= 0.0f && ratio < 1.0f - loss.clip_low) {
        factor = 1.0f - loss.clip_low;
        clip = CLIP_LOW;
    } else if (ratio > 1.0f + loss.clip_high) {
        factor = 1.0f + loss.clip_high;
        clip = CLIP_HIGH;
    }
    return Term{-factor * advantage * log_prob, -factor * advantage, clip};
}

// -A sigmoid(tau (r - 1)) 4 / tau: a soft clip.
DEVICE Term sapo(const Loss& loss, float advantage, float log_ratio) {
    const Ratio ratio = ratio_of(log_ratio);
    const float tau = advantage > 0.0f ? loss.tau_positive : loss.tau_negative;
    const float away = expf(-tau * (ratio.value - 1.0f));
    const float gate = 1.0f / (1.0f + away);
    // 1 - gate without cancellation; away is infinite where the gate is 0.
    const float shut = 1.0f / (1.0f + 1.0f / away);
    const float slope = -advantage * 4.0f * gate * shut * ratio.value;
    return Term{-advantage * gate * 4.0f / tau, slope_inside(ratio, slope), CLIP_NONE};
}

// -A r + penalty (log r)^2 against the rollout policy. The first part is dropped where the
// probability itself has moved too far from the rollout's.
DEVICE Term prime(const Loss& loss, const Token& token, float log_prob, float log_ratio) {
    const Ratio ratio = ratio_of(log_ratio);
    const float bounded = clamp(log_ratio, -LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    const bool has_rollout = (token.present & HAS_ROLLOUT) != 0;
    const float moved = has_rollout ? expf(log_prob) - expf(token.rollout_log_prob) : 0.0f;
    unsigned clip = CLIP_NONE;
    if (token.advantage > 0.0f && moved > loss.prime_high) clip = CLIP_HIGH;
    if (token.advantage <= 0.0f && moved < -loss.prime_low) clip = CLIP_LOW;
    const float gain = clip == CLIP_NONE ? -token.advantage * ratio.value : 0.0f;
    const float slope = gain + 2.0f * loss.prime_penalty * bounded;
    return Term{gain + loss.prime_penalty * bounded * bounded, slope_inside(ratio, slope), clip};
}

DEVICE Term surrogate(const Loss& loss, const Token& token, float log_prob, float log_ratio) {
    switch (loss.surrogate) {
        case SURROGATE_CLIPPED: return clipped(loss, token.advantage, log_ratio);
        case SURROGATE_CISPO: return cispo(loss, token.advantage, log_prob, log_ratio);
        case SURROGATE_SAPO: return sapo(loss, token.advantage, log_ratio);
        case SURROGATE_PRIME: return prime(loss, token, log_prob, log_ratio);
        default: return Term{-token.advantage * log_prob, -token.advantage, CLIP_NONE};
    }
}

// e^q - q - 1. Near 0, where policies mostly are, by its series: the difference would leave few
// digits.
DEVICE float exp_beyond_linear(float q) {
    if (fabsf(q) > 0.25f) return expm1f(q) - q;
    float series = 1.0f / 40320.0f;
    series = fmaf(series, q, 1.0f / 5040.0f);
    series = fmaf(series, q, 1.0f / 720.0f);
    series = fmaf(series, q, 1.0f / 120.0f);
    series = fmaf(series, q, 1.0f / 24.0f);
    series = fmaf(series, q, 1.0f / 6.0f);
    series = fmaf(series, q, 0.5f);
    return series * q * q;
}

// Estimate of KL(current, reference) with q = log(reference / current).
DEVICE Term kl_estimate(int estimate, float q) {
    if (estimate == 1) return Term{-q, 1.0f, CLIP_NONE};
    if (estimate == 2) return Term{0.5f * q * q, -q, CLIP_NONE};
    const float clamped = clamp(q, -LOG_RATIO_BOUND, LOG_RATIO_BOUND);
    const float value = exp_beyond_linear(clamped);
    const bool inside = fabsf(q) <= LOG_RATIO_BOUND && value <= KL_BOUND;
    return Term{clamp(value, -KL_BOUND, KL_BOUND), inside ? -expm1f(clamped) : 0.0f * value,
                CLIP_NONE};
}

DEVICE Term kl_term(const Loss& loss, const Token& token, float log_prob, float log_ratio) {
    if ((token.present & HAS_REFERENCE) == 0) return Term{0.0f, 0.0f, CLIP_NONE};
    Term term = kl_estimate(loss.kl_estimate, token.reference_log_prob - log_prob);
    if (loss.kl_gradient == KL_GRADIENT_K2) term.slope = log_prob - token.reference_log_prob;
    if (loss.kl_times_ratio) {
        const Ratio ratio = ratio_of(log_ratio);
        term.slope = (term.slope + slope_inside(ratio, term.value)) * ratio.value;
        term.value *= ratio.value;
    }
    return term;
}

// The weight for a logarithm of old / rollout probability.
DEVICE float importance_of(const Loss& loss, float log_weight) {
    const float weight = ratio_of(log_weight).value;
    if (loss.importance == IMPORTANCE_TRUNCATED && weight > loss.importance_high) {
        return loss.importance_high;
    }
    if (loss.importance == IMPORTANCE_MASKED &&
        (weight < loss.importance_low || weight > loss.importance_high)) {
        return 0.0f;
    }
    return weight;
}

// log(old / rollout) of a token that has a rollout log-probability.
DEVICE float log_weight_of(const Token& token, float log_prob) {
    const float old = (token.present & HAS_OLD) != 0 ? token.old_log_prob : log_prob;
    return old - token.rollout_log_prob;
}

// Log-ratio of a token: against the old policy, prime's against the rollout's; 0 without that.
DEVICE float log_ratio_of(const Loss& loss, const Token& token, float log_prob) {
    const bool prime = loss.surrogate == SURROGATE_PRIME;
    if ((token.present & (prime ? HAS_ROLLOUT : HAS_OLD)) == 0) return log_prob - log_prob;
    return log_prob - (prime ? token.rollout_log_prob : token.old_log_prob);
}

// Ratio and weight of a token that stands alone.
DEVICE SequenceTerm own_term(const Loss& loss, const Token& token, float log_prob) {
    const bool weighted =
        loss.importance != IMPORTANCE_OFF && (token.present & HAS_ROLLOUT) != 0;
    return SequenceTerm{
        log_ratio_of(loss, token, log_prob),
        weighted ? importance_of(loss, log_weight_of(token, log_prob)) : 1.0f};
}

// What a token gives that was not read (0), or whose row has no loss (NaN). Neither has a slope.
DEVICE Outcome outcome_without_loss(bool read) {
    const float value = read ? NOT_A_NUMBER : 0.0f;
    return Outcome{value, value, value, value, 0.0f, 0.0f, CLIP_NONE, value};
}

DEVICE Outcome outcome_of(const Loss& loss, const Token& token, const SequenceTerm& given,
                          const RowStats& stats) {
    if (token.weight == 0.0f) return outcome_without_loss(false);
    if (stats.status != 0) return outcome_without_loss(true);
    const Term gain = surrogate(loss, token, stats.log_prob, given.log_ratio);
    const Term kl = kl_term(loss, token, stats.log_prob, given.log_ratio);
    const float sum = given.importance * gain.value + loss.kl_beta * kl.value -
                      loss.entropy_bonus * stats.entropy;
    const float slope = given.importance * gain.slope + loss.kl_beta * kl.slope;
    return Outcome{token.weight * sum, gain.value, given.importance, kl.value,
                   token.weight * slope, -token.weight * loss.entropy_bonus, gain.clip,
                   given.log_ratio};
}
