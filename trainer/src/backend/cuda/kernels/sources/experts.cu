// Mixtures of experts: a warp to a token where it chooses, groups of eight numbers where rows are moved.
//
// A token's k choices are numbered one after another. `order` has the numbers of all choices sorted by expert, `places` the
// row of each choice among those sorted.

template <typename S>
__device__ __forceinline__ S over_warp(S value) {
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        value += __shfl_xor_sync(ALL_LANES, value, distance);
    }
    return value;
}

// The token of this thread's warp.
__device__ __forceinline__ long long token_of_warp() {
    return (long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP;
}

// Turns the logits of each token into probabilities, in place; takes the largest of them, of equal ones the first; and makes
// their weights add up to one.
extern "C" __global__ void expert_route(
    float* probabilities, float* weights, unsigned* choices, long long tokens, int experts, int top_k) {
    long long token = token_of_warp();
    if (token >= tokens) {
        return;
    }
    int lane = threadIdx.x % WARP;
    float nothing = -__int_as_float(0x7f800000);
    float* row = probabilities + token * experts;
    float most = nothing;
    for (int expert = lane; expert < experts; expert += WARP) {
        most = fmaxf(most, row[expert]);
    }
#pragma unroll
    for (int distance = WARP / 2; distance > 0; distance /= 2) {
        most = fmaxf(most, __shfl_xor_sync(ALL_LANES, most, distance));
    }
    float sum = 0.0f;
    for (int expert = lane; expert < experts; expert += WARP) {
        float power = expf(row[expert] - most);
        row[expert] = power;
        sum += power;
    }
    sum = over_warp(sum);
    for (int expert = lane; expert < experts; expert += WARP) {
        row[expert] /= sum;
    }
    // Each lane looks at what it has written itself. The next choice comes after the last one in the order of all: by
    // probability, then by number.
    float last = __int_as_float(0x7f800000), mine = 0.0f, chosen = 0.0f;
    int last_expert = -1;
    for (int choice = 0; choice < top_k; choice++) {
        float best = nothing;
        int best_expert = experts;
        for (int expert = lane; expert < experts; expert += WARP) {
            float probability = row[expert];
            bool is_left = probability < last || (probability == last && expert > last_expert);
            if (is_left && probability > best) {
                best = probability;
                best_expert = expert;
            }
        }
#pragma unroll
        for (int distance = WARP / 2; distance > 0; distance /= 2) {
            float other = __shfl_xor_sync(ALL_LANES, best, distance);
            int other_expert = __shfl_xor_sync(ALL_LANES, best_expert, distance);
            if (other > best || (other == best && other_expert < best_expert)) {
                best = other;
                best_expert = other_expert;
            }
        }
        // Only where nothing is a number: then the first ones are as good as any.
        if (best_expert >= experts) {
            best = __int_as_float(0x7fffffff);
            best_expert = choice;
        }
        last = best;
        last_expert = best_expert;
        chosen += best;
        if (lane == choice) {
            mine = best;
        }
        if (lane == 0) {
            choices[token * top_k + choice] = (unsigned)best_expert;
        }
    }
    if (lane < top_k) {
        weights[token * top_k + lane] = mine / chosen;
    }
}

// Tokens of a sequence that lie together, and how many sequences there are: chunks lie one after another, each with all sequences.
struct Sequences {
    long long chunk, count;
};

__device__ __forceinline__ long long sequence_of(Sequences sequences, long long token) {
    return token / sequences.chunk % sequences.count;
}

// How often each sequence chose each expert: a block to a sequence.
extern "C" __global__ void expert_count_choices(
    const unsigned* choices, Sequences sequences, long long tokens, int experts, int top_k, float* counts) {
    extern __shared__ unsigned of_experts[];
    for (int expert = threadIdx.x; expert < experts; expert += blockDim.x) {
        of_experts[expert] = 0;
    }
    __syncthreads();
    long long in_chunk = sequences.chunk * top_k, of_sequence = tokens / sequences.count * top_k;
    for (long long at = threadIdx.x; at < of_sequence; at += blockDim.x) {
        long long chunk = at / in_chunk * sequences.count + blockIdx.x;
        // Whole numbers add up to the same in every order.
        atomicAdd(&of_experts[choices[chunk * in_chunk + at % in_chunk]], 1u);
    }
    __syncthreads();
    for (int expert = threadIdx.x; expert < experts; expert += blockDim.x) {
        counts[(long long)blockIdx.x * experts + expert] = (float)of_experts[expert];
    }
}

// The balance loss of some tokens: each block leaves a sum. The loss grows so much with a probability of an expert, for each time
// that it was chosen.
extern "C" __global__ void expert_balance_sums(
    const float* probabilities, const float* counts, Sequences sequences, long long tokens, int experts, float slope,
    float* sums) {
    long long step = (long long)gridDim.x * (blockDim.x / WARP);
    int lane = threadIdx.x % WARP;
    float sum = 0.0f;
    for (long long token = token_of_warp(); token < tokens; token += step) {
        const float* row = probabilities + token * experts;
        const float* of_sequence = counts + sequence_of(sequences, token) * experts;
        for (int expert = lane; expert < experts; expert += WARP) {
            sum += row[expert] * (slope * of_sequence[expert]);
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

// Adds these sums to the loss: one block.
extern "C" __global__ void expert_balance_total(const float* sums, int count, float* total) {
    double sum = 0.0;
    for (int at = threadIdx.x; at < count; at += blockDim.x) {
        sum += sums[at];
    }
    sum = over_block(sum, 0.0, sum_of<double>);
    if (threadIdx.x == 0) {
        total[0] = (float)(total[0] + sum);
    }
}

// The gradient of the logits, from that of the weights and of the balance loss.
template <typename E>
__device__ __forceinline__ void route_backward(
    const float* probabilities, const float* weights, const unsigned* choices, const float* d_weights,
    const float* counts, Sequences sequences, long long tokens, int experts, int top_k, float slope, E* d_logits) {
    long long token = token_of_warp();
    if (token >= tokens) {
        return;
    }
    int lane = threadIdx.x % WARP;
    const float* row = probabilities + token * experts;
    const float* of_sequence = counts + sequence_of(sequences, token) * experts;
    // A lane for each choice.
    bool is_choice = lane < top_k;
    long long place = token * top_k + lane;
    unsigned expert_of_lane = is_choice ? choices[place] : 0;
    float d_weight = is_choice ? d_weights[place] : 0.0f;
    float chosen = over_warp(is_choice ? row[expert_of_lane] : 0.0f);
    float mean = over_warp(is_choice ? weights[place] * d_weight : 0.0f);
    float of_choice = is_choice ? (d_weight - mean) / chosen : 0.0f;
    // The gradient of a probability. All lanes come here together, also those that have no expert left.
    auto gradient = [&](int expert) {
        float d = expert < experts ? slope * of_sequence[expert] : 0.0f;
        for (int choice = 0; choice < top_k; choice++) {
            float more = __shfl_sync(ALL_LANES, of_choice, choice);
            unsigned other = __shfl_sync(ALL_LANES, expert_of_lane, choice);
            d += other == (unsigned)expert ? more : 0.0f;
        }
        return d;
    };
    float sum = 0.0f;
    for (int first = 0; first < experts; first += WARP) {
        float d = gradient(first + lane);
        sum += first + lane < experts ? row[first + lane] * d : 0.0f;
    }
    sum = over_warp(sum);
    for (int first = 0; first < experts; first += WARP) {
        float d = gradient(first + lane);
        if (first + lane < experts) {
            d_logits[token * experts + first + lane] = narrow<E>(row[first + lane] * (d - sum));
        }
    }
}

// Sorts rows of tokens by expert: each as often as its token has choices.
template <typename E>
__device__ __forceinline__ void dispatch(
    const E* tokens, const unsigned* order, long long count, long long width, int top_k, E* sorted) {
    Place place = group_of_rows(width);
    if (place.row >= count) {
        return;
    }
    long long token = order[place.row] / (unsigned)top_k, left = width - place.column;
    float values[GROUP];
    load_group(tokens + token * width + place.column, left, values);
    store_group(sorted + place.row * width + place.column, left, values);
}

// Adds up the rows of each token's choices, by their weights if they have any.
template <typename E>
__device__ __forceinline__ void combine(
    const E* sorted, const unsigned* places, const float* weights, long long count, long long width, int top_k,
    E* tokens) {
    Place place = group_of_rows(width);
    if (place.row >= count) {
        return;
    }
    long long left = width - place.column;
    float sums[GROUP] = {};
    for (int k = 0; k < top_k; k++) {
        long long choice = place.row * top_k + k;
        float weight = weights ? weights[choice] : 1.0f, values[GROUP];
        load_group(sorted + (long long)places[choice] * width + place.column, left, values);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            sums[i] += weight * values[i];
        }
    }
    store_group(tokens + place.row * width + place.column, left, sums);
}

// The gradients of what is combined, of its rows and of the weights: a block to a row.
template <typename E>
__device__ __forceinline__ void combine_backward(
    const E* d_tokens, const E* sorted, const unsigned* order, const float* weights, long long width, int top_k,
    E* d_sorted, float* d_weights) {
    unsigned choice = order[blockIdx.x];
    const E *d_token = d_tokens + (long long)(choice / (unsigned)top_k) * width, *row = sorted + blockIdx.x * width;
    E* d_row = d_sorted + blockIdx.x * width;
    float weight = weights[choice], product = 0.0f;
    for (long long at = GROUP * threadIdx.x; at < width; at += GROUP * blockDim.x) {
        float values[GROUP], d_values[GROUP];
        load_group(row + at, width - at, values);
        load_group(d_token + at, width - at, d_values);
#pragma unroll
        for (int i = 0; i < GROUP; i++) {
            product += d_values[i] * values[i];
            d_values[i] *= weight;
        }
        store_group(d_row + at, width - at, d_values);
    }
    product = block_sum(product);
    if (threadIdx.x == 0) {
        d_weights[choice] = product;
    }
}

#define EXPERTS(route_name, dispatch_name, combine_name, combine_backward_name, E)                                  \
    extern "C" __global__ void route_name(                                                                          \
        const float* probabilities, const float* weights, const unsigned* choices, const float* d_weights,          \
        const float* counts, Sequences sequences, long long tokens, int experts, int top_k, float slope,            \
        E* d_logits) {                                                                                              \
        route_backward(probabilities, weights, choices, d_weights, counts, sequences, tokens, experts, top_k,       \
                       slope, d_logits);                                                                            \
    }                                                                                                               \
    extern "C" __global__ void dispatch_name(                                                                       \
        const E* tokens, const unsigned* order, long long count, long long width, int top_k, E* sorted) {           \
        dispatch(tokens, order, count, width, top_k, sorted);                                                       \
    }                                                                                                               \
    extern "C" __global__ void combine_name(                                                                        \
        const E* sorted, const unsigned* places, const float* weights, long long count, long long width, int top_k, \
        E* tokens) {                                                                                                \
        combine(sorted, places, weights, count, width, top_k, tokens);                                              \
    }                                                                                                               \
    extern "C" __global__ void combine_backward_name(                                                               \
        const E* d_tokens, const E* sorted, const unsigned* order, const float* weights, long long width,           \
        int top_k, E* d_sorted, float* d_weights) {                                                                 \
        combine_backward(d_tokens, sorted, order, weights, width, top_k, d_sorted, d_weights);                      \
    }
EXPERTS(expert_route_backward_bf16, expert_dispatch_bf16, expert_combine_bf16, expert_combine_backward_bf16, bf16)
EXPERTS(expert_route_backward_f32, expert_dispatch_f32, expert_combine_f32, expert_combine_backward_f32, float)
