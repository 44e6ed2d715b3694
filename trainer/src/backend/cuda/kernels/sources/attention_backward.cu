// The gradient of attention on tensor cores, with the probabilities computed again tile by tile.
//
// One kernel has a block to a tile of keys and sums over queries, the other has a block to a tile of queries and sums
// over keys. Scores are computed in both, so that every sum stays in one block and has one order. The first computes
// them transposed: then what a thread holds of them is already laid out as the next product wants it.

constexpr int THREADS = WARPS * WARP;
constexpr int OWN = WARPS * 16;
constexpr int OTHER = OTHER_TILE;

extern "C" __global__ void attention_row_products(
    const bf16* out, const bf16* d_out, float* products, long long batch, long long sequence, long long heads,
    long long kv_heads) {
    row_products(out, d_out, products, batch, Heads<bf16>{sequence, heads, kv_heads});
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_backward_keys(const bf16* qkv, const bf16* d_out, const float* lse, const float* products, bf16* d_qkv,
                            long long sequence, long long heads, long long kv_heads, float scale) {
    extern __shared__ __align__(16) bf16 shared[];
    Heads<bf16> shape = {sequence, heads, kv_heads};
    // The first keys are seen by the most queries, and come first.
    long long first = (long long)blockIdx.z * OWN, batch = blockIdx.y, kv_head = blockIdx.x;
    bf16 *key_tile = shared, *value_tile = shared + OWN * PITCH;
    bf16 *query_tiles = value_tile + OWN * PITCH, *d_out_tiles = query_tiles + 2 * OTHER * PITCH;
    float* lse_tiles = reinterpret_cast<float*>(d_out_tiles + 2 * OTHER * PITCH);
    float* product_tiles = lse_tiles + 2 * OTHER;
    long long first_tile = first / OTHER, tiles = (sequence + OTHER - 1) / OTHER - first_tile;
    int rounds = (int)(shape.group() * tiles);
    auto load = [&](int round, int stage) {
        long long head = kv_head * shape.group() + round / tiles, first_query = (first_tile + round % tiles) * OTHER;
        load_tile<OTHER, THREADS>(query_tiles + stage * OTHER * PITCH, qkv + shape.query(batch, head),
                                  shape.row_width(), first_query, sequence);
        load_tile<OTHER, THREADS>(d_out_tiles + stage * OTHER * PITCH, d_out + shape.out(batch, head),
                                  shape.out_width(), first_query, sequence);
        load_numbers<OTHER>(lse_tiles + stage * OTHER, lse + shape.row(batch, head), first_query, sequence);
        load_numbers<OTHER>(product_tiles + stage * OTHER, products + shape.row(batch, head), first_query, sequence);
    };
    load_tile<OWN, THREADS>(key_tile, qkv + shape.key(batch, kv_head), shape.row_width(), first, sequence);
    load_tile<OWN, THREADS>(value_tile, qkv + shape.value(batch, kv_head), shape.row_width(), first, sequence);
    load(0, 0);

    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    long long warp_first = first + warp * 16;
    float d_keys[1][PADDED_DIM / COLUMNS][OF_THREAD], d_values[1][PADDED_DIM / COLUMNS][OF_THREAD];
    clear(d_keys);
    clear(d_values);
    for (int round = 0; round < rounds; round++) {
        wait_for_copies();
        __syncthreads();
        int stage = round % 2;
        long long first_query = (first_tile + round % tiles) * OTHER;
        if (round + 1 < rounds) {
            load(round + 1, 1 - stage);
        }
        if (first_query + OTHER <= warp_first) {
            continue;
        }
        const bf16* queries = query_tiles + stage * OTHER * PITCH;
        const bf16* d_outs = d_out_tiles + stage * OTHER * PITCH;
        float probabilities[1][OTHER / COLUMNS][OF_THREAD];
        scores<1, OTHER>(probabilities, key_tile + warp * 16 * PITCH, queries);
        bool has_diagonal = first_query < warp_first + 15;
#pragma unroll
        for (int column = 0; column < OTHER / COLUMNS; column++) {
            float2 logarithms = reinterpret_cast<float2*>(lse_tiles + stage * OTHER + column * COLUMNS)[lane % 4];
#pragma unroll
            for (int i = 0; i < OF_THREAD; i++) {
                float logarithm = i % 2 ? logarithms.y : logarithms.x;
                float score = fmaf(probabilities[0][column][i], scale * LOG2_E, -logarithm * LOG2_E);
                probabilities[0][column][i] = power_of_two(score);
                int query = (int)(first_query - warp_first) + column * COLUMNS + lane % 4 * 2 + i % 2;
                if (has_diagonal && query < lane / 4 + i / 2 * 8) {
                    probabilities[0][column][i] = 0.0f;
                }
            }
        }
        unsigned weights[1][OTHER / STEP][4];
        as_weights<OTHER>(weights[0], probabilities[0]);
        combine<1, OTHER>(d_values, weights, d_outs);
        float d_scores[1][OTHER / COLUMNS][OF_THREAD];
        scores<1, OTHER>(d_scores, value_tile + warp * 16 * PITCH, d_outs);
#pragma unroll
        for (int column = 0; column < OTHER / COLUMNS; column++) {
            float2 of_rows = reinterpret_cast<float2*>(product_tiles + stage * OTHER + column * COLUMNS)[lane % 4];
#pragma unroll
            for (int i = 0; i < OF_THREAD; i++) {
                d_scores[0][column][i] =
                    probabilities[0][column][i] * (d_scores[0][column][i] - (i % 2 ? of_rows.y : of_rows.x));
            }
        }
        as_weights<OTHER>(weights[0], d_scores[0]);
        combine<1, OTHER>(d_keys, weights, queries);
    }
    store_rows(d_qkv + shape.key(batch, kv_head), shape.row_width(), warp_first, sequence, scale, scale, d_keys[0]);
    store_rows(d_qkv + shape.value(batch, kv_head), shape.row_width(), warp_first, sequence, 1.0f, 1.0f, d_values[0]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_backward_queries(const bf16* qkv, const bf16* d_out, const float* lse, const float* products,
                               bf16* d_qkv, long long sequence, long long heads, long long kv_heads, float scale) {
    extern __shared__ __align__(16) bf16 shared[];
    Heads<bf16> shape = {sequence, heads, kv_heads};
    long long first = (long long)(gridDim.z - 1 - blockIdx.z) * OWN, batch = blockIdx.y, head = blockIdx.x;
    const bf16* keys = qkv + shape.key(batch, head / shape.group());
    const bf16* values = qkv + shape.value(batch, head / shape.group());
    bf16 *query_tile = shared, *d_out_tile = shared + OWN * PITCH;
    bf16 *key_tiles = d_out_tile + OWN * PITCH, *value_tiles = key_tiles + 2 * OTHER * PITCH;
    load_tile<OWN, THREADS>(query_tile, qkv + shape.query(batch, head), shape.row_width(), first, sequence);
    load_tile<OWN, THREADS>(d_out_tile, d_out + shape.out(batch, head), shape.out_width(), first, sequence);
    load_tile<OTHER, THREADS>(key_tiles, keys, shape.row_width(), 0, sequence);
    load_tile<OTHER, THREADS>(value_tiles, values, shape.row_width(), 0, sequence);

    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    long long warp_first = first + warp * 16;
    float logarithms[2], of_rows[2];
#pragma unroll
    for (int half = 0; half < 2; half++) {
        long long row = warp_first + lane / 4 + 8 * half;
        logarithms[half] = row < sequence ? lse[shape.row(batch, head) + row] * LOG2_E : 0.0f;
        of_rows[half] = row < sequence ? products[shape.row(batch, head) + row] : 0.0f;
    }
    float d_queries[1][PADDED_DIM / COLUMNS][OF_THREAD];
    clear(d_queries);
    int tiles = (int)((min(sequence, first + OWN) + OTHER - 1) / OTHER);
    for (int tile = 0; tile < tiles; tile++) {
        wait_for_copies();
        __syncthreads();
        int stage = tile % 2;
        long long first_key = (long long)tile * OTHER;
        if (tile + 1 < tiles) {
            int next = (1 - stage) * OTHER * PITCH;
            load_tile<OTHER, THREADS>(key_tiles + next, keys, shape.row_width(), first_key + OTHER, sequence);
            load_tile<OTHER, THREADS>(value_tiles + next, values, shape.row_width(), first_key + OTHER, sequence);
        }
        if (first_key >= warp_first + 16) {
            continue;
        }
        float probabilities[1][OTHER / COLUMNS][OF_THREAD], d_scores[1][OTHER / COLUMNS][OF_THREAD];
        scores<1, OTHER>(probabilities, query_tile + warp * 16 * PITCH, key_tiles + stage * OTHER * PITCH);
        scores<1, OTHER>(d_scores, d_out_tile + warp * 16 * PITCH, value_tiles + stage * OTHER * PITCH);
        bool has_diagonal = first_key + OTHER > warp_first + 1;
#pragma unroll
        for (int column = 0; column < OTHER / COLUMNS; column++) {
#pragma unroll
            for (int i = 0; i < OF_THREAD; i++) {
                float score = fmaf(probabilities[0][column][i], scale * LOG2_E, -logarithms[i / 2]);
                int key = (int)(first_key - warp_first) + column * COLUMNS + lane % 4 * 2 + i % 2;
                bool is_hidden = has_diagonal && key > lane / 4 + i / 2 * 8;
                float probability = is_hidden ? 0.0f : power_of_two(score);
                d_scores[0][column][i] = probability * (d_scores[0][column][i] - of_rows[i / 2]);
            }
        }
        unsigned weights[1][OTHER / STEP][4];
        as_weights<OTHER>(weights[0], d_scores[0]);
        combine<1, OTHER>(d_queries, weights, key_tiles + stage * OTHER * PITCH);
    }
    store_rows(d_qkv + shape.query(batch, head), shape.row_width(), warp_first, sequence, scale, scale, d_queries[0]);
}
