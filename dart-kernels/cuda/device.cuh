// The few things that CUDA C has no word for: approximate exp2, 16-bit floats, 16-byte vectors,
// clusters. Only what is written here differs between the GPU and the emulation
// (emulation/device.hpp defines the same names), so everything else is one source.
//
// No header of CUDA is needed. A source that NVRTC gets is its file with each `#include "..."` line
// replaced by that file's text at its first mention (cuda/compile_ptx.py, tests/it/emulation/ptx.rs).
#pragma once
#include "abi.cuh"

typedef unsigned short u16;

// Elements of logits. Opaque, so that every read and write of a row goes through this file.
struct f32 { float bits; };
struct bf16 { u16 bits; };
struct f16 { u16 bits; };

// 16 bytes, the widest access of memory.
struct __align__(16) Vector { unsigned word[4]; };

// Elements in a vector.
template <class T> __host__ __device__ constexpr int lanes() { return 16 / (int)sizeof(T); }

#ifndef DART_EMULATION

#define DEVICE __device__ __forceinline__
#define UNROLL _Pragma("unroll")
// One object per CTA in static shared memory; at most one in a kernel.
#define SHARED(Type, name) __shared__ Type name
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

// 2^x to 2 units in the last place; results below 2^-126 are 0.
DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

DEVICE float half_to_float(u16 bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}

// Two floats, rounded to nearest even, in one word; `low` in the lower half.
DEVICE unsigned pack_half(float low, float high) {
    unsigned word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}
DEVICE unsigned pack_bfloat(float low, float high) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
    return word;
}

// Reads of rows. `volatile` keeps the order in which they are written, so that the loads of an
// unrolled loop are all in flight before the first is used.
DEVICE Vector load_vector(const Vector* at) {
    Vector v;
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                 : "l"(at)
                 : "memory");
    return v;
}
DEVICE void store_vector(Vector* at, const Vector& v) { *at = v; }
template <class T> DEVICE T load_element(const T* at) { return *at; }
template <class T> DEVICE void store_element(T* at, T value) { *at = value; }

#if __CUDA_ARCH__ >= 900
DEVICE unsigned cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
// Barrier over all threads of a cluster in two halves: what was written before `arrive` is seen
// after `wait`.
DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
// Reads the float that CTA `rank` of the cluster has where this CTA has `mine` in shared memory.
DEVICE float cluster_read(const float* mine, unsigned rank) {
    const unsigned local = (unsigned)__cvta_generic_to_shared(mine);
    unsigned remote;
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote) : "memory");
    return value;
}
#endif

#endif  // DART_EMULATION

#define LOG2_E 1.4426950408889634f
#define LN_2 0.69314718055994531f
#define NOT_A_NUMBER (__int_as_float(0x7fc00000))
#define INFINITE (__int_as_float(0x7f800000))

DEVICE float bfloat_to_float(unsigned bits) { return __int_as_float((int)(bits << 16)); }

DEVICE float to_float(f32 x) { return x.bits; }
DEVICE float to_float(bf16 x) { return bfloat_to_float(x.bits); }
DEVICE float to_float(f16 x) { return half_to_float(x.bits); }

template <class T> DEVICE T from_float(float x);
template <> DEVICE f32 from_float<f32>(float x) { return f32{x}; }
template <> DEVICE bf16 from_float<bf16>(float x) { return bf16{(u16)pack_bfloat(x, 0.0f)}; }
template <> DEVICE f16 from_float<f16>(float x) { return f16{(u16)pack_half(x, 0.0f)}; }

template <class T> DEVICE void unpack(const Vector& v, float (&x)[lanes<T>()]);
template <> DEVICE void unpack<f32>(const Vector& v, float (&x)[4]) {
    UNROLL for (int i = 0; i < 4; i++) x[i] = __int_as_float((int)v.word[i]);
}
template <> DEVICE void unpack<bf16>(const Vector& v, float (&x)[8]) {
    UNROLL for (int i = 0; i < 4; i++) {
        x[2 * i] = bfloat_to_float(v.word[i]);
        x[2 * i + 1] = __int_as_float((int)(v.word[i] & 0xffff0000u));
    }
}
template <> DEVICE void unpack<f16>(const Vector& v, float (&x)[8]) {
    UNROLL for (int i = 0; i < 4; i++) {
        x[2 * i] = half_to_float((u16)v.word[i]);
        x[2 * i + 1] = half_to_float((u16)(v.word[i] >> 16));
    }
}

template <class T> DEVICE Vector pack(const float (&x)[lanes<T>()]);
template <> DEVICE Vector pack<f32>(const float (&x)[4]) {
    Vector v;
    UNROLL for (int i = 0; i < 4; i++) v.word[i] = (unsigned)__float_as_int(x[i]);
    return v;
}
template <> DEVICE Vector pack<bf16>(const float (&x)[8]) {
    Vector v;
    UNROLL for (int i = 0; i < 4; i++) v.word[i] = pack_bfloat(x[2 * i], x[2 * i + 1]);
    return v;
}
template <> DEVICE Vector pack<f16>(const float (&x)[8]) {
    Vector v;
    UNROLL for (int i = 0; i < 4; i++) v.word[i] = pack_half(x[2 * i], x[2 * i + 1]);
    return v;
}

// Unlike fminf and fmaxf, which drop a NaN, this keeps it.
DEVICE float clamp(float x, float low, float high) { return x < low ? low : (x > high ? high : x); }
