// What all kernels share: numbers as they are stored, eight of them at a time, and sums over a block.
// Written without a single include, so that the compiler needs no headers at run time.

struct bf16 {
    unsigned short bits;
};

constexpr int GROUP = 8;
constexpr int WARP = 32;
constexpr unsigned ALL_LANES = 0xffffffffu;
constexpr float LOG2_E = 1.4426950408889634f;

__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

template <typename E>
__device__ __forceinline__ E narrow(float x);
template <>
__device__ __forceinline__ float narrow<float>(float x) {
    return x;
}
template <>
__device__ __forceinline__ bf16 narrow<bf16>(float x) {
    bf16 rounded;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded.bits) : "f"(x));
    return rounded;
}

// Two numbers in one register, the first one in the lower half.
__device__ __forceinline__ unsigned narrow_two(float first, float second) {
    unsigned both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

__device__ __forceinline__ float power_of_two(float x) {
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

// e to the power of x, as exactly as what is stored in E can tell.
template <typename E>
__device__ __forceinline__ float exponential(float x);
template <>
__device__ __forceinline__ float exponential<float>(float x) {
    return expf(x);
}
template <>
__device__ __forceinline__ float exponential<bf16>(float x) {
    return power_of_two(x * LOG2_E);
}

template <typename E>
__device__ __forceinline__ unsigned misalignment(const E* place) {
    return (unsigned)((unsigned long long)place & 15);
}

// Eight numbers from an aligned place.
__device__ __forceinline__ void load_whole(const float* from, float (&to)[GROUP]) {
    float4 lower = reinterpret_cast<const float4*>(from)[0];
    float4 upper = reinterpret_cast<const float4*>(from)[1];
    to[0] = lower.x, to[1] = lower.y, to[2] = lower.z, to[3] = lower.w;
    to[4] = upper.x, to[5] = upper.y, to[6] = upper.z, to[7] = upper.w;
}
__device__ __forceinline__ void unpack(uint4 packed, float (&to)[GROUP]) {
    unsigned words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int word = 0; word < 4; word++) {
        to[2 * word] = __uint_as_float(words[word] << 16);
        to[2 * word + 1] = __uint_as_float(words[word] & 0xffff0000u);
    }
}
__device__ __forceinline__ void load_whole(const bf16* from, float (&to)[GROUP]) {
    unpack(*reinterpret_cast<const uint4*>(from), to);
}

__device__ __forceinline__ void store_whole(float* to, const float (&from)[GROUP]) {
    reinterpret_cast<float4*>(to)[0] = make_float4(from[0], from[1], from[2], from[3]);
    reinterpret_cast<float4*>(to)[1] = make_float4(from[4], from[5], from[6], from[7]);
}
__device__ __forceinline__ void store_whole(bf16* to, const float (&from)[GROUP]) {
    uint4 packed;
    packed.x = narrow_two(from[0], from[1]);
    packed.y = narrow_two(from[2], from[3]);
    packed.z = narrow_two(from[4], from[5]);
    packed.w = narrow_two(from[6], from[7]);
    *reinterpret_cast<uint4*>(to) = packed;
}

// Up to eight numbers from anywhere; zeros after the last that is left.
template <typename E>
__device__ __forceinline__ void load_group(const E* from, long long left, float (&to)[GROUP]) {
    if (left >= GROUP && misalignment(from) == 0) {
        load_whole(from, to);
        return;
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        to[i] = i < left ? widen(from[i]) : 0.0f;
    }
}
template <typename E>
__device__ __forceinline__ void store_group(E* to, long long left, const float (&from)[GROUP]) {
    if (left >= GROUP && misalignment(to) == 0) {
        store_whole(to, from);
        return;
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        if (i < left) {
            to[i] = narrow<E>(from[i]);
        }
    }
}

// The first element of this thread's group, where every thread of the grid has one.
__device__ __forceinline__ long long group_begin() {
    return GROUP * ((long long)blockIdx.x * blockDim.x + threadIdx.x);
}

struct Place {
    long long row;
    long long column;
};

// The same in rows that begin with a group each.
__device__ __forceinline__ Place group_of_rows(long long width) {
    unsigned long long groups = (width + GROUP - 1) / GROUP;
    unsigned long long group = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long row = (group | groups) >> 32 ? group / groups : (unsigned)group / (unsigned)groups;
    return {(long long)row, (long long)(group - row * groups) * GROUP};
}

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }
template <typename S>
__device__ __forceinline__ S sum_of(S a, S b) {
    return a + b;
}

// Combines a number of every thread of a block, in an order that is always the same; all threads get the result.
template <typename S, typename Combine>
__device__ __forceinline__ S over_block(S value, S nothing, Combine combine) {
    __shared__ S of_warps[WARP];
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value = combine(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    // Others may still read what was combined before.
    __syncthreads();
    if (lane == 0) {
        of_warps[warp] = value;
    }
    __syncthreads();
    value = lane < (blockDim.x + WARP - 1) / WARP ? of_warps[lane] : nothing;
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value = combine(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}
__device__ __forceinline__ float block_sum(float value) { return over_block(value, 0.0f, sum_of<float>); }
