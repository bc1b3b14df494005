// Products of matrices by tiles that stay in registers, and the vectors of which these are made.
//
// All numbers are float32. The right factor of a product is put into panels first, of which a tile reads one.

#ifndef PORTING_PRODUCTS
#define PORTING_PRODUCTS

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace {

// A tile of a product is ROWS x (PANEL x LANES) numbers, which stay in registers.
#if defined(__AVX512F__)
constexpr int LANES = 16, ROWS = 8;
#elif defined(__AVX__)
constexpr int LANES = 8, ROWS = 6;
#elif defined(__aarch64__)
constexpr int LANES = 4, ROWS = 8;
#else
constexpr int LANES = 4, ROWS = 4;
#endif
constexpr int PANEL = 2, WIDTH = PANEL * LANES;

typedef float vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t whole __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

inline vector fill(float value) { return value - vector{}; }

// Keep a value in a register. Otherwise GCC reads it from memory wherever it is used, which takes longer than the
// arithmetic of a small tile.
inline void keep_in_register(vector &value) {
#if defined(__x86_64__)
    __asm__("" : "+v"(value));
#elif defined(__aarch64__)
    __asm__("" : "+w"(value));
#endif
}

// Rows end anywhere: the last vector of each is a part of one.
inline vector load(const float *from, int64_t count) {
    if (count >= LANES) return *(const vector *)from;
    vector found{};
    std::memcpy(&found, from, sizeof(float) * count);
    return found;
}

inline void store(float *to, vector value, int64_t count) {
    if (count >= LANES)
        *(vector *)to = value;
    else
        std::memcpy(to, &value, sizeof(float) * count);
}

// Memory for `count` numbers, or null. It begins with a line of the cache, so that no vector lies in two.
using Memory = std::unique_ptr<float[], decltype(&std::free)>;

inline Memory allocate(int64_t count) {
    return {(float *)std::aligned_alloc(64, (sizeof(float) * count + 63) / 64 * 64), &std::free};
}

// -- products ---------------------------------------------------------------------------------------------------------

inline int64_t round_up(int64_t columns) { return (columns + WIDTH - 1) / WIDTH * WIDTH; }

// The left factor of a product: `inner` numbers of each row. Those of a row lie one after the other, or, with
// IS_TRANSPOSED, those of a column do.
template <bool IS_TRANSPOSED>
struct Left {
    const float *start;
    int64_t stride, inner;

    int64_t row_stride() const { return IS_TRANSPOSED ? 1 : stride; }
    int64_t inner_stride() const { return IS_TRANSPOSED ? stride : 1; }
    Left skip(int64_t rows) const { return {start + rows * row_stride(), stride, inner}; }
};

// What a product writes, or adds to. The columns after its own belong to others.
struct Result {
    float *start;
    int64_t row_stride, columns;
    bool is_added_to;

    Result skip(int64_t rows, int64_t done) const {
        return {start + rows * row_stride + done, row_stride, columns - done, is_added_to};
    }
};

// Two factors side by side, by a panel that has rows for the one and then for the other.
template <int rows, bool IS_TRANSPOSED>
inline void multiply_tile(const Left<IS_TRANSPOSED> &first, const Left<IS_TRANSPOSED> &second, const float *panel,
                          const Result &to) {
    vector sums[rows][PANEL];
    auto locate = [&](int row, int part) { return to.start + row * to.row_stride + part * LANES; };
    auto count = [&](int part) { return to.columns - part * LANES; };
#pragma GCC unroll 8
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 2
        for (int part = 0; part < PANEL; part++)
            sums[row][part] = to.is_added_to && count(part) > 0 ? load(locate(row, part), count(part)) : vector{};
    for (const Left<IS_TRANSPOSED> &left : {first, second}) {
        const float *at = left.start;
        for (int64_t k = 0; k < left.inner; k++, panel += WIDTH, at += left.inner_stride()) {
            vector right[PANEL];
#pragma GCC unroll 2
            for (int part = 0; part < PANEL; part++) {
                right[part] = *(const vector *)(panel + part * LANES);
                keep_in_register(right[part]);
            }
#pragma GCC unroll 8
            for (int row = 0; row < rows; row++) {
                vector factor = fill(at[row * left.row_stride()]);
#pragma GCC unroll 2
                for (int part = 0; part < PANEL; part++) sums[row][part] += factor * right[part];
            }
        }
    }
#pragma GCC unroll 8
    for (int row = 0; row < rows; row++)
#pragma GCC unroll 2
        for (int part = 0; part < PANEL; part++)
            if (count(part) > 0) store(locate(row, part), sums[row][part], count(part));
}

// Choose the function for a tile of `count` rows.
template <int rows, bool IS_TRANSPOSED>
inline void multiply_rows(int64_t count, const Left<IS_TRANSPOSED> &first, const Left<IS_TRANSPOSED> &second,
                          const float *panel, const Result &to) {
    if (count == rows)
        multiply_tile<rows>(first, second, panel, to);
    else if constexpr (rows > 1)
        multiply_rows<rows - 1>(count, first, second, panel, to);
}

// to = both factors x packed. A panel stays in the cache for all rows, which are shared out evenly: tiles of few rows
// wait for their own sums.
template <bool IS_TRANSPOSED>
void multiply(const Left<IS_TRANSPOSED> &first, const Left<IS_TRANSPOSED> &second, int64_t rows, const float *packed,
              const Result &to) {
    const int64_t inner = first.inner + second.inner, num_tiles = (rows + ROWS - 1) / ROWS;
    for (int64_t start = 0; start < to.columns; start += WIDTH, packed += inner * WIDTH)
        for (int64_t tile = 0; tile < num_tiles; tile++) {
            const int64_t row = rows * tile / num_tiles, count = rows * (tile + 1) / num_tiles - row;
            multiply_rows<ROWS>(count, first.skip(row), second.skip(row), packed, to.skip(row, start));
        }
}

// Put the next WIDTH of `count` numbers into a row of a panel, which is filled up with zeros.
inline void pack_row(const float *from, int64_t count, int64_t stride, float *to) {
    if (stride == 1)
        for (int64_t j = 0; j < WIDTH; j += LANES)
            *(vector *)(to + j) = count > j ? load(from + j, count - j) : vector{};
    else
        for (int64_t j = 0; j < WIDTH; j++) to[j] = j < count ? from[j * stride] : 0.0f;
}

// [T, B, columns] with these strides, as a matrix of T B rows.
struct Steps {
    const float *start;
    int64_t steps, rows, columns, step_stride, row_stride;

    int64_t count() const { return steps * rows; }
    const float *find(int64_t number) const {
        return start + number / rows * step_stride + number % rows * row_stride;
    }
};

// to = left^T x right for some of the columns of `left`, a few rows of both at a time, which stay in the cache.
// Returns whether there was memory for it.
bool multiply_over_steps(const float *left, int64_t stride, int64_t left_columns, const Steps &right, float *to) {
    constexpr int64_t BLOCK = 256;
    // Rows whose distance is a multiple of 4 KiB take each other's place in the cache: what a tile reads is copied.
    const bool copies_tile = stride % 1024 == 0;
    const int64_t num_tiles = (left_columns + ROWS - 1) / ROWS;
    alignas(64) float tile_rows[BLOCK * ROWS];
    const Memory panels = allocate(BLOCK * round_up(right.columns));
    if (!panels) return false;
    for (int64_t first = 0; first < right.count(); first += BLOCK, left += BLOCK * stride) {
        const int64_t inner = right.count() - first < BLOCK ? right.count() - first : BLOCK;
        for (int64_t k = 0; k < inner; k++)
            for (int64_t start = 0; start < right.columns; start += WIDTH)
                pack_row(right.find(first + k) + start, right.columns - start, 1, &panels[start * inner + k * WIDTH]);
        for (int64_t tile = 0; tile < num_tiles; tile++) {
            const int64_t row = left_columns * tile / num_tiles, count = left_columns * (tile + 1) / num_tiles - row;
            Left<true> factor{left + row, stride, inner};
            if (copies_tile) {
                for (int64_t k = 0; k < inner; k++)
                    std::memcpy(tile_rows + k * ROWS, left + k * stride + row, sizeof(float) * count);
                factor = {tile_rows, ROWS, inner};
            }
            const Result result{to + row * right.columns, right.columns, right.columns, first > 0};
            multiply(factor, {}, count, panels.get(), result);
        }
    }
    return true;
}

}  // namespace

#endif
