// The gated activation: a row of gate_up is the gate and then what it lets through.

template <typename E>
__device__ __forceinline__ float sigmoid(float x) {
    return 1.0f / (1.0f + exponential<E>(-x));
}

template <typename E>
__device__ __forceinline__ void swiglu(const E* gate_up, E* product, long long rows, long long width) {
    Place place = group_of_rows(width);
    if (place.row >= rows) {
        return;
    }
    long long left = width - place.column;
    const E* row = gate_up + place.row * 2 * width + place.column;
    float gate[GROUP], up[GROUP];
    load_group(row, left, gate);
    load_group(row + width, left, up);
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        up[i] = gate[i] * sigmoid<E>(gate[i]) * up[i];
    }
    store_group(product + place.row * width + place.column, left, up);
}

template <typename E>
__device__ __forceinline__ void swiglu_backward(
    const E* gate_up, const E* d_product, E* d_gate_up, long long rows, long long width) {
    Place place = group_of_rows(width);
    if (place.row >= rows) {
        return;
    }
    long long left = width - place.column, begin = place.row * 2 * width + place.column;
    float gate[GROUP], up[GROUP], d[GROUP];
    load_group(gate_up + begin, left, gate);
    load_group(gate_up + begin + width, left, up);
    load_group(d_product + place.row * width + place.column, left, d);
#pragma unroll
    for (int i = 0; i < GROUP; i++) {
        float opening = sigmoid<E>(gate[i]);
        float slope = opening * (1.0f + gate[i] * (1.0f - opening));
        float d_gate = d[i] * up[i] * slope;
        up[i] = d[i] * gate[i] * opening;
        gate[i] = d_gate;
    }
    store_group(d_gate_up + begin, left, gate);
    store_group(d_gate_up + begin + width, left, up);
}

#define SWIGLU(forward, backward, E)                                                                                \
    extern "C" __global__ void forward(const E* gate_up, E* product, long long rows, long long width) {             \
        swiglu(gate_up, product, rows, width);                                                                      \
    }                                                                                                               \
    extern "C" __global__ void backward(const E* gate_up, const E* d_product, E* d_gate_up, long long rows,         \
                                        long long width) {                                                          \
        swiglu_backward(gate_up, d_product, d_gate_up, rows, width);                                                \
    }
SWIGLU(swiglu_bf16, swiglu_backward_bf16, bf16)
SWIGLU(swiglu_f32, swiglu_backward_f32, float)
