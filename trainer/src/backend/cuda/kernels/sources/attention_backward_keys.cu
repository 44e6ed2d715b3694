// The gradients of keys and values on tensor cores: a block to a tile of keys, over double-buffered tiles of queries.
//
// Gradients of queries have a kernel of their own, and scores are computed in both, so that every sum stays in one
// block and has one order. Here they are computed transposed: then what a thread holds of them is already laid out as
// the next product wants it.

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
    long long first_tile = CAUSAL ? first / OTHER : 0, tiles = (sequence + OTHER - 1) / OTHER - first_tile;
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
        if (CAUSAL && first_query + OTHER <= warp_first) {
            continue;
        }
        const bf16* queries = query_tiles + stage * OTHER * PITCH;
        const bf16* d_outs = d_out_tiles + stage * OTHER * PITCH;
        float probabilities[1][OTHER / COLUMNS][OF_THREAD];
        scores<1, OTHER>(probabilities, key_tile + warp * 16 * PITCH, queries);
        bool has_diagonal = CAUSAL && first_query < warp_first + 15;
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
