// Copies of many parts at once.

// Numbers that lie together and go elsewhere, wherever both are.
struct Part {
    unsigned long long from;
    unsigned long long to;
    unsigned long long bytes;
};

// As many as a launch takes with it.
constexpr int PARTS = 64;
struct Parts {
    Part of[PARTS];
};

// Copies parts: the second dimension of the grid is which, the first strides through it.
extern "C" __global__ void copy_parts(Parts parts) {
    Part part = parts.of[blockIdx.y];
    unsigned long long thread = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;
    if ((part.from | part.to) % 16 == 0) {
        const uint4* from = reinterpret_cast<const uint4*>(part.from);
        uint4* to = reinterpret_cast<uint4*>(part.to);
        for (unsigned long long at = thread; at < part.bytes / 16; at += threads) {
            to[at] = from[at];
        }
    } else {
        const unsigned short* from = reinterpret_cast<const unsigned short*>(part.from);
        unsigned short* to = reinterpret_cast<unsigned short*>(part.to);
        for (unsigned long long at = thread; at < part.bytes / 16 * 8; at += threads) {
            to[at] = from[at];
        }
    }
    // What is left, of which every number has an even number of bytes.
    unsigned long long whole = part.bytes / 16 * 16;
    for (unsigned long long at = whole + 2 * thread; at < part.bytes; at += 2 * threads) {
        *reinterpret_cast<unsigned short*>(part.to + at) = *reinterpret_cast<const unsigned short*>(part.from + at);
    }
}
