// Log-probability of a target and entropy of its row: one pass over the logits.
#include "row.cuh"

struct StatsScratch { Scan warps[MAX_THREADS / 32]; };

template <class T>
DEVICE void logprob_entropy(const T* row, int vocab, unsigned target, bool ignored,
                            float inverse_temperature, RowStats* out) {
    SHARED(StatsScratch, scratch);
    if (ignored || target >= (unsigned)vocab) {
        if (threadIdx.x == 0) *out = ignored ? unread_row() : broken_row(ROW_BAD_LABEL);
        return;
    }
    const float k = inverse_temperature * LOG2_E;
    const Scan mine = scan_row(row, vocab, (int)target, k, Forget());
    const Scan rest = block_merge(mine, k, scratch.warps);
    if (threadIdx.x == 0) *out = finish(rest, to_float(load_element(row + target)), inverse_temperature);
}

#define LOGPROB_ENTROPY(T)                                                                        \
    extern "C" __global__ void __launch_bounds__(MAX_THREADS) logprob_entropy_##T(                \
        const T* logits, i64 row_stride, int vocab, const unsigned* targets,                      \
        const float* inverse_temperatures, float inverse_temperature, unsigned ignore_index,      \
        RowStats* stats) {                                                                        \
        const i64 row = (i64)blockIdx.x;                                                          \
        const float inverse =                                                                     \
            inverse_temperatures != nullptr ? inverse_temperatures[row] : inverse_temperature;    \
        logprob_entropy(logits + row * row_stride, vocab, targets[row],                           \
                        targets[row] == ignore_index, inverse, stats + row);                      \
    }

LOGPROB_ENTROPY(f32)
LOGPROB_ENTROPY(bf16)
LOGPROB_ENTROPY(f16)
