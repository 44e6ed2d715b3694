// Tiles of heads in shared memory, and products of them on tensor cores.
//
// Heads are padded with zeros to whole steps of the tensor cores. Rows of a tile are an odd number of 16-byte pieces
// apart, so that eight rows of a matrix are always in different banks.

constexpr int STEP = 16;
constexpr int PIECE = 8;
constexpr int PADDED_DIM = (HEAD_DIM + STEP - 1) / STEP * STEP;
constexpr int PITCH = PADDED_DIM + PIECE;
constexpr int STEPS = PADDED_DIM / STEP;
// Columns that an accumulator covers, and numbers of it in a thread: two of a row, and two of the row eight below.
constexpr int COLUMNS = 8;
constexpr int OF_THREAD = 4;

__device__ __forceinline__ unsigned shared_address(const void* place) {
    return (unsigned)__cvta_generic_to_shared(place);
}

// Begins to copy 16 bytes, or zeros.
__device__ __forceinline__ void copy_piece(void* to, const void* from, bool is_there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(is_there ? 16 : 0));
}
__device__ __forceinline__ void copy_number(float* to, const float* from, bool is_there) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(to)), "l"(from),
                 "r"(is_there ? 4 : 0));
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Begins to copy rows of a head into a tile; those that are not there become zeros.
template <int ROWS, int THREADS>
__device__ __forceinline__ void load_tile(
    bf16* tile, const bf16* head, long long stride, long long first, long long rows) {
    constexpr int PIECES = PADDED_DIM / PIECE;
    const bf16* begin = head + first * stride;
    int left = (int)min(rows - first, (long long)ROWS), width = (int)stride;
#pragma unroll
    for (int item = threadIdx.x; item < ROWS * PIECES; item += THREADS) {
        int row = item / PIECES, column = item % PIECES * PIECE;
        bf16* to = tile + row * PITCH + column;
        if (WHOLE_PIECES) {
            bool is_there = row < left && column < HEAD_DIM;
            copy_piece(to, is_there ? begin + row * width + column : head, is_there);
        } else {
#pragma unroll
            for (int i = 0; i < PIECE; i++) {
                bool is_there = row < left && column + i < HEAD_DIM;
                to[i].bits = is_there ? begin[row * width + column + i].bits : 0;
            }
        }
    }
}

// Begins to copy numbers that belong to rows.
template <int ROWS>
__device__ __forceinline__ void load_numbers(float* numbers, const float* from, long long first, long long rows) {
    if (threadIdx.x < ROWS) {
        bool is_there = first + threadIdx.x < rows;
        copy_number(numbers + threadIdx.x, is_there ? from + first + threadIdx.x : from, is_there);
    }
}

__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_matrices_transposed(unsigned (&to)[4], const bf16* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(shared_address(row)));
}

__device__ __forceinline__ void multiply_add(
    float (&sums)[OF_THREAD], const unsigned (&a)[4], unsigned b_lower, unsigned b_upper) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_lower), "r"(b_upper));
}

// sums[16 rows × ROWS] = the tile of left rows · the tile of right rows, transposed, for several left tiles at once.
template <int TILES, int ROWS>
__device__ __forceinline__ void scores(
    float (&sums)[TILES][ROWS / COLUMNS][OF_THREAD], const bf16* left, const bf16* right) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
        for (int column = 0; column < ROWS / COLUMNS; column++) {
#pragma unroll
            for (int i = 0; i < OF_THREAD; i++) {
                sums[tile][column][i] = 0.0f;
            }
        }
    }
    const bf16* left_row = left + lane % 16 * PITCH + lane / 16 * PIECE;
    const bf16* right_row = right + (lane % 8 + lane / 16 * 8) * PITCH + lane / 8 % 2 * PIECE;
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
        unsigned a[TILES][4];
#pragma unroll
        for (int tile = 0; tile < TILES; tile++) {
            load_matrices(a[tile], left_row + tile * 16 * PITCH + step * STEP);
        }
#pragma unroll
        for (int pair = 0; pair < ROWS / 16; pair++) {
            unsigned b[4];
            load_matrices(b, right_row + pair * 16 * PITCH + step * STEP);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                multiply_add(sums[tile][2 * pair], a[tile], b[0], b[1]);
                multiply_add(sums[tile][2 * pair + 1], a[tile], b[2], b[3]);
            }
        }
    }
}

// sums[16 rows × PADDED_DIM] += weights[16 rows × ROWS] · the tile of rows, for several tiles of weights at once.
template <int TILES, int ROWS>
__device__ __forceinline__ void combine(
    float (&sums)[TILES][PADDED_DIM / COLUMNS][OF_THREAD], const unsigned (&weights)[TILES][ROWS / STEP][4],
    const bf16* rows) {
    int lane = threadIdx.x % WARP;
    const bf16* row = rows + lane % 16 * PITCH + lane / 16 * PIECE;
#pragma unroll
    for (int step = 0; step < ROWS / STEP; step++) {
#pragma unroll
        for (int pair = 0; pair < PADDED_DIM / 16; pair++) {
            unsigned b[4];
            load_matrices_transposed(b, row + step * STEP * PITCH + pair * 16);
#pragma unroll
            for (int tile = 0; tile < TILES; tile++) {
                multiply_add(sums[tile][2 * pair], weights[tile][step], b[0], b[1]);
                multiply_add(sums[tile][2 * pair + 1], weights[tile][step], b[2], b[3]);
            }
        }
    }
}

// Rounds accumulators to what the next product is of: their layout is the one it wants.
template <int ROWS>
__device__ __forceinline__ void as_weights(
    unsigned (&weights)[ROWS / STEP][4], const float (&sums)[ROWS / COLUMNS][OF_THREAD]) {
#pragma unroll
    for (int step = 0; step < ROWS / STEP; step++) {
        weights[step][0] = narrow_two(sums[2 * step][0], sums[2 * step][1]);
        weights[step][1] = narrow_two(sums[2 * step][2], sums[2 * step][3]);
        weights[step][2] = narrow_two(sums[2 * step + 1][0], sums[2 * step + 1][1]);
        weights[step][3] = narrow_two(sums[2 * step + 1][2], sums[2 * step + 1][3]);
    }
}

// Writes accumulators of 16 rows, scaled by a factor each for the upper and the lower eight.
__device__ __forceinline__ void store_rows(
    bf16* head, long long stride, long long first, long long rows, float upper, float lower,
    const float (&sums)[PADDED_DIM / COLUMNS][OF_THREAD]) {
    int lane = threadIdx.x % WARP;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        long long row = first + lane / 4 + 8 * half;
        float factor = half ? lower : upper;
        if (row >= rows) {
            continue;
        }
        bf16* to = head + row * stride + lane % 4 * 2;
#pragma unroll
        for (int column = 0; column < PADDED_DIM / COLUMNS; column++) {
            float first_of_two = sums[column][2 * half] * factor, second = sums[column][2 * half + 1] * factor;
            int at = column * COLUMNS + lane % 4 * 2;
            if (WHOLE_PIECES) {
                if (at < HEAD_DIM) {
                    *reinterpret_cast<unsigned*>(to + column * COLUMNS) = narrow_two(first_of_two, second);
                }
            } else {
                if (at < HEAD_DIM) {
                    to[column * COLUMNS] = narrow<bf16>(first_of_two);
                }
                if (at + 1 < HEAD_DIM) {
                    to[column * COLUMNS + 1] = narrow<bf16>(second);
                }
            }
        }
    }
}

template <int TILES>
__device__ __forceinline__ void clear(float (&sums)[TILES][PADDED_DIM / COLUMNS][OF_THREAD]) {
#pragma unroll
    for (int tile = 0; tile < TILES; tile++) {
#pragma unroll
        for (int column = 0; column < PADDED_DIM / COLUMNS; column++) {
#pragma unroll
            for (int i = 0; i < OF_THREAD; i++) {
                sums[tile][column][i] = 0.0f;
            }
        }
    }
}
