// Cross entropy over a vocabulary of which each rank may hold a part: a block to a row of logits, which is streamed.

// Loads that are under way at once in every thread.
constexpr int IN_FLIGHT = 4;

// Hands all numbers of a row to `take`, eight at a time where they are aligned.
template <typename E, typename Take>
__device__ __forceinline__ void each_of_row(const E* row, long long columns, Take take) {
    long long head = min((long long)((16 - misalignment(row)) % 16 / sizeof(E)), columns);
    long long groups = (columns - head) / GROUP;
    const E* body = row + head;
    long long group = threadIdx.x;
    for (; group + (IN_FLIGHT - 1) * blockDim.x < groups; group += IN_FLIGHT * blockDim.x) {
        float values[IN_FLIGHT][GROUP];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            load_whole(body + GROUP * (group + k * blockDim.x), values[k]);
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                take(values[k][i]);
            }
        }
    }
    for (; group < groups; group += blockDim.x) {
        float values[GROUP];
        load_whole(body + GROUP * group, values);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            take(values[i]);
        }
    }
    for (long long at = threadIdx.x; at < head; at += blockDim.x) {
        take(widen(row[at]));
    }
    for (long long at = head + GROUP * groups + threadIdx.x; at < columns; at += blockDim.x) {
        take(widen(row[at]));
    }
}

template <typename E>
__device__ __forceinline__ void row_maxima(const E* logits, long long columns, float* maxima) {
    float nothing = -__int_as_float(0x7f800000);
    float maximum = nothing;
    each_of_row(logits + blockIdx.x * columns, columns, [&](float logit) { maximum = fmaxf(maximum, logit); });
    maximum = over_block(maximum, nothing, larger);
    if (threadIdx.x == 0) {
        maxima[blockIdx.x] = maximum;
    }
}

template <typename E>
__device__ __forceinline__ void row_sums(
    const E* logits, long long columns, const float* maxima, const unsigned* targets, unsigned first, float* sums) {
    const E* row = logits + blockIdx.x * columns;
    float maximum = maxima[blockIdx.x], sum = 0.0f;
    each_of_row(row, columns, [&](float logit) { sum += exponential<E>(logit - maximum); });
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
        long long column = (long long)targets[blockIdx.x] - first;
        sums[gridDim.x + blockIdx.x] = column >= 0 && column < columns ? widen(row[column]) : 0.0f;
    }
}

template <typename E>
__device__ __forceinline__ void loss_backward(
    const E* logits, long long columns, const float* maxima, const float* sums, const unsigned* targets,
    unsigned first, float scale, float z_weight, E* d_logits) {
    const E* row = logits + blockIdx.x * columns;
    E* d_row = d_logits + blockIdx.x * columns;
    float maximum = maxima[blockIdx.x], sum = sums[blockIdx.x];
    float factor = scale * (1.0f + 2.0f * z_weight * (maximum + logf(sum))) / sum;
    long long target = (long long)targets[blockIdx.x] - first;
    auto gradient = [&](float logit, long long column) {
        float probability = exponential<E>(logit - maximum) * factor;
        return column == target ? probability - scale : probability;
    };
    bool together = misalignment(row) == misalignment(d_row);
    long long head = min((long long)((16 - misalignment(row)) % 16 / sizeof(E)), columns);
    long long groups = together ? (columns - head) / GROUP : 0;
    long long group = threadIdx.x;
    for (; group + (IN_FLIGHT - 1) * blockDim.x < groups; group += IN_FLIGHT * blockDim.x) {
        float values[IN_FLIGHT][GROUP];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            load_whole(row + head + GROUP * (group + k * blockDim.x), values[k]);
        }
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            long long begin = head + GROUP * (group + k * blockDim.x);
#pragma unroll
            for (int i = 0; i < GROUP; i++) {
                values[k][i] = gradient(values[k][i], begin + i);
            }
            store_whole(d_row + begin, values[k]);
        }
    }
    for (; group < groups; group += blockDim.x) {
        long long begin = head + GROUP * group;
        float values[GROUP];
        load_whole(row + begin, values);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            values[i] = gradient(values[i], begin + i);
        }
        store_whole(d_row + begin, values);
    }
    for (long long at = threadIdx.x; at < head; at += blockDim.x) {
        d_row[at] = narrow<E>(gradient(widen(row[at]), at));
    }
    for (long long at = head + GROUP * groups + threadIdx.x; at < columns; at += blockDim.x) {
        d_row[at] = narrow<E>(gradient(widen(row[at]), at));
    }
}

// Adds the scaled losses of all rows to one number: a single block, in double precision.
extern "C" __global__ void __launch_bounds__(1024)
    loss(const float* maxima, const float* sums, long long rows, double scale, double z_weight, float* total) {
    double losses = 0.0;
    for (long long row = threadIdx.x; row < rows; row += blockDim.x) {
        double logarithm = log((double)sums[row]), z = (double)maxima[row] + logarithm;
        losses += ((double)maxima[row] - (double)sums[rows + row]) + logarithm + z_weight * z * z;
    }
    losses = over_block(losses, 0.0, sum_of<double>);
    if (threadIdx.x == 0) {
        total[0] += (float)(scale * losses);
    }
}

#define CROSS_ENTROPY(maxima_name, sums_name, backward_name, E)                                                     \
    extern "C" __global__ void maxima_name(const E* logits, long long columns, float* maxima) {                     \
        row_maxima(logits, columns, maxima);                                                                        \
    }                                                                                                               \
    extern "C" __global__ void sums_name(const E* logits, long long columns, const float* maxima,                   \
                                         const unsigned* targets, unsigned first, float* sums) {                    \
        row_sums(logits, columns, maxima, targets, first, sums);                                                    \
    }                                                                                                               \
    extern "C" __global__ void backward_name(const E* logits, long long columns, const float* maxima,               \
                                             const float* sums, const unsigned* targets, unsigned first,            \
                                             float scale, float z_weight, E* d_logits) {                            \
        loss_backward(logits, columns, maxima, sums, targets, first, scale, z_weight, d_logits);                    \
    }
CROSS_ENTROPY(row_maxima_bf16, row_sums_bf16, loss_backward_bf16, bf16)
CROSS_ENTROPY(row_maxima_f32, row_sums_f32, loss_backward_f32, float)
