// Root-mean-square normalisation: a block to a row, of which each thread holds its first group in registers.

__device__ __forceinline__ float reciprocal_root(float squares, long long width, float epsilon) {
    return 1.0f / sqrtf(squares / (float)width + epsilon);
}

template <typename E>
__device__ __forceinline__ void rms_norm(const E* x, const E* weight, E* y, long long width, float epsilon) {
    x += blockIdx.x * width;
    y += blockIdx.x * width;
    long long begin = GROUP * threadIdx.x, step = GROUP * blockDim.x;
    float held[GROUP];
    load_group(x + begin, width - begin, held);
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        squares += held[i] * held[i];
    }
    for (long long at = begin + step; at < width; at += step) {
        float more[GROUP];
        load_group(x + at, width - at, more);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            squares += more[i] * more[i];
        }
    }
    float scale = reciprocal_root(block_sum(squares), width, epsilon);
    for (long long at = begin; at < width; at += step) {
        float weights[GROUP];
        load_group(weight + at, width - at, weights);
        if (at > begin) {
            load_group(x + at, width - at, held);
        }
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            held[i] = held[i] * scale * weights[i];
        }
        store_group(y + at, width - at, held);
    }
}

struct RowSums {
    float squares;
    float products;
};

__device__ __forceinline__ void add_to_row_sums(
    RowSums& sums, const float (&x)[GROUP], const float (&d_y)[GROUP], const float (&weight)[GROUP]) {
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        sums.squares += x[i] * x[i];
        sums.products += x[i] * d_y[i] * weight[i];
    }
}

// What a group adds to the gradients of x, and to the sums over rows that the gradient of the weight is.
__device__ __forceinline__ void group_backward(
    const float (&x)[GROUP], const float (&d_y)[GROUP], const float (&weight)[GROUP], float scale, float along_x,
    float (&d_x)[GROUP], float (&weight_sums)[GROUP]) {
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        weight_sums[i] += d_y[i] * x[i] * scale;
        d_x[i] = d_x[i] + d_y[i] * weight[i] * scale - x[i] * along_x;
    }
}

// Blocks take rows in turn, and each leaves its sums of weight gradients in its own row of `partials`.
template <typename E>
__device__ __forceinline__ void rms_norm_backward(
    const E* x, const E* weight, const E* d_y, E* d_x, float* partials, long long rows, long long width,
    float epsilon) {
    long long begin = GROUP * threadIdx.x, step = GROUP * blockDim.x;
    partials += blockIdx.x * width;
    float weights[GROUP], weight_sums[GROUP] = {};
    load_group(weight + begin, width - begin, weights);
    for (long long at = begin + step; at < width; at += step) {
        float zeros[GROUP] = {};
        store_group(partials + at, width - at, zeros);
    }
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        const E *x_row = x + row * width, *d_y_row = d_y + row * width;
        E* d_x_row = d_x + row * width;
        float held_x[GROUP], held_d_y[GROUP], held_d_x[GROUP];
        load_group(x_row + begin, width - begin, held_x);
        load_group(d_y_row + begin, width - begin, held_d_y);
        load_group(d_x_row + begin, width - begin, held_d_x);
        RowSums sums = {0.0f, 0.0f};
        add_to_row_sums(sums, held_x, held_d_y, weights);
        for (long long at = begin + step; at < width; at += step) {
            float more_x[GROUP], more_d_y[GROUP], more_weights[GROUP];
            load_group(x_row + at, width - at, more_x);
            load_group(d_y_row + at, width - at, more_d_y);
            load_group(weight + at, width - at, more_weights);
            add_to_row_sums(sums, more_x, more_d_y, more_weights);
        }
        float scale = reciprocal_root(block_sum(sums.squares), width, epsilon);
        float along_x = block_sum(sums.products) * scale * scale * scale / (float)width;
        group_backward(held_x, held_d_y, weights, scale, along_x, held_d_x, weight_sums);
        store_group(d_x_row + begin, width - begin, held_d_x);
        for (long long at = begin + step; at < width; at += step) {
            float more_weights[GROUP], more_sums[GROUP];
            load_group(x_row + at, width - at, held_x);
            load_group(d_y_row + at, width - at, held_d_y);
            load_group(d_x_row + at, width - at, held_d_x);
            load_group(weight + at, width - at, more_weights);
            load_group(partials + at, width - at, more_sums);
            group_backward(held_x, held_d_y, more_weights, scale, along_x, held_d_x, more_sums);
            store_group(d_x_row + at, width - at, held_d_x);
            store_group(partials + at, width - at, more_sums);
        }
    }
    store_group(partials + begin, width - begin, weight_sums);
}

// Eight numbers as they are stored, so that they can be on their way while others are computed with.
template <typename E>
struct Stored {
    uint4 pieces[GROUP * sizeof(E) / 16];

    __device__ __forceinline__ void load(const E* from) {
#pragma unroll
        for (int piece = 0; piece < sizeof(pieces) / 16; piece++) {
            pieces[piece] = reinterpret_cast<const uint4*>(from)[piece];
        }
    }
};
__device__ __forceinline__ void widen_all(const Stored<bf16>& stored, float (&to)[GROUP]) {
    unpack(stored.pieces[0], to);
}
__device__ __forceinline__ void widen_all(const Stored<float>& stored, float (&to)[GROUP]) {
#pragma unroll
    for (int piece = 0; piece < 2; piece++) {
        uint4 bits = stored.pieces[piece];
        to[4 * piece] = __uint_as_float(bits.x), to[4 * piece + 1] = __uint_as_float(bits.y);
        to[4 * piece + 2] = __uint_as_float(bits.z), to[4 * piece + 3] = __uint_as_float(bits.w);
    }
}

__device__ __forceinline__ RowSums over_warp(RowSums sums) {
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        sums.squares += __shfl_xor_sync(ALL_LANES, sums.squares, distance);
        sums.products += __shfl_xor_sync(ALL_LANES, sums.products, distance);
    }
    return sums;
}

// The same for rows that registers hold, in whole groups at aligned places: the next row is on its way while this one
// is computed with, and threads wait for each other once.
template <typename E>
__device__ __forceinline__ void rms_norm_backward_held(
    const E* x, const E* weight, const E* d_y, E* d_x, float* partials, long long rows, long long width,
    float epsilon) {
    __shared__ RowSums of_warps[2][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    long long begin = GROUP * threadIdx.x;
    bool holds = begin < width;
    float weight_sums[GROUP] = {};
    Stored<E> weights = {}, next_x = {}, next_d_y = {}, next_d_x = {};
    long long row = blockIdx.x * width, step = gridDim.x * width, end = rows * width;
    auto load = [&](long long place) {
        if (holds && place < end) {
            next_x.load(x + place + begin);
            next_d_y.load(d_y + place + begin);
            next_d_x.load(d_x + place + begin);
        }
    };
    if (holds) {
        weights.load(weight + begin);
    }
    load(row);
    for (int turn = 0; row < end; row += step, turn = 1 - turn) {
        Stored<E> stored_x = next_x, stored_d_y = next_d_y, stored_d_x = next_d_x;
        load(row + step);
        float held_x[GROUP], held_d_y[GROUP], held_d_x[GROUP], held_weights[GROUP];
        widen_all(stored_x, held_x);
        widen_all(stored_d_y, held_d_y);
        widen_all(weights, held_weights);
        RowSums sums = {0.0f, 0.0f};
        add_to_row_sums(sums, held_x, held_d_y, held_weights);
        sums = over_warp(sums);
        // Two places in turn: who writes to one again knows that everyone has read it.
        if (lane == 0) {
            of_warps[turn][warp] = sums;
        }
        __syncthreads();
        sums = over_warp(lane < warps ? of_warps[turn][lane] : RowSums{0.0f, 0.0f});
        float scale = reciprocal_root(sums.squares, width, epsilon);
        float along_x = sums.products * scale * scale * scale / (float)width;
        widen_all(stored_d_x, held_d_x);
        group_backward(held_x, held_d_y, held_weights, scale, along_x, held_d_x, weight_sums);
        if (holds) {
            store_whole(d_x + row + begin, held_d_x);
        }
    }
    if (holds) {
        store_whole(partials + blockIdx.x * width + begin, weight_sums);
    }
}

// Adds the sums of all blocks to the gradient of the weight: a warp's lanes are columns, its warps take turns in rows.
template <typename G>
__device__ __forceinline__ void add_partials(const float* partials, long long blocks, long long width, G* d_weight) {
    __shared__ float of_warps[WARP][WARP];
    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    long long column = (long long)blockIdx.x * WARP + lane;
    float sum = 0.0f;
    if (column < width) {
#pragma unroll 8
        for (long long block = warp; block < blocks; block += warps) {
            sum += partials[block * width + column];
        }
    }
    of_warps[warp][lane] = sum;
    __syncthreads();
    if (warp == 0 && column < width) {
        for (int other = 1; other < warps; other++) {
            sum += of_warps[other][lane];
        }
        d_weight[column] = narrow<G>(widen(d_weight[column]) + sum);
    }
}

#define NORM(forward, E)                                                                                            \
    extern "C" __global__ void __launch_bounds__(1024)                                                              \
        forward(const E* x, const E* weight, E* y, long long width, float epsilon) {                                \
        rms_norm(x, weight, y, width, epsilon);                                                                     \
    }
NORM(rms_norm_bf16, bf16)
NORM(rms_norm_f32, float)

#define NORM_BACKWARD(name, held, E)                                                                                \
    extern "C" __global__ void __launch_bounds__(512)                                                               \
        name(const E* x, const E* weight, const E* d_y, E* d_x, float* partials, long long rows, long long width,   \
             float epsilon) {                                                                                       \
        rms_norm_backward(x, weight, d_y, d_x, partials, rows, width, epsilon);                                     \
    }                                                                                                               \
    extern "C" __global__ void __launch_bounds__(512, 2)                                                            \
        held(const E* x, const E* weight, const E* d_y, E* d_x, float* partials, long long rows, long long width,   \
             float epsilon) {                                                                                       \
        rms_norm_backward_held(x, weight, d_y, d_x, partials, rows, width, epsilon);                                \
    }
NORM_BACKWARD(rms_norm_backward_bf16, rms_norm_backward_held_bf16, bf16)
NORM_BACKWARD(rms_norm_backward_f32, rms_norm_backward_held_f32, float)

#define ADD_PARTIALS(name, G)                                                                                       \
    extern "C" __global__ void __launch_bounds__(1024)                                                              \
        name(const float* partials, long long blocks, long long width, G* d_weight) {                               \
        add_partials(partials, blocks, width, d_weight);                                                            \
    }
ADD_PARTIALS(add_partials_bf16, bf16)
ADD_PARTIALS(add_partials_f32, float)
