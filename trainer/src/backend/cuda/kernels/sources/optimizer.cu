// The optimizer, in one pass over all it reads and writes, and the sum of squares that the norm of gradients is from.

struct Update {
    float beta1, beta2;
    // What the betas leave for the gradient.
    float rest1, rest2;
    float decay, step_size, root_correction, epsilon;
    // The longest a gradient may be, and what is added to its norm.
    float clip, clip_epsilon;
};

// The master copy is updated and rounded into the parameters where there is one; else the parameters are.
template <typename E, typename G>
__device__ __forceinline__ void adamw(
    const G* gradients, E* parameters, float* master, float* first_moment, float* second_moment, const float* squares,
    long long count, Update update) {
    long long at = group_begin(), left = count - at;
    if (left <= 0) {
        return;
    }
    // Of the gradient of all parameters, where it is clipped.
    float scale = squares ? update.clip / (sqrtf(*squares) + update.clip_epsilon) : 1.0f;
    scale = scale < 1.0f ? scale : 1.0f;
    float gradient[GROUP], value[GROUP], first[GROUP], second[GROUP];
    load_group(gradients + at, left, gradient);
    load_group(first_moment + at, left, first);
    load_group(second_moment + at, left, second);
    if (master) {
        load_group(master + at, left, value);
    } else {
        load_group(parameters + at, left, value);
    }
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        gradient[i] *= scale;
        first[i] = update.beta1 * first[i] + update.rest1 * gradient[i];
        second[i] = update.beta2 * second[i] + update.rest2 * gradient[i] * gradient[i];
        float root = sqrtf(second[i]) * update.root_correction + update.epsilon;
        value[i] = value[i] * update.decay - update.step_size * first[i] / root;
    }
    store_group(first_moment + at, left, first);
    store_group(second_moment + at, left, second);
    if (master) {
        store_group(master + at, left, value);
    }
    store_group(parameters + at, left, value);
}

#define ADAMW(name, E, G)                                                                                           \
    extern "C" __global__ void name(const G* gradients, E* parameters, float* master, float* first_moment,          \
                                    float* second_moment, const float* squares, long long count, float beta1,       \
                                    float beta2, float rest1, float rest2, float decay, float step_size,            \
                                    float root_correction, float epsilon, float clip, float clip_epsilon) {         \
        adamw(gradients, parameters, master, first_moment, second_moment, squares, count,                           \
              {beta1, beta2, rest1, rest2, decay, step_size, root_correction, epsilon, clip, clip_epsilon});        \
    }
ADAMW(adamw_bf16_bf16, bf16, bf16)
ADAMW(adamw_bf16_f32, bf16, float)
ADAMW(adamw_f32_f32, float, float)

// Each block leaves the sum of its squares in `partials`.
template <typename E>
__device__ __forceinline__ void squares(const E* values, long long count, float* partials) {
    float sum = 0.0f;
    long long step = (long long)GROUP * gridDim.x * blockDim.x;
#pragma unroll 4
    for (long long at = group_begin(); at < count; at += step) {
        float group[GROUP];
        load_group(values + at, count - at, group);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            sum += group[i] * group[i];
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partials[blockIdx.x] = sum;
    }
}

extern "C" __global__ void squares_bf16(const bf16* values, long long count, float* partials) {
    squares(values, count, partials);
}
extern "C" __global__ void squares_f32(const float* values, long long count, float* partials) {
    squares(values, count, partials);
}

// A single block adds what all others have left to one number.
extern "C" __global__ void __launch_bounds__(1024) add_squares(const float* partials, long long count, float* total) {
    double sum = 0.0;
    for (long long at = threadIdx.x; at < count; at += blockDim.x) {
        sum += (double)partials[at];
    }
    sum = over_block(sum, 0.0, sum_of<double>);
    if (threadIdx.x == 0) {
        total[0] += (float)sum;
    }
}
