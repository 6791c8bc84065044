// What host and kernels share: structs by layout, kernels by name and signature.
//
// `src/cuda/abi.rs` mirrors the structs with #[repr(C)]. A change here is a change there.
//
// Kernels (extern "C"). T is f32, bf16 or f16 and is the suffix of the name. Logits are row-major
// [rows, vocab] with `row_stride` elements from row to row; every alignment of an element is
// allowed. Grids are one-dimensional. `threads` is a multiple of 32 up to MAX_THREADS; the row
// kernels take up to 64 registers, so that 256 threads let four CTAs share a multiprocessor, one
// reading while another reduces. No kernel needs dynamic shared memory but rl_fused.
//
//   logprob_entropy.cu   one CTA per row; one pass
//     logprob_entropy_T(const T* logits, i64 row_stride, int vocab, const unsigned* targets,
//                       const float* inverse_temperatures, float inverse_temperature,
//                       unsigned ignore_index, RowStats* stats)
//       inverse_temperatures: one per row, or null for `inverse_temperature` everywhere
//   rl_loss.cu           rl_* : one CTA per row, except rl_fused: one cluster of 8 CTAs per row
//     rl_stats_T   (const T* logits, i64 row_stride, int vocab, const Token* tokens, RowStats* stats)
//     token_loss   (const RowStats* stats, const Token* tokens, const SequenceTerm* terms, Loss loss,
//                   int rows, Outcome* outcomes)                        one thread per token
//     rl_backward_T(T* logits, i64 row_stride, int vocab, const Token* tokens, const RowStats* stats,
//                   const Outcome* outcomes)                            logits become their gradient
//     rl_fused_T   (T* logits, i64 row_stride, int vocab, const Token* tokens, Loss loss,
//                   RowStats* stats, Outcome* outcomes)                 sm_90 and later only
//       grid = 8 * rows; dynamic shared memory = fused_shared_bytes(vocab, sizeof(T));
//       no sequence-level losses (they need every log-probability of a sequence first)
//   segments.cu          one warp per segment: grid * threads / 32 >= segments
//     segment_means (const float* values, const i64* offsets, int segments, float* means)
//     sequence_terms(const RowStats* stats, const Token* tokens, const i64* offsets, int sequences,
//                    Loss loss, SequenceTerm* terms)
//       offsets: segments + 1 of them, non-decreasing; a mean over nothing is NaN
//   importance.cu        one thread per token
//     importance_weights(const RowStats* stats, const Token* tokens, const SequenceTerm* terms,
//                        Loss loss, int rows, float* weights)
//   loss_metrics.cu      two stages, METRIC_BLOCKS CTAs of METRIC_THREADS, then one CTA
//     loss_metrics_partial(const RowStats* stats, const Token* tokens, const Outcome* outcomes,
//                          Loss loss, int rows, LossSums* partials)     METRIC_BLOCKS partials
//     loss_metrics_total  (const LossSums* partials, LossSums* total)
//
// `terms` may be null when no part of the loss is at sequence level.
#pragma once

typedef long long i64;
typedef unsigned long long u64;

#define MAX_THREADS 512
#define CLUSTER_SIZE 8
#define METRIC_BLOCKS 64
#define METRIC_THREADS 256

// Why a row has no loss. Such a row has gradient 0 and a NaN loss, except ROW_NOT_READ, whose
// statistics, loss and gradient are 0.
enum RowStatus : unsigned {
    ROW_NOT_FINITE = 1,     // a logit is NaN or +inf: all statistics are NaN
    ROW_ALL_MASKED = 2,     // no finite logit: NaN, log_sum_exp is -inf
    ROW_BAD_LABEL = 4,      // label outside [0, vocab): all NaN, the row is not read
    ROW_TARGET_MASKED = 8,  // the target's logit is -inf: log_prob is -inf
    ROW_NOT_READ = 16,      // weight 0, or the ignored label
};

// Statistics of one row x at temperature T. With k = log2(e) / T, in f32: d_j = (x_j - max) k,
// sum = sum over all j of 2^d_j, so that p_j = 2^d_j / sum even when a large common shift of the
// logits leaves log_sum_exp few digits after the point.
struct RowStats {
    float log_prob;     // of the target, nats
    float entropy;      // of the row, nats
    float log_sum_exp;  // of x / T, nats
    float complement;   // 1 - probability of the target, to full relative precision
    float max;          // of the logits x
    float sum;          // target included
    unsigned status;    // RowStatus bits
    float unused;
};

enum Present : unsigned { HAS_OLD = 1, HAS_ROLLOUT = 2, HAS_REFERENCE = 4 };

// One token: what is known about it before its row is read.
struct Token {
    unsigned target;
    float inverse_temperature;  // 1 / T > 0, checked on the host
    float weight;               // mask and averaging from global counts; 0: row is not read
    float advantage;
    float old_log_prob;         // absent: the current one, detached
    float rollout_log_prob;     // absent: importance weight 1
    float reference_log_prob;   // absent: KL 0
    unsigned present;           // Present bits
};

// What a token's loss takes from its sequence; with it every token stands alone again.
struct SequenceTerm {
    float log_ratio;   // logarithm of the ratio that the surrogate uses, not clamped
    float importance;  // the weight, bounds applied
};

enum Surrogate : int {
    SURROGATE_CLIPPED = 0,         // PPO, GRPO, DAPO; GSPO with ratio_level 1
    SURROGATE_LOG_LIKELIHOOD = 1,  // REINFORCE; imitation with advantage 1
    SURROGATE_CISPO = 2,
    SURROGATE_SAPO = 3,
    SURROGATE_PRIME = 4,
};
enum Level : int { LEVEL_TOKEN = 0, LEVEL_SEQUENCE_SUM = 1, LEVEL_SEQUENCE_MEAN = 2 };
enum Importance : int { IMPORTANCE_OFF = 0, IMPORTANCE_TRUNCATED = 1, IMPORTANCE_MASKED = 2 };
enum KlGradient : int { KL_GRADIENT_OWN = 0, KL_GRADIENT_K2 = 1 };

// The loss of a token: weight * (importance * surrogate + kl_beta * kl - entropy_bonus * entropy).
struct Loss {
    int surrogate;           // Surrogate
    int ratio_level;         // LEVEL_TOKEN or LEVEL_SEQUENCE_MEAN
    float clip_low;          // clipped, CISPO: ratio >= 1 - clip_low; CISPO: negative = no bound
    float clip_high;         // clipped, CISPO: ratio <= 1 + clip_high
    float dual_clip;         // clipped: loss <= -A dual_clip where A < 0; 0 = off
    float ratio_cap;         // clipped: bound of the unclipped ratio; 0 = off
    float tau_positive;      // SAPO, A > 0
    float tau_negative;      // SAPO, otherwise
    float prime_high;        // prime: drop A > 0 where p - q > prime_high
    float prime_low;         // prime: drop A <= 0 where p - q < -prime_low
    float prime_penalty;     // prime: factor of the squared log-ratio
    int importance;          // Importance
    int importance_level;    // Level
    float importance_low;    // masked: weight 0 below
    float importance_high;   // truncated: largest weight; masked: weight 0 above
    float kl_beta;
    int kl_estimate;         // 1, 2, 3 = k1, k2, k3
    int kl_gradient;         // KlGradient
    int kl_times_ratio;      // 1: kl * ratio, gradient through both
    float entropy_bonus;
};

// CLIP_DUAL: the dual clip or the cap of the ratio.
enum ClipSide : unsigned { CLIP_NONE = 0, CLIP_LOW = 1, CLIP_HIGH = 2, CLIP_DUAL = 3 };

// What one token gave.
struct Outcome {
    float loss;         // its share, weight included
    float surrogate;    // without weights
    float importance;   // the detached weight
    float kl;           // without beta
    float by_log_prob;  // derivative of loss
    float by_entropy;   // derivative of loss
    unsigned clip;      // ClipSide
    float log_ratio;    // of the surrogate's ratio (token's or sequence's), not clamped
};

// Sums over tokens that were read and have a finite log-probability; `loss` is over all.
struct LossSums {
    double loss, surrogate, log_prob, entropy, kl;
    double importance, importance_squared, importance_max;  // -inf: the largest of nothing
    double ratio_k1;  // sum of -log_ratio: estimate of KL(old, current)
    double ratio_k3;  // sum of e^l - l - 1
    u64 tokens, clip_low, clip_high, clip_dual;
    u64 importance_bound;  // weights that truncation or the mask changed
    u64 not_finite, all_masked, bad_label, target_masked;
};

static_assert(sizeof(RowStats) == 32, "RowStats");
static_assert(sizeof(Token) == 32, "Token");
static_assert(sizeof(SequenceTerm) == 8, "SequenceTerm");
static_assert(sizeof(Loss) == 80, "Loss");
static_assert(sizeof(Outcome) == 32, "Outcome");
static_assert(sizeof(LossSums) == 152, "LossSums");

// Elements of a row that one CTA of a cluster keeps: whole 16-byte vectors, so that all slices of
// a row have the same alignment.
__host__ __device__ constexpr int slice_length(int vocab, int element_bytes) {
    const int vector = 16 / element_bytes;
    const int share = (vocab + CLUSTER_SIZE - 1) / CLUSTER_SIZE;
    return (share + vector - 1) / vector * vector;
}

// Dynamic shared memory of rl_fused: a slice, and one vector more for rows that do not start at a
// multiple of 16 bytes. Where this exceeds what the device grants, the three-pass form is used.
__host__ __device__ constexpr int fused_shared_bytes(int vocab, int element_bytes) {
    return slice_length(vocab, element_bytes) * element_bytes + 16;
}
