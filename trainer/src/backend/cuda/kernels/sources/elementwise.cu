// Operations on every element by itself.

template <typename A, typename B>
__device__ __forceinline__ void convert(const A* from, B* to, long long count) {
    long long at = group_begin();
    if (at < count) {
        float values[GROUP];
        load_group(from + at, count - at, values);
        store_group(to + at, count - at, values);
    }
}

template <typename E>
__device__ __forceinline__ void add(E* target, const E* other, long long count) {
    long long at = group_begin();
    if (at < count) {
        float sums[GROUP], more[GROUP];
        load_group(target + at, count - at, sums);
        load_group(other + at, count - at, more);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            sums[i] += more[i];
        }
        store_group(target + at, count - at, sums);
    }
}

#define CONVERT(name, A, B) \
    extern "C" __global__ void name(const A* from, B* to, long long count) { convert(from, to, count); }
CONVERT(convert_bf16_bf16, bf16, bf16)
CONVERT(convert_bf16_f32, bf16, float)
CONVERT(convert_f32_bf16, float, bf16)
CONVERT(convert_f32_f32, float, float)

#define ADD(name, E) \
    extern "C" __global__ void name(E* target, const E* other, long long count) { add(target, other, count); }
ADD(add_bf16, bf16)
ADD(add_f32, float)
