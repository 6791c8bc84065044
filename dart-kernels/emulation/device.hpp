// The words of CUDA C that the kernels use, and the primitives of cuda/device.cuh, for a CPU.
// To be included before any kernel source.
#pragma once
#include <cmath>

#include "scheduler.hpp"

#define DART_EMULATION 1

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(bytes) alignas(bytes)
#define DEVICE inline
#define UNROLL

struct Index {
    unsigned x;
};
#define threadIdx (Index{emulation::running->current().index})
#define blockIdx (Index{emulation::running->block_index()})
#define blockDim (Index{emulation::running->launch().threads})

#define __syncthreads() emulation::running->wait(emulation::State::block_barrier, __LINE__)
#define __shfl_xor_sync(mask, value, distance) \
    emulation::exchange(mask, value, distance, __LINE__)
#define cluster_arrive() emulation::running->cluster_arrive(__LINE__)
#define cluster_wait() emulation::running->cluster_wait(__LINE__)

#define SHARED(Type, name) Type& name = emulation::static_shared<Type>()
#define DYNAMIC_SHARED(name) unsigned char* name = emulation::dynamic_shared()

inline int __float_as_int(float x) {
    int bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float __int_as_float(int bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

namespace emulation {

// What the lane at `distance` holds. All lanes of `mask` must call it at the same place.
template <class T> T exchange(unsigned mask, T value, unsigned distance, int line) {
    static_assert(sizeof(T) <= sizeof(uint64_t), "one slot per lane");
    Thread& thread = running->current();
    const unsigned lane = thread.index % WARP, parity = thread.collectives++ % 2;
    Warp& warp = running->warp();
    std::memcpy(&warp.slots[parity][lane], &value, sizeof value);
    running->wait(State::warp_collective, line, mask);
    T other;
    std::memcpy(&other, &warp.slots[parity][lane ^ distance], sizeof other);
    return other;
}

// Shared memory of exactly the size asked for, so that a sanitizer sees what lies beyond it.
inline unsigned char* static_bytes(unsigned rank, size_t bytes) {
    std::vector<unsigned char>& shared = running->block(rank).static_shared;
    if (shared.empty()) shared.assign(bytes, POISON);
    return shared.data();
}

template <class T> T& static_shared() {
    return *reinterpret_cast<T*>(static_bytes(running->current().block, sizeof(T)));
}

inline unsigned char* dynamic_shared() {
    return running->block(running->current().block).dynamic_shared.data();
}

// Bounds of the error of the GPU's ex2.approx: results here are off by as much, either way, so
// that accuracy is tested under it. A function of the argument alone: bits repeat.
constexpr float EXP2_ERROR = 1.7e-7f;

inline float disturb(float argument, float value) {
    const uint32_t hash = uint32_t(__float_as_int(argument)) * 2654435761u;
    const float sign = float(int32_t(hash)) * (1.0f / 2147483648.0f);
    return value + value * (EXP2_ERROR * sign);
}

inline float half_to_float(uint16_t bits) {
    const uint32_t sign = uint32_t(bits & 0x8000u) << 16;
    const uint32_t exponent = bits >> 10 & 0x1fu, fraction = bits & 0x3ffu;
    if (exponent == 0) {
        const float magnitude = std::ldexp(float(fraction), -24);
        return sign != 0 ? -magnitude : magnitude;
    }
    const uint32_t wide = exponent == 0x1f ? 0xffu : exponent + 112;
    return __int_as_float(int(sign | wide << 23 | fraction << 13));
}

// To nearest, ties to even.
inline uint16_t float_to_half(float x) {
    const uint32_t bits = uint32_t(__float_as_int(x));
    const uint16_t sign = uint16_t(bits >> 16 & 0x8000u);
    const float magnitude = std::fabs(x);
    if (std::isnan(x)) return uint16_t(sign | 0x7e00u);
    if (magnitude >= 65520.0f) return uint16_t(sign | 0x7c00u);
    if (magnitude < 6.103515625e-5f) {  // subnormal: units of 2^-24
        return uint16_t(sign | uint16_t(std::nearbyint(std::ldexp(magnitude, 24))));
    }
    const uint32_t rounded = (bits & 0x7fffffffu) + 0xfffu + (bits >> 13 & 1u);
    return uint16_t(sign | ((rounded >> 13) - (112u << 10)));
}

inline uint16_t float_to_bfloat(float x) {
    const uint32_t bits = uint32_t(__float_as_int(x));
    if (std::isnan(x)) return 0x7fff;
    return uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace emulation

#include "abi.cuh"

struct Vector;

inline float exp2_fast(float x) {
    const float value = emulation::disturb(x, std::exp2(x));
    return std::fabs(value) < 1.17549435e-38f ? 0.0f : value;
}

inline float half_to_float(unsigned short bits) { return emulation::half_to_float(bits); }

inline unsigned pack_half(float low, float high) {
    return emulation::float_to_half(low) | unsigned(emulation::float_to_half(high)) << 16;
}

inline unsigned pack_bfloat(float low, float high) {
    return emulation::float_to_bfloat(low) | unsigned(emulation::float_to_bfloat(high)) << 16;
}

template <class T> T load_element(const T* at) {
    emulation::traffic.read += sizeof(T);
    return *at;
}

template <class T> void store_element(T* at, T value) {
    emulation::traffic.written += sizeof(T);
    *at = value;
}

template <class V> V load_vector(const V* at) { return load_element(at); }

template <class V> void store_vector(V* at, const V& value) { store_element(at, value); }

inline unsigned cluster_rank() { return emulation::running->current().block; }

// Distributed shared memory: the same place in the memory of another CTA of the cluster.
inline float cluster_read(const float* mine, unsigned rank) {
    const auto& own = emulation::running->block(cluster_rank()).static_shared;
    const size_t at = size_t(reinterpret_cast<const unsigned char*>(mine) - own.data());
    float value;
    std::memcpy(&value, emulation::static_bytes(rank, own.size()) + at, sizeof value);
    return value;
}
