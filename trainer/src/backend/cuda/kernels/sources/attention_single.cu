// Attention and its gradient in single precision, in the same tiles as on tensor cores but with plain multiplications.
//
// Eight threads share a row of a tile: each has every eighth score of it, and every eighth column of its result.

constexpr int TILE = 32;
constexpr int SHARING = 8;
constexpr int THREADS = TILE * SHARING;
constexpr int SCORES = TILE / SHARING;
constexpr int PITCH = HEAD_DIM + 1;
constexpr int SCORE_PITCH = TILE + 1;
constexpr int COLUMNS = (HEAD_DIM + SHARING - 1) / SHARING;

__device__ __forceinline__ void load_tile(
    float* tile, const float* head, long long stride, long long first, long long rows) {
    for (int item = threadIdx.x; item < TILE * HEAD_DIM; item += THREADS) {
        int row = item / HEAD_DIM, column = item % HEAD_DIM;
        tile[row * PITCH + column] = first + row < rows ? head[(first + row) * stride + column] : 0.0f;
    }
}

// The products of one row with every eighth row of a tile.
__device__ __forceinline__ void scores(float (&sums)[SCORES], const float* row, const float* tile, int part) {
#pragma unroll
    for (int k = 0; k < SCORES; k++) {
        sums[k] = 0.0f;
    }
    for (int column = 0; column < HEAD_DIM; column++) {
        float of_row = row[column];
#pragma unroll
        for (int k = 0; k < SCORES; k++) {
            sums[k] += of_row * tile[(part + k * SHARING) * PITCH + column];
        }
    }
}

// Adds every eighth column of the rows of a tile, by their weights.
__device__ __forceinline__ void combine(float (&sums)[COLUMNS], const float* weights, const float* tile, int part) {
    for (int other = 0; other < TILE; other++) {
        float weight = weights[other];
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            int column = part + k * SHARING;
            sums[k] += weight * (column < HEAD_DIM ? tile[other * PITCH + column] : 0.0f);
        }
    }
}

__device__ __forceinline__ void store_row(float* row, const float (&sums)[COLUMNS], float factor, int part) {
#pragma unroll
    for (int k = 0; k < COLUMNS; k++) {
        if (part + k * SHARING < HEAD_DIM) {
            row[part + k * SHARING] = sums[k] * factor;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_forward(const float* qkv, float* out, float* lse, long long sequence, long long heads,
                      long long kv_heads, float scale) {
    extern __shared__ float shared[];
    Heads<float> shape = {sequence, heads, kv_heads};
    float *queries = shared, *keys = queries + TILE * PITCH, *values = keys + TILE * PITCH;
    float* weights = values + TILE * PITCH;
    long long first = (long long)(gridDim.z - 1 - blockIdx.z) * TILE, batch = blockIdx.y, head = blockIdx.x;
    long long kv_head = head / shape.group();
    int row = threadIdx.x / SHARING, part = threadIdx.x % SHARING;
    load_tile(queries, qkv + shape.query(batch, head), shape.row_width(), first, sequence);
    float nothing = -__int_as_float(0x7f800000), maximum = nothing, total = 0.0f, sums[COLUMNS] = {};
    for (long long first_key = 0; first_key < shape.seen_before(first + TILE); first_key += TILE) {
        __syncthreads();
        load_tile(keys, qkv + shape.key(batch, kv_head), shape.row_width(), first_key, sequence);
        load_tile(values, qkv + shape.value(batch, kv_head), shape.row_width(), first_key, sequence);
        __syncthreads();
        float of_row[SCORES];
        scores(of_row, queries + row * PITCH, keys, part);
        float new_maximum = maximum;
#pragma unroll
        for (int k = 0; k < SCORES; k++) {
            bool is_hidden = first_key + part + k * SHARING > shape.last_seen(first + row);
            of_row[k] = is_hidden ? nothing : of_row[k] * scale;
            new_maximum = fmaxf(new_maximum, of_row[k]);
        }
#pragma unroll
        for (int distance = 1; distance < SHARING; distance *= 2) {
            new_maximum = fmaxf(new_maximum, __shfl_xor_sync(ALL_LANES, new_maximum, distance));
        }
        float correction = expf(maximum - new_maximum);
        maximum = new_maximum;
        total *= correction;
#pragma unroll
        for (int k = 0; k < SCORES; k++) {
            float weight = expf(of_row[k] - maximum);
            total += weight;
            weights[row * SCORE_PITCH + part + k * SHARING] = weight;
        }
#pragma unroll
        for (int k = 0; k < COLUMNS; k++) {
            sums[k] *= correction;
        }
        // The threads that share a row are of one warp.
        __syncwarp();
        combine(sums, weights + row * SCORE_PITCH, values, part);
    }
#pragma unroll
    for (int distance = 1; distance < SHARING; distance *= 2) {
        total += __shfl_xor_sync(ALL_LANES, total, distance);
    }
    if (first + row < sequence) {
        store_row(out + shape.out(batch, head) + (first + row) * shape.out_width(), sums, 1.0f / total, part);
        if (part == 0) {
            lse[shape.row(batch, head) + first + row] = maximum + logf(total);
        }
    }
}

extern "C" __global__ void attention_row_products(
    const float* out, const float* d_out, float* products, long long batch, long long sequence, long long heads,
    long long kv_heads) {
    row_products(out, d_out, products, batch, Heads<float>{sequence, heads, kv_heads});
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_backward_keys(const float* qkv, const float* d_out, const float* lse, const float* products,
                            float* d_qkv, long long sequence, long long heads, long long kv_heads, float scale) {
    extern __shared__ float shared[];
    Heads<float> shape = {sequence, heads, kv_heads};
    float *keys = shared, *values = keys + TILE * PITCH, *queries = values + TILE * PITCH;
    float *d_outs = queries + TILE * PITCH, *weights = d_outs + TILE * PITCH, *d_scores = weights + TILE * SCORE_PITCH;
    long long first = (long long)blockIdx.z * TILE, batch = blockIdx.y, kv_head = blockIdx.x;
    int row = threadIdx.x / SHARING, part = threadIdx.x % SHARING;
    load_tile(keys, qkv + shape.key(batch, kv_head), shape.row_width(), first, sequence);
    load_tile(values, qkv + shape.value(batch, kv_head), shape.row_width(), first, sequence);
    float d_keys[COLUMNS] = {}, d_values[COLUMNS] = {};
    for (long long head = kv_head * shape.group(); head < (kv_head + 1) * shape.group(); head++) {
        for (long long first_query = CAUSAL ? first : 0; first_query < sequence; first_query += TILE) {
            __syncthreads();
            load_tile(queries, qkv + shape.query(batch, head), shape.row_width(), first_query, sequence);
            load_tile(d_outs, d_out + shape.out(batch, head), shape.out_width(), first_query, sequence);
            __syncthreads();
            float probabilities[SCORES], gradients[SCORES];
            scores(probabilities, keys + row * PITCH, queries, part);
            scores(gradients, values + row * PITCH, d_outs, part);
#pragma unroll
            for (int k = 0; k < SCORES; k++) {
                int column = part + k * SHARING;
                long long query = first_query + column, place = shape.row(batch, head) + query;
                bool is_seen = query < sequence && first + row <= shape.last_seen(query);
                float probability = is_seen ? expf(probabilities[k] * scale - lse[place]) : 0.0f;
                weights[row * SCORE_PITCH + column] = probability;
                d_scores[row * SCORE_PITCH + column] = is_seen ? probability * (gradients[k] - products[place]) : 0.0f;
            }
            __syncwarp();
            combine(d_values, weights + row * SCORE_PITCH, d_outs, part);
            combine(d_keys, d_scores + row * SCORE_PITCH, queries, part);
        }
    }
    if (first + row < sequence) {
        long long begin = (first + row) * shape.row_width();
        store_row(d_qkv + shape.key(batch, kv_head) + begin, d_keys, scale, part);
        store_row(d_qkv + shape.value(batch, kv_head) + begin, d_values, 1.0f, part);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_backward_queries(const float* qkv, const float* d_out, const float* lse, const float* products,
                               float* d_qkv, long long sequence, long long heads, long long kv_heads, float scale) {
    extern __shared__ float shared[];
    Heads<float> shape = {sequence, heads, kv_heads};
    float *queries = shared, *d_outs = queries + TILE * PITCH, *keys = d_outs + TILE * PITCH;
    float *values = keys + TILE * PITCH, *d_scores = values + TILE * PITCH;
    long long first = (long long)(gridDim.z - 1 - blockIdx.z) * TILE, batch = blockIdx.y, head = blockIdx.x;
    long long kv_head = head / shape.group();
    int row = threadIdx.x / SHARING, part = threadIdx.x % SHARING;
    load_tile(queries, qkv + shape.query(batch, head), shape.row_width(), first, sequence);
    load_tile(d_outs, d_out + shape.out(batch, head), shape.out_width(), first, sequence);
    bool is_there = first + row < sequence;
    float logarithm = is_there ? lse[shape.row(batch, head) + first + row] : 0.0f;
    float product = is_there ? products[shape.row(batch, head) + first + row] : 0.0f;
    float d_queries[COLUMNS] = {};
    for (long long first_key = 0; first_key < shape.seen_before(first + TILE); first_key += TILE) {
        __syncthreads();
        load_tile(keys, qkv + shape.key(batch, kv_head), shape.row_width(), first_key, sequence);
        load_tile(values, qkv + shape.value(batch, kv_head), shape.row_width(), first_key, sequence);
        __syncthreads();
        float probabilities[SCORES], gradients[SCORES];
        scores(probabilities, queries + row * PITCH, keys, part);
        scores(gradients, d_outs + row * PITCH, values, part);
#pragma unroll
        for (int k = 0; k < SCORES; k++) {
            int column = part + k * SHARING;
            bool is_seen = first_key + column <= shape.last_seen(first + row);
            float probability = is_seen ? expf(probabilities[k] * scale - logarithm) : 0.0f;
            d_scores[row * SCORE_PITCH + column] = probability * (gradients[k] - product);
        }
        __syncwarp();
        combine(d_queries, d_scores + row * SCORE_PITCH, keys, part);
    }
    if (is_there) {
        store_row(d_qkv + shape.query(batch, head) + (first + row) * shape.row_width(), d_queries, scale, part);
    }
}
