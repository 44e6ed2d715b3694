// The table of token embeddings, of which this rank may hold a part: the vocabulary from `first` on.

template <typename E>
__device__ __forceinline__ void embedding(
    const unsigned* tokens, const E* table, E* out, long long count, long long width, long long table_rows,
    unsigned first) {
    Place place = group_of_rows(width);
    if (place.row >= count) {
        return;
    }
    long long row = (long long)tokens[place.row] - first, left = width - place.column;
    float values[GROUP] = {};
    if (row >= 0 && row < table_rows) {
        load_group(table + row * width + place.column, left, values);
    }
    store_group(out + place.row * width + place.column, left, values);
}

constexpr int TOKENS_OF_THREAD = 16;

// Which of a thread's tokens are this one, as bits.
__device__ __forceinline__ unsigned places_of(unsigned token, const unsigned* tokens, long long left) {
    unsigned places = 0;
    if (left >= TOKENS_OF_THREAD && misalignment(tokens) == 0) {
#pragma unroll
        for (int i = 0; i < TOKENS_OF_THREAD; i += 4) {
            uint4 four = *reinterpret_cast<const uint4*>(tokens + i);
            places |= (unsigned)(four.x == token) << i | (unsigned)(four.y == token) << (i + 1) |
                      (unsigned)(four.z == token) << (i + 2) | (unsigned)(four.w == token) << (i + 3);
        }
    } else {
        for (int i = 0; i < TOKENS_OF_THREAD && i < left; i++) {
            places |= (unsigned)(tokens[i] == token) << i;
        }
    }
    return places;
}

// Adds each token's gradients to its row of the table, summed in the order of their positions and rounded once.
//
// A block stands for a position. It looks through all tokens for its own, in order; if one comes before its position,
// another block does the work. So nothing is sorted, no memory is needed, and every sum has one order.
template <typename E, typename G>
__device__ __forceinline__ void embedding_backward(
    const unsigned* tokens, const E* d_out, G* d_table, long long count, long long width, long long table_rows,
    unsigned first) {
    extern __shared__ unsigned matches[];
    __shared__ unsigned counts[WARP];
    long long own = blockIdx.x;
    unsigned token = tokens[own];
    long long row = (long long)token - first;
    if (row < 0 || row >= table_rows) {
        return;
    }
    long long column = GROUP * ((long long)blockIdx.y * blockDim.x + threadIdx.x), left = width - column;
    unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    float sums[GROUP] = {};
    for (long long begin = 0; begin < count; begin += TOKENS_OF_THREAD * blockDim.x) {
        long long at = begin + TOKENS_OF_THREAD * threadIdx.x;
        unsigned places = places_of(token, tokens + at, count - at), found = __popc(places);
        unsigned first_place = __ffs(places) - 1;
        if (__syncthreads_or(found > 0 && at + first_place < own)) {
            return;
        }
        // Where in the list of matches this thread's begin: behind those of the lanes and warps before it.
        unsigned until = found;
#pragma unroll
        for (int distance = 1; distance < WARP; distance *= 2) {
            unsigned other = __shfl_up_sync(ALL_LANES, until, distance);
            until += lane >= distance ? other : 0;
        }
        if (lane == WARP - 1) {
            counts[warp] = until;
        }
        __syncthreads();
        unsigned before = 0, total = 0;
        for (unsigned other = 0; other < warps; other++) {
            before += other < warp ? counts[other] : 0;
            total += counts[other];
        }
        unsigned slot = before + until - found;
        for (unsigned rest = places; rest != 0; rest &= rest - 1) {
            matches[slot++] = (unsigned)(at - begin) + __ffs(rest) - 1;
        }
        __syncthreads();
        if (left > 0) {
#pragma unroll 4
            for (unsigned match = 0; match < total; match++) {
                float more[GROUP];
                load_group(d_out + (begin + matches[match]) * width + column, left, more);
#pragma unroll
                for (int i = 0; i < GROUP; i++) {
                    sums[i] += more[i];
                }
            }
        }
    }
    if (left > 0) {
        float values[GROUP];
        load_group(d_table + row * width + column, left, values);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            values[i] += sums[i];
        }
        store_group(d_table + row * width + column, left, values);
    }
}

#define EMBEDDING(name, E)                                                                                          \
    extern "C" __global__ void name(const unsigned* tokens, const E* table, E* out, long long count,                \
                                    long long width, long long table_rows, unsigned first) {                        \
        embedding(tokens, table, out, count, width, table_rows, first);                                             \
    }
EMBEDDING(embedding_bf16, bf16)
EMBEDDING(embedding_f32, float)

#define EMBEDDING_BACKWARD(name, E, G)                                                                              \
    extern "C" __global__ void name(const unsigned* tokens, const E* d_out, G* d_table, long long count,            \
                                    long long width, long long table_rows, unsigned first) {                        \
        embedding_backward(tokens, d_out, d_table, count, width, table_rows, first);                                \
    }
EMBEDDING_BACKWARD(embedding_backward_bf16_bf16, bf16, bf16)
EMBEDDING_BACKWARD(embedding_backward_bf16_f32, bf16, float)
EMBEDDING_BACKWARD(embedding_backward_f32_f32, float, float)
