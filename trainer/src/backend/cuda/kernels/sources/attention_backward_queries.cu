// The gradients of queries on tensor cores: a block to a tile of queries, over double-buffered tiles of keys and
// values.

constexpr int THREADS = WARPS * WARP;
constexpr int WARP_ROWS = 16 * WARP_TILES;
constexpr int OWN = WARPS * WARP_ROWS;
constexpr int OTHER = OTHER_TILE;

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
    long long warp_first = first + warp * WARP_ROWS;
    float logarithms[WARP_TILES][2], of_rows[WARP_TILES][2];
#pragma unroll
    for (int tile = 0; tile < WARP_TILES; tile++) {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            long long row = warp_first + tile * 16 + lane / 4 + 8 * half;
            logarithms[tile][half] = row < sequence ? lse[shape.row(batch, head) + row] * LOG2_E : 0.0f;
            of_rows[tile][half] = row < sequence ? products[shape.row(batch, head) + row] : 0.0f;
        }
    }
    float d_queries[WARP_TILES][PADDED_DIM / COLUMNS][OF_THREAD];
    clear(d_queries);
    int tiles = (int)((shape.seen_before(first + OWN) + OTHER - 1) / OTHER);
    for (int tile_of_keys = 0; tile_of_keys < tiles; tile_of_keys++) {
        wait_for_copies();
        __syncthreads();
        int stage = tile_of_keys % 2;
        long long first_key = (long long)tile_of_keys * OTHER;
        if (tile_of_keys + 1 < tiles) {
            int next = (1 - stage) * OTHER * PITCH;
            load_tile<OTHER, THREADS>(key_tiles + next, keys, shape.row_width(), first_key + OTHER, sequence);
            load_tile<OTHER, THREADS>(value_tiles + next, values, shape.row_width(), first_key + OTHER, sequence);
        }
        if (first_key >= shape.seen_before(warp_first + WARP_ROWS)) {
            continue;
        }
        const bf16 *key_tile = key_tiles + stage * OTHER * PITCH, *value_tile = value_tiles + stage * OTHER * PITCH;
        float probabilities[WARP_TILES][OTHER / COLUMNS][OF_THREAD], d_scores[WARP_TILES][OTHER / COLUMNS][OF_THREAD];
        scores<WARP_TILES, OTHER>(probabilities, query_tile + warp * WARP_ROWS * PITCH, key_tile);
        scores<WARP_TILES, OTHER>(d_scores, d_out_tile + warp * WARP_ROWS * PITCH, value_tile);
        bool has_hidden = first_key + OTHER > shape.last_seen(warp_first) + 1;
        unsigned weights[WARP_TILES][OTHER / STEP][4];
#pragma unroll
        for (int tile = 0; tile < WARP_TILES; tile++) {
#pragma unroll
            for (int column = 0; column < OTHER / COLUMNS; column++) {
#pragma unroll
                for (int i = 0; i < OF_THREAD; i++) {
                    float score = fmaf(probabilities[tile][column][i], scale * LOG2_E, -logarithms[tile][i / 2]);
                    int key = (int)(first_key - warp_first) + column * COLUMNS + lane % 4 * 2 + i % 2;
                    int query = tile * 16 + lane / 4 + i / 2 * 8;
                    bool is_hidden = has_hidden && key > (int)(shape.last_seen(warp_first + query) - warp_first);
                    float probability = is_hidden ? 0.0f : power_of_two(score);
                    d_scores[tile][column][i] = probability * (d_scores[tile][column][i] - of_rows[tile][i / 2]);
                }
            }
            as_weights<OTHER>(weights[tile], d_scores[tile]);
        }
        combine<WARP_TILES, OTHER>(d_queries, weights, key_tile);
    }
    bf16* to = d_qkv + shape.query(batch, head);
#pragma unroll
    for (int tile = 0; tile < WARP_TILES; tile++) {
        store_rows(to, shape.row_width(), warp_first + tile * 16, sequence, scale, scale, d_queries[tile]);
    }
}
