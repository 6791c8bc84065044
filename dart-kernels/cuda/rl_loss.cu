// The whole token loss: statistics, loss, gradient written over the logits.
//
// Two forms. Three passes over the logits (rl_stats, token_loss, rl_backward) run on every GPU and
// serve losses with a sequence-level part. Two passes (rl_fused, sm_90) keep each row in the shared
// memory of a cluster of CTAs between the read and the write.
#include "row.cuh"
#include "token_loss.cuh"

struct Scratch {
    Scan warps[MAX_THREADS / 32];
    Scan slice;         // of this CTA, read by the CTAs of its cluster
    Gradient gradient;  // of the row, made by one thread for its CTA
    int has_gradient;   // 0: all zeros
};

// ---- three passes ----

template <class T>
DEVICE void rl_stats(const T* row, int vocab, Token token, RowStats* out) {
    SHARED(Scratch, scratch);
    const bool read = token.weight != 0.0f;
    if (!read || token.target >= (unsigned)vocab) {
        if (threadIdx.x == 0) *out = read ? broken_row(ROW_BAD_LABEL) : unread_row();
        return;
    }
    const float k = token.inverse_temperature * LOG2_E;
    const Scan mine = scan_row(row, vocab, (int)token.target, k, Forget());
    const Scan rest = block_merge(mine, k, scratch.warps);
    if (threadIdx.x == 0) {
        const float x = to_float(load_element(row + token.target));
        *out = finish(rest, x, token.inverse_temperature);
    }
}

extern "C" __global__ void token_loss(const RowStats* stats, const Token* tokens,
                                      const SequenceTerm* terms, Loss loss, int rows,
                                      Outcome* outcomes) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows) return;
    const Token token = tokens[i];
    const SequenceTerm term =
        terms != nullptr ? terms[i] : own_term(loss, token, stats[i].log_prob);
    outcomes[i] = outcome_of(loss, token, term, stats[i]);
}

// Whether a row has a gradient other than 0. A clipped token's row need not even be read; a NaN
// derivative is not 0.
DEVICE bool has_gradient(const RowStats& stats, const Outcome& outcome) {
    return stats.status == 0 && !(outcome.by_log_prob == 0.0f && outcome.by_entropy == 0.0f);
}

template <class T>
DEVICE void rl_backward(T* row, int vocab, Token token, RowStats stats,
                        Outcome outcome) {
    if (!has_gradient(stats, outcome)) {
        clear_row(row, vocab);
        return;
    }
    const Gradient gradient = row_gradient(stats, token.inverse_temperature, outcome.by_log_prob,
                                           outcome.by_entropy);
    const int target = (int)token.target;
    const Split split = split_row(row, vocab);
    Vector* body = (Vector*)(row + split.head);
    FOR_EACH (i, 0, split.head) {
        store_element(row + i, gradient_of_element(gradient, load_element(row + i), i == target));
    }
    FOR_EACH (i, 0, split.vectors) {
        const int first = split.head + i * lanes<T>();
        store_vector(body + i, gradient_of_vector<T>(gradient, load_vector(body + i), first, target));
    }
    FOR_EACH (i, split.tail, vocab) {
        store_element(row + i, gradient_of_element(gradient, load_element(row + i), i == target));
    }
}

#define THREE_PASSES(T)                                                                           \
    extern "C" __global__ void __launch_bounds__(MAX_THREADS) rl_stats_##T(                       \
        const T* logits, i64 row_stride, int vocab, const Token* tokens, RowStats* stats) {       \
        const i64 row = (i64)blockIdx.x;                                                          \
        rl_stats(logits + row * row_stride, vocab, tokens[row], stats + row);                     \
    }                                                                                             \
    extern "C" __global__ void __launch_bounds__(MAX_THREADS) rl_backward_##T(                    \
        T* logits, i64 row_stride, int vocab, const Token* tokens, const RowStats* stats,         \
        const Outcome* outcomes) {                                                                \
        const i64 row = (i64)blockIdx.x;                                                          \
        rl_backward(logits + row * row_stride, vocab, tokens[row], stats[row], outcomes[row]);    \
    }

THREE_PASSES(f32)
THREE_PASSES(bf16)
THREE_PASSES(f16)

// ---- two passes ----

#if defined(DART_EMULATION) || __CUDA_ARCH__ >= 900

// One CTA's part of a row in global memory and the copy that it keeps.
template <class T> struct Slice {
    T* row;      // in global memory
    T* kept;     // in shared memory, as far from a multiple of 16 bytes as `row` is
    int length;  // 0 where the row is shorter than the cluster
    int target;  // index of the target, outside [0, length) if another CTA has it
    Split split;
};

template <class T>
DEVICE Slice<T> slice_of(T* row, int vocab, unsigned target, unsigned char* shared) {
    const int share = slice_length(vocab, (int)sizeof(T));
    const i64 from = (i64)share * cluster_rank();
    const i64 left = (i64)vocab - from;
    Slice<T> slice;
    slice.length = left <= 0 ? 0 : (left < share ? (int)left : share);
    // An empty slice begins at the end of the row: the pointer stays within the allocation.
    slice.row = row + (from < vocab ? from : (i64)vocab);
    slice.kept = (T*)(shared + (u64)slice.row % 16);
    slice.target = (int)((i64)target - from);
    slice.split = split_row(slice.row, slice.length);
    return slice;
}

// The merge over the cluster of each CTA's scan, in the lanes of one warp.
DEVICE Scan cluster_merge(const Scan& slice, float k) {
    const unsigned lane = threadIdx.x % 32;
    Scan scan = empty_scan();
    if (lane < CLUSTER_SIZE) {
        scan.max = cluster_read(&slice.max, lane);
        scan.sum = cluster_read(&slice.sum, lane);
        scan.weighted = cluster_read(&slice.weighted, lane);
    }
    return warp_merge(scan, k);
}

// Each thread turns what it kept itself into gradient: no barrier is needed.
template <class T> DEVICE void store_gradient(const Slice<T>& slice, const Gradient& gradient) {
    const Split split = slice.split;
    const int target = slice.target;
    FOR_EACH (i, 0, split.head) {
        store_element(slice.row + i, gradient_of_element(gradient, slice.kept[i], i == target));
    }
    Vector* body = (Vector*)(slice.row + split.head);
    const Vector* kept = (const Vector*)(slice.kept + split.head);
    FOR_EACH (i, 0, split.vectors) {
        const int first = split.head + i * lanes<T>();
        store_vector(body + i, gradient_of_vector<T>(gradient, kept[i], first, target));
    }
    FOR_EACH (i, split.tail, slice.length) {
        store_element(slice.row + i, gradient_of_element(gradient, slice.kept[i], i == target));
    }
}

// Where one row's results go.
struct RowResult { RowStats* stats; Outcome* outcome; };

// Every CTA of the cluster computes the few numbers of the row itself; the first one writes them.
DEVICE void finish_row(const Scan& rest, float x, const Token& token, const Loss& loss,
                       const RowResult& result, Scratch& scratch) {
    const RowStats stats = finish(rest, x, token.inverse_temperature);
    const SequenceTerm term = own_term(loss, token, stats.log_prob);
    const Outcome outcome = outcome_of(loss, token, term, stats);
    scratch.gradient = row_gradient(stats, token.inverse_temperature, outcome.by_log_prob,
                                    outcome.by_entropy);
    scratch.has_gradient = has_gradient(stats, outcome);
    if (cluster_rank() == 0) {
        *result.stats = stats;
        *result.outcome = outcome;
    }
}

// A token whose row is not read or cannot be. All CTAs of the cluster agree: none waits.
template <class T>
DEVICE void skip_row(const Slice<T>& slice, bool read, const RowResult& result) {
    clear_row(slice.row, slice.length);
    if (threadIdx.x == 0 && cluster_rank() == 0) {
        *result.stats = read ? broken_row(ROW_BAD_LABEL) : unread_row();
        *result.outcome = outcome_without_loss(read);
    }
}

template <class T>
DEVICE void rl_fused(T* row, int vocab, Token token, const Loss& loss,
                     const RowResult& result) {
    SHARED(Scratch, scratch);
    DYNAMIC_SHARED(shared);
    const Slice<T> slice = slice_of(row, vocab, token.target, shared);
    const bool read = token.weight != 0.0f;
    if (!read || token.target >= (unsigned)vocab) {
        skip_row(slice, read, result);
        return;
    }
    // Read before the first barrier of the cluster: after it the row is overwritten.
    const float x = threadIdx.x == 0 ? to_float(load_element(row + token.target)) : 0.0f;
    const Keep<T> keep{slice.kept, (Vector*)(slice.kept + slice.split.head)};
    const float k = token.inverse_temperature * LOG2_E;
    const Scan mine = scan_row(slice.row, slice.length, slice.target, k, keep);
    const Scan merged = block_merge(mine, k, scratch.warps);
    if (threadIdx.x == 0) scratch.slice = merged;
    cluster_arrive();
    cluster_wait();
    if (threadIdx.x < 32) {
        const Scan rest = cluster_merge(scratch.slice, k);
        if (threadIdx.x == 0) finish_row(rest, x, token, loss, result, scratch);
    }
    __syncthreads();
    cluster_arrive();
    if (scratch.has_gradient) {
        store_gradient(slice, scratch.gradient);
    } else {
        clear_row(slice.row, slice.length);
    }
    // No CTA leaves while another may still read its shared memory.
    cluster_wait();
}

#define TWO_PASSES(T)                                                                             \
    extern "C" __global__ void __cluster_dims__(CLUSTER_SIZE, 1, 1)                               \
        __launch_bounds__(MAX_THREADS)                                                            \
            rl_fused_##T(T* logits, i64 row_stride, int vocab, const Token* tokens, Loss loss,    \
                         RowStats* stats, Outcome* outcomes) {                                    \
        const i64 row = (i64)blockIdx.x / CLUSTER_SIZE;                                           \
        const RowResult result{stats + row, outcomes + row};                                      \
        rl_fused(logits + row * row_stride, vocab, tokens[row], loss, result);                    \
    }

TWO_PASSES(f32)
TWO_PASSES(bf16)
TWO_PASSES(f16)

#endif
