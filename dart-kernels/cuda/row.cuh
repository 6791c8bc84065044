// Statistics of a row of logits in one pass, and their gradient.
//
// Online softmax in powers of 2 with a *centred* weighted sum. The target is left out of the
// scan and merged last with log1p, so that log-probability, entropy and 1 - p keep their relative
// precision when p is close to 1, and masked (-inf) logits cannot make NaN.
#pragma once
#include "device.cuh"

// 2^-200 is 0 in f32. Bounding an exponent here keeps 0 * inf out of the sums and hides no NaN:
// a NaN stays in `sum`, whose exponents are not bounded.
#define EXPONENT_FLOOR -200.0f

// A part of a row: its maximum m, the sums of 2^d and d 2^d with d = (x - m) k, k = log2(e) / T.
// Subtracting first costs an instruction, but d is right for logits of any size and of any common
// shift.
struct Scan { float max, sum, weighted; };

DEVICE Scan empty_scan() { return Scan{-INFINITE, 0.0f, 0.0f}; }

DEVICE float floored(float exponent) { return fmaxf(exponent, EXPONENT_FLOOR); }

// Moves the reference of the sums from scan.max up to `max`.
DEVICE void raise(Scan& scan, float max, float k) {
    const float fall = (scan.max - max) * k;
    const float scale = exp2_fast(fall);
    scan.weighted = scale * fmaf(floored(fall), scan.sum, scan.weighted);
    scan.sum *= scale;
    scan.max = max;
}

// Moves the reference up to `max` if that is higher, and gives the number that d refers to.
DEVICE float reference_for(Scan& scan, float max, float k) {
    if (max > scan.max) raise(scan, max, k);
    return scan.max == -INFINITE ? 0.0f : scan.max;
}

DEVICE void accumulate(Scan& scan, float x, float reference, float k) {
    const float d = (x - reference) * k;
    const float e = exp2_fast(d);
    scan.sum += e;
    scan.weighted = fmaf(e, floored(d), scan.weighted);
}

DEVICE void push(Scan& scan, float x, float k) {
    accumulate(scan, x, reference_for(scan, x, k), k);
}

// Pushes vectors; the reference moves once for all of them.
template <class T, int COUNT> DEVICE void push(Scan& scan, const Vector (&v)[COUNT], float k) {
    float max = -INFINITE;
    UNROLL for (int j = 0; j < COUNT; j++) {
        float x[lanes<T>()];
        unpack<T>(v[j], x);
        UNROLL for (int i = 0; i < lanes<T>(); i++) max = fmaxf(max, x[i]);
    }
    const float reference = reference_for(scan, max, k);
    UNROLL for (int j = 0; j < COUNT; j++) {
        float x[lanes<T>()];
        unpack<T>(v[j], x);
        UNROLL for (int i = 0; i < lanes<T>(); i++) accumulate(scan, x[i], reference, k);
    }
}

DEVICE Scan merge(Scan a, Scan b, float k) {
    const float max = fmaxf(a.max, b.max);
    if (max == -INFINITE) return Scan{max, a.sum + b.sum, 0.0f};
    raise(a, max, k);
    raise(b, max, k);
    return Scan{max, a.sum + b.sum, a.weighted + b.weighted};
}

// Every lane of a full warp gets the merge of all lanes. Always the same tree: bits repeat.
DEVICE Scan warp_merge(Scan scan, float k) {
    for (int distance = 16; distance > 0; distance /= 2) {
        Scan other;
        other.max = __shfl_xor_sync(0xffffffffu, scan.max, distance);
        other.sum = __shfl_xor_sync(0xffffffffu, scan.sum, distance);
        other.weighted = __shfl_xor_sync(0xffffffffu, scan.weighted, distance);
        scan = merge(scan, other, k);
    }
    return scan;
}

// The merge over a CTA, in the lanes of warp 0 only.
DEVICE Scan block_merge(Scan scan, float k, Scan (&warps)[MAX_THREADS / 32]) {
    const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    scan = warp_merge(scan, k);
    if (lane == 0) warps[warp] = scan;
    __syncthreads();
    if (warp != 0) return scan;
    return warp_merge(lane < blockDim.x / 32 ? warps[lane] : empty_scan(), k);
}

// How a stretch of a row splits: elements before the first 16-byte boundary, whole vectors, rest.
struct Split { int head, vectors, tail; };  // tail: index of the first element of the rest

template <class T> DEVICE Split split_row(const T* row, int length) {
    const int past = (int)((u64)row % 16) / (int)sizeof(T);
    int head = past == 0 ? 0 : lanes<T>() - past;
    if (head > length) head = length;
    const int vectors = (length - head) / lanes<T>();
    return Split{head, vectors, head + vectors * lanes<T>()};
}

// The threads of a CTA share the indices [from, to) by turns.
#define FOR_EACH(i, from, to) for (int i = (from) + (int)threadIdx.x; i < (to); i += (int)blockDim.x)

// What a scan does with what it reads, besides pushing it: nothing, or keep a copy of equal split.
struct Forget {
    template <class Item> DEVICE void operator()(int, const Item&) const {}
};
template <class T> struct Keep {
    T* elements;      // by index in the stretch
    Vector* vectors;  // by index in the body
    DEVICE void operator()(int i, const T& x) const { elements[i] = x; }
    DEVICE void operator()(int i, const Vector& v) const { vectors[i] = v; }
};

// Reads elements [from, to), the head or the tail of a stretch.
template <class T, class Copy>
DEVICE void scan_elements(Scan& scan, const T* row, int from, int to, int skip, float k, Copy copy) {
    FOR_EACH (i, from, to) {
        const T x = load_element(row + i);
        copy(i, x);
        if (i != skip) push(scan, to_float(x), k);
    }
}

// Where an element lies in the body of a stretch; in a vector that is never read if it does not.
struct Place { int vector, lane; };

template <class T> DEVICE Place place_of(const Split& split, int element) {
    const int at = element - split.head;
    return Place{at < 0 ? -1 : at / lanes<T>(), at % lanes<T>()};
}

// Makes an element count as -inf.
template <class T> DEVICE void hide(Vector& v, int lane) {
    float x[lanes<T>()];
    unpack<T>(v, x);
    UNROLL for (int i = 0; i < lanes<T>(); i++) x[i] = i == lane ? -INFINITE : x[i];
    v = pack<T>(x);
}

// Reads COUNT vectors, `step` apart from vector `first` on, and pushes them. All loads are under
// way before the first is used.
template <class T, int COUNT, class Copy>
DEVICE void scan_vectors(Scan& scan, const Vector* body, int first, int step, Place skip, float k,
                         Copy copy) {
    Vector v[COUNT];
    UNROLL for (int j = 0; j < COUNT; j++) v[j] = load_vector(body + first + j * step);
    UNROLL for (int j = 0; j < COUNT; j++) copy(first + j * step, v[j]);
    if ((unsigned)(skip.vector - first) < (unsigned)(COUNT * step)) {
        UNROLL for (int j = 0; j < COUNT; j++) {
            if (first + j * step == skip.vector) hide<T>(v[j], skip.lane);
        }
    }
    push<T>(scan, v, k);
}

// This thread's part of a stretch of a row in global memory; element `skip` is left out.
template <class T, class Copy>
DEVICE Scan scan_row(const T* row, int length, int skip, float k, Copy copy) {
    enum { IN_FLIGHT = 4 };  // 64 bytes per thread cover the latency of memory
    Scan scan = empty_scan();
    const Split split = split_row(row, length);
    const Place place = place_of<T>(split, skip);
    const Vector* body = (const Vector*)(row + split.head);
    const int step = (int)blockDim.x;
    int i = (int)threadIdx.x;
    scan_elements(scan, row, 0, split.head, skip, k, copy);
    for (; i + (IN_FLIGHT - 1) * step < split.vectors; i += IN_FLIGHT * step) {
        scan_vectors<T, IN_FLIGHT>(scan, body, i, step, place, k, copy);
    }
    for (; i < split.vectors; i += step) {
        scan_vectors<T, 1>(scan, body, i, step, place, k, copy);
    }
    scan_elements(scan, row, split.tail, length, skip, k, copy);
    return scan;
}

DEVICE RowStats broken_row(unsigned status) {
    const float nan = NOT_A_NUMBER;
    const float log_sum_exp = status == ROW_ALL_MASKED ? -INFINITE : nan;
    return RowStats{nan, nan, log_sum_exp, nan, nan, nan, status, 0.0f};
}

DEVICE RowStats unread_row() {
    return RowStats{0.0f, 0.0f, 0.0f, 0.0f, 0.0f, 0.0f, ROW_NOT_READ, 0.0f};
}

// The target is the maximum, by `above` in log2 units: all sums are odds against it.
DEVICE RowStats finish_above(const Scan& rest, float above, float x, float inverse_temperature) {
    const float scale = exp2_fast(-above);
    const float odds = rest.sum * scale;
    // above * sum may overflow where scale is 0.
    const float weighted = scale > 0.0f ? scale * (rest.weighted - above * rest.sum) : 0.0f;
    const float log1p_odds = log1pf(odds);
    RowStats stats;
    stats.log_prob = -log1p_odds;
    stats.entropy = log1p_odds - LN_2 * weighted / (1.0f + odds);
    stats.log_sum_exp = fmaf(x, inverse_temperature, log1p_odds);
    stats.complement = odds / (1.0f + odds);
    stats.max = x;
    stats.sum = 1.0f + odds;
    stats.status = 0;
    stats.unused = 0.0f;
    return stats;
}

// Something else is above the target; `below` is negative.
DEVICE RowStats finish_below(const Scan& rest, float below, float inverse_temperature) {
    const float e = exp2_fast(below);
    const float sum = rest.sum + e;
    const float weighted = fmaf(e, floored(below), rest.weighted);
    const float log2_sum = log2f(sum);
    RowStats stats;
    stats.log_prob = LN_2 * (below - log2_sum);
    stats.entropy = LN_2 * (log2_sum - weighted / sum);
    stats.log_sum_exp = fmaf(rest.max, inverse_temperature, LN_2 * log2_sum);
    stats.complement = rest.sum / sum;
    stats.max = rest.max;
    stats.sum = sum;
    stats.status = below == -INFINITE ? (unsigned)ROW_TARGET_MASKED : 0u;
    stats.unused = 0.0f;
    return stats;
}

// Statistics of a row from all elements but the target, and the target's logit x.
DEVICE RowStats finish(const Scan& rest, float x, float inverse_temperature) {
    const bool target_is_number = x < INFINITE;  // -inf passes, NaN does not
    if (!target_is_number || rest.sum != rest.sum) return broken_row(ROW_NOT_FINITE);
    if (x == -INFINITE && rest.max == -INFINITE) return broken_row(ROW_ALL_MASKED);
    // +inf where the rest is empty.
    const float above = (x - rest.max) * (inverse_temperature * LOG2_E);
    return above >= 0.0f ? finish_above(rest, above, x, inverse_temperature)
                         : finish_below(rest, above, inverse_temperature);
}

// Derivative of a loss with respect to the logits of one row: 2^d (constant + slope d), and one
// value of its own at the target.
struct Gradient { float k, max, constant, slope, at_target; };

// With p the softmax of x / T, g and h the derivatives by log-probability and entropy H:
// dL/dx_j = (1/T) [p_j (-g - h H - h ln p_j) + delta_jy g]. At the target 1 - p is used as it is.
DEVICE Gradient row_gradient(const RowStats& stats, float inverse_temperature, float by_log_prob,
                             float by_entropy) {
    const float scale = inverse_temperature / stats.sum;
    const float log_sum = LN_2 * log2f(stats.sum);
    const float p = expf(stats.log_prob);
    const float entropy_part = p > 0.0f ? by_entropy * p * (stats.entropy + stats.log_prob) : 0.0f;
    Gradient gradient;
    gradient.k = inverse_temperature * LOG2_E;
    gradient.max = stats.max;
    gradient.constant = scale * (by_entropy * (log_sum - stats.entropy) - by_log_prob);
    gradient.slope = -scale * by_entropy * LN_2;
    gradient.at_target = inverse_temperature * (by_log_prob * stats.complement - entropy_part);
    return gradient;
}

DEVICE float gradient_of(const Gradient& gradient, float x) {
    const float d = (x - gradient.max) * gradient.k;
    return exp2_fast(d) * fmaf(gradient.slope, floored(d), gradient.constant);
}

// The gradient of a vector of logits whose first element has index `first`. The target's is put
// in before rounding.
template <class T>
DEVICE Vector gradient_of_vector(const Gradient& gradient, const Vector& v, int first, int target) {
    float x[lanes<T>()];
    unpack<T>(v, x);
    UNROLL for (int i = 0; i < lanes<T>(); i++) x[i] = gradient_of(gradient, x[i]);
    const unsigned at = (unsigned)(target - first);
    if (at < (unsigned)lanes<T>()) {
        UNROLL for (int i = 0; i < lanes<T>(); i++) {
            if ((unsigned)i == at) x[i] = gradient.at_target;
        }
    }
    return pack<T>(x);
}

template <class T> DEVICE T gradient_of_element(const Gradient& gradient, T x, bool is_target) {
    return from_float<T>(is_target ? gradient.at_target : gradient_of(gradient, to_float(x)));
}

// Overwrites a stretch of a row with zeros.
template <class T> DEVICE void clear_row(T* row, int length) {
    const Split split = split_row(row, length);
    const Vector zeros = {{0, 0, 0, 0}};
    Vector* body = (Vector*)(row + split.head);
    FOR_EACH (i, 0, split.head) store_element(row + i, from_float<T>(0.0f));
    FOR_EACH (i, 0, split.vectors) store_vector(body + i, zeros);
    FOR_EACH (i, split.tail, length) store_element(row + i, from_float<T>(0.0f));
}
