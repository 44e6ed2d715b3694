// Attention to some keys made attention to more of them: a warp to a row of a head.

template <typename E>
__device__ __forceinline__ void merge(
    float* out, float* lse, const E* more, const float* more_lse, long long batch, long long sequence, long long heads,
    int head_dim) {
    long long warp = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    int lane = threadIdx.x % WARP;
    if (warp >= batch * sequence * heads) {
        return;
    }
    // Results are tokens × heads, logarithms batch × heads × sequence.
    long long token = warp / heads, head = warp % heads;
    long long row = (token / sequence * heads + head) * sequence + token % sequence;
    float of_some = lse[row], of_more = more_lse[row], largest = fmaxf(of_some, of_more);
    float sum = largest + logf(expf(of_some - largest) + expf(of_more - largest));
    float share = expf(of_some - sum), more_share = expf(of_more - sum);
    for (int at = GROUP * lane; at < head_dim; at += GROUP * WARP) {
        float a[GROUP], b[GROUP];
        load_group(out + warp * head_dim + at, head_dim - at, a);
        load_group(more + warp * head_dim + at, head_dim - at, b);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            a[i] = a[i] * share + b[i] * more_share;
        }
        store_group(out + warp * head_dim + at, head_dim - at, a);
    }
    // All lanes have read it.
    __syncwarp();
    if (lane == 0) {
        lse[row] = sum;
    }
}

#define MERGE(name, E)                                                                                              \
    extern "C" __global__ void name(float* out, float* lse, const E* more, const float* more_lse, long long batch,  \
                                    long long sequence, long long heads, int head_dim) {                            \
        merge(out, lse, more, more_lse, batch, sequence, heads, head_dim);                                          \
    }
MERGE(merge_attention_bf16, bf16)
MERGE(merge_attention_f32, float)
