// How the heads of attention lie in memory: a row of qkv is all query heads, then the key heads, then the value heads.
// The logarithms of sums, and what the backward pass keeps beside them, are batch × heads × sequence.
// Where CAUSAL, a query sees the keys up to its own position, else all of them.

template <typename E>
struct Heads {
    long long sequence, heads, kv_heads;

    __device__ __forceinline__ long long row_width() const { return (heads + 2 * kv_heads) * HEAD_DIM; }
    __device__ __forceinline__ long long out_width() const { return heads * HEAD_DIM; }
    __device__ __forceinline__ long long group() const { return heads / kv_heads; }
    // Where the first token of a sequence has its queries, keys, values, and results.
    __device__ __forceinline__ long long query(long long batch, long long head) const {
        return batch * sequence * row_width() + head * HEAD_DIM;
    }
    __device__ __forceinline__ long long key(long long batch, long long kv_head) const {
        return query(batch, heads + kv_head);
    }
    __device__ __forceinline__ long long value(long long batch, long long kv_head) const {
        return query(batch, heads + kv_heads + kv_head);
    }
    __device__ __forceinline__ long long out(long long batch, long long head) const {
        return batch * sequence * out_width() + head * HEAD_DIM;
    }
    __device__ __forceinline__ long long row(long long batch, long long head) const {
        return (batch * heads + head) * sequence;
    }
    // How many keys are seen by queries before an end, and the last one that a query sees.
    __device__ __forceinline__ long long seen_before(long long end) const {
        return CAUSAL ? min(sequence, end) : sequence;
    }
    __device__ __forceinline__ long long last_seen(long long query) const { return CAUSAL ? query : sequence - 1; }
};

// The products of the result's rows with their gradients: a warp to a row of a head.
template <typename E>
__device__ __forceinline__ void row_products(
    const E* out, const E* d_out, float* products, long long batch, Heads<E> shape) {
    long long warp = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    int lane = threadIdx.x % WARP;
    if (warp >= batch * shape.sequence * shape.heads) {
        return;
    }
    long long token = warp / shape.heads, head = warp % shape.heads;
    long long begin = token * shape.out_width() + head * HEAD_DIM;
    float sum = 0.0f;
    for (int at = GROUP * lane; at < HEAD_DIM; at += GROUP * WARP) {
        float a[GROUP], b[GROUP];
        load_group(out + begin + at, HEAD_DIM - at, a);
        load_group(d_out + begin + at, HEAD_DIM - at, b);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            sum += a[i] * b[i];
        }
    }
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    }
    if (lane == 0) {
        products[shape.row(token / shape.sequence, head) + token % shape.sequence] = sum;
    }
}
