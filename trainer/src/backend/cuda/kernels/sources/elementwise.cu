// Operations on every element by itself, of whole arrays or of columns of their rows.

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

// Columns of rows, by how wide the rows are that they come from and go to, and where they are there.
template <typename A, typename B>
__device__ __forceinline__ void columns(
    const A* from, B* to, long long rows, long long count, long long from_width, long long from_first,
    long long to_width, long long to_first, int accumulate) {
    Place place = group_of_rows(count);
    if (place.row >= rows) {
        return;
    }
    long long left = count - place.column;
    float values[GROUP];
    load_group(from + place.row * from_width + from_first + place.column, left, values);
    B* target = to + place.row * to_width + to_first + place.column;
    if (accumulate) {
        float sums[GROUP];
        load_group(target, left, sums);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            values[i] += sums[i];
        }
    }
    store_group(target, left, values);
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

#define COLUMNS(name, A, B)                                                                                         \
    extern "C" __global__ void name(const A* from, B* to, long long rows, long long count, long long from_width,    \
                                    long long from_first, long long to_width, long long to_first,                   \
                                    int accumulate) {                                                               \
        columns(from, to, rows, count, from_width, from_first, to_width, to_first, accumulate);                     \
    }
COLUMNS(columns_bf16_bf16, bf16, bf16)
COLUMNS(columns_bf16_f32, bf16, float)
COLUMNS(columns_f32_bf16, float, bf16)
COLUMNS(columns_f32_f32, float, float)
