// Attention on tensor cores: a block to a tile of queries, each warp with rows of its own, over double-buffered tiles
// of keys and values. The softmax is kept up to date tile by tile.

constexpr int WARP_ROWS = 16 * WARP_TILES;
constexpr int QUERIES = WARPS * WARP_ROWS;
constexpr int THREADS = WARPS * WARP;
constexpr int KEYS = KEY_TILE;

// Turns scores into exponentials, and rescales what was summed up before. A thread has two rows of a tile.
__device__ __forceinline__ void update_softmax(
    float (&scores)[KEYS / COLUMNS][OF_THREAD], float (&maxima)[2], float (&totals)[2],
    float (&sums)[PADDED_DIM / COLUMNS][OF_THREAD], float scale) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float maximum = maxima[half];
#pragma unroll
        for (int column = 0; column < KEYS / COLUMNS; column++) {
            maximum = fmaxf(maximum, fmaxf(scores[column][2 * half], scores[column][2 * half + 1]));
        }
        maximum = fmaxf(maximum, __shfl_xor_sync(ALL_LANES, maximum, 1));
        maximum = fmaxf(maximum, __shfl_xor_sync(ALL_LANES, maximum, 2));
        float correction = power_of_two((maxima[half] - maximum) * scale), shift = maximum * scale, total = 0.0f;
        maxima[half] = maximum;
#pragma unroll
        for (int column = 0; column < KEYS / COLUMNS; column++) {
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                scores[column][i] = power_of_two(fmaf(scores[column][i], scale, -shift));
                total += scores[column][i];
            }
        }
        totals[half] = totals[half] * correction + total;
#pragma unroll
        for (int column = 0; column < PADDED_DIM / COLUMNS; column++) {
            sums[column][2 * half] *= correction;
            sums[column][2 * half + 1] *= correction;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention_forward(const bf16* qkv, bf16* out, float* lse, long long sequence, long long heads, long long kv_heads,
                      float scale) {
    extern __shared__ __align__(16) bf16 shared[];
    Heads<bf16> shape = {sequence, heads, kv_heads};
    // The longest rows first, so that what is left at the end is short.
    long long first = (long long)(gridDim.z - 1 - blockIdx.z) * QUERIES, batch = blockIdx.y, head = blockIdx.x;
    const bf16* keys = qkv + shape.key(batch, head / shape.group());
    const bf16* values = qkv + shape.value(batch, head / shape.group());
    bf16 *query_tile = shared, *key_tiles = shared + QUERIES * PITCH, *value_tiles = key_tiles + 2 * KEYS * PITCH;
    load_tile<QUERIES, THREADS>(query_tile, qkv + shape.query(batch, head), shape.row_width(), first, sequence);
    load_tile<KEYS, THREADS>(key_tiles, keys, shape.row_width(), 0, sequence);
    load_tile<KEYS, THREADS>(value_tiles, values, shape.row_width(), 0, sequence);

    int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    long long warp_first = first + warp * WARP_ROWS;
    float sums[WARP_TILES][PADDED_DIM / COLUMNS][OF_THREAD], maxima[WARP_TILES][2], totals[WARP_TILES][2];
    clear(sums);
    float nothing = -__int_as_float(0x7f800000), exponent_scale = scale * LOG2_E;
#pragma unroll
    for (int tile = 0; tile < WARP_TILES; tile++) {
        maxima[tile][0] = maxima[tile][1] = nothing;
        totals[tile][0] = totals[tile][1] = 0.0f;
    }
    int tiles = (int)((shape.seen_before(first + QUERIES) + KEYS - 1) / KEYS);
    for (int tile_of_keys = 0; tile_of_keys < tiles; tile_of_keys++) {
        wait_for_copies();
        __syncthreads();
        int stage = tile_of_keys % 2;
        long long first_key = (long long)tile_of_keys * KEYS;
        if (tile_of_keys + 1 < tiles) {
            int next = (1 - stage) * KEYS * PITCH;
            load_tile<KEYS, THREADS>(key_tiles + next, keys, shape.row_width(), first_key + KEYS, sequence);
            load_tile<KEYS, THREADS>(value_tiles + next, values, shape.row_width(), first_key + KEYS, sequence);
        }
        if (first_key >= shape.seen_before(warp_first + WARP_ROWS)) {
            continue;
        }
        float probabilities[WARP_TILES][KEYS / COLUMNS][OF_THREAD];
        const bf16 *key_tile = key_tiles + stage * KEYS * PITCH, *value_tile = value_tiles + stage * KEYS * PITCH;
        scores<WARP_TILES, KEYS>(probabilities, query_tile + warp * WARP_ROWS * PITCH, key_tile);
        if (first_key + KEYS > shape.last_seen(warp_first) + 1) {
#pragma unroll
            for (int tile = 0; tile < WARP_TILES; tile++) {
#pragma unroll
                for (int column = 0; column < KEYS / COLUMNS; column++) {
#pragma unroll
                    for (int i = 0; i < OF_THREAD; i++) {
                        int key = (int)(first_key - warp_first) + column * COLUMNS + lane % 4 * 2 + i % 2;
                        int query = tile * 16 + lane / 4 + i / 2 * 8;
                        if (key > (int)(shape.last_seen(warp_first + query) - warp_first)) {
                            probabilities[tile][column][i] = nothing;
                        }
                    }
                }
            }
        }
        unsigned weights[WARP_TILES][KEYS / STEP][4];
#pragma unroll
        for (int tile = 0; tile < WARP_TILES; tile++) {
            update_softmax(probabilities[tile], maxima[tile], totals[tile], sums[tile], exponent_scale);
            as_weights<KEYS>(weights[tile], probabilities[tile]);
        }
        combine<WARP_TILES, KEYS>(sums, weights, value_tile);
    }
#pragma unroll
    for (int tile = 0; tile < WARP_TILES; tile++) {
        long long tile_first = warp_first + tile * 16;
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float total = totals[tile][half];
            total += __shfl_xor_sync(ALL_LANES, total, 1);
            total += __shfl_xor_sync(ALL_LANES, total, 2);
            totals[tile][half] = total;
            long long row = tile_first + lane / 4 + 8 * half;
            if (lane % 4 == 0 && row < sequence) {
                lse[shape.row(batch, head) + row] = maxima[tile][half] * scale + logf(total);
            }
        }
        bf16* to = out + shape.out(batch, head);
        float upper = 1.0f / totals[tile][0], lower = 1.0f / totals[tile][1];
        store_rows(to, shape.out_width(), tile_first, sequence, upper, lower, sums[tile]);
    }
}
