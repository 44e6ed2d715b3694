// Rotary position embedding: a block to a position of all sequences, which begin with the first, whose angles serve all heads of all sequences.
// Angles are taken in double precision, since those of late positions are large.

template <typename E>
__device__ __forceinline__ void rope(
    E* qkv, long long batch, long long sequence, long long first, long long row_width, long long rotated_heads,
    int head_dim, double base, double sign) {
    extern __shared__ float cosines[];
    int half = head_dim / 2;
    float* sines = cosines + half;
    long long position = blockIdx.x;
    for (int pair = threadIdx.x; pair < half; pair += blockDim.x) {
        double sine, cosine;
        sincos(sign * (double)(first + position) * pow(base, -(double)pair / half), &sine, &cosine);
        cosines[pair] = (float)cosine;
        sines[pair] = (float)sine;
    }
    __syncthreads();
    int groups = (half + GROUP - 1) / GROUP;
    long long items = batch * rotated_heads * groups;
    for (long long item = threadIdx.x; item < items; item += blockDim.x) {
        int begin = (int)(item % groups) * GROUP;
        long long head = item / groups % rotated_heads, token = item / groups / rotated_heads * sequence + position;
        E* lower = qkv + token * row_width + head * head_dim + begin;
        E* upper = lower + half;
        float x[GROUP], y[GROUP];
        load_group(lower, half - begin, x);
        load_group(upper, half - begin, y);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            int pair = min(begin + i, half - 1);
            float rotated = x[i] * cosines[pair] - y[i] * sines[pair];
            y[i] = y[i] * cosines[pair] + x[i] * sines[pair];
            x[i] = rotated;
        }
        store_group(lower, half - begin, x);
        store_group(upper, half - begin, y);
    }
}

#define ROPE(name, E)                                                                                               \
    extern "C" __global__ void name(E* qkv, long long batch, long long sequence, long long first,                   \
                                    long long row_width, long long rotated_heads, int head_dim, double base,        \
                                    double sign) {                                                                  \
        rope(qkv, batch, sequence, first, row_width, rotated_heads, head_dim, base, sign);                          \
    }
ROPE(rope_bf16, bf16)
ROPE(rope_f32, float)
