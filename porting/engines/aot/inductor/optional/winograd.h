// Convolutions of 3 x 3 with stride 1 by Winograd's minimal filtering F(2 x 2, 3 x 3).
//
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", arXiv 1509.09308. For a tile of 2 x 2 outputs
// y, the 4 x 4 inputs d that it depends on, and the filter g:
//
//     y = A' [(G g G') . (B' d B)] A,   dg = G' [(B' d B) . (A dy A')] G
//
// where . multiplies elements. Summed over channels, or over tiles, that is 16 products of matrices, which need 4
// multiplications for an output and a channel instead of 9. All tensors have their channels innermost; the numbers of
// channels are multiples of a vector. A block of tiles is transformed, multiplied and transformed back while it is
// in the cache of the core.

#ifndef PORTING_WINOGRAD
#define PORTING_WINOGRAD

namespace porting_winograd {

using namespace porting_images;
constexpr long kPanel = 2 * kLanes;             // columns of a product that are computed at once
constexpr long kRows = kLanes >= 16 ? 12 : 6;   // and rows, so that the sums fill most registers
constexpr long kPositions = 16;                 // of a transformed tile

inline long count_tile_rows(const Images& shape) { return (shape.out_rows + 1) / 2; }
inline long count_tile_columns(const Images& shape) { return (shape.out_columns + 1) / 2; }
inline long count_tiles(const Images& shape) {
  return shape.count * count_tile_rows(shape) * count_tile_columns(shape);
}

// A row of a transformed tensor: a few floats more than its channels, or rows of 2^n would share lines of the cache.
inline long padded(long channels) { return channels + kLanes; }

inline long choose_block(long tiles, long of_tile, long threads) {
  // 16 values of each channel of both sides are to stay in a second-level cache of 512 KiB or more
  long block = (96 << 10) / (kPositions * of_tile / 2) / kRows * kRows;
  block = std::min(std::max(block, 2 * kRows), 8 * kRows);
  long of_thread = (tiles + threads - 1) / threads;
  return std::max(kRows, std::min(block, (of_thread + kRows - 1) / kRows * kRows));
}

// Columns of the panel that begins at `column`: the last one may be half of a panel.
inline long find_width(long column, long columns) { return std::min(kPanel, columns - column); }

// out[rows x columns] (+)= left[rows x depth] right[depth x columns], of so many vectors of columns
template <long rows, bool adds, long vectors>
inline void multiply_vectors(
    const float* left, long left_row, long left_column, const float* right, long right_row, float* out, long out_row,
    long depth) {
  Vec sums[rows][vectors];
#pragma GCC unroll 12
  for (long row = 0; row < rows; ++row) {
#pragma GCC unroll 2
    for (long part = 0; part < vectors; ++part)
      sums[row][part] = adds ? Vec::loadu(out + row * out_row + part * kLanes) : Vec(0.0f);
  }
  for (long inner = 0; inner < depth; ++inner) {
    Vec factors[vectors];
#pragma GCC unroll 2
    for (long part = 0; part < vectors; ++part) factors[part] = Vec::loadu(right + inner * right_row + part * kLanes);
#pragma GCC unroll 12
    for (long row = 0; row < rows; ++row) {
      const Vec factor(left[row * left_row + inner * left_column]);
#pragma GCC unroll 2
      for (long part = 0; part < vectors; ++part) sums[row][part] = fmadd(factor, factors[part], sums[row][part]);
    }
  }
#pragma GCC unroll 12
  for (long row = 0; row < rows; ++row) {
#pragma GCC unroll 2
    for (long part = 0; part < vectors; ++part) sums[row][part].store(out + row * out_row + part * kLanes);
  }
}

template <long rows, bool adds>
inline void multiply(
    const float* left, long left_row, long left_column, const float* right, long right_row, float* out, long out_row,
    long depth, long width) {
  if (width == kPanel) {
    multiply_vectors<rows, adds, 2>(left, left_row, left_column, right, right_row, out, out_row, depth);
  } else {
    multiply_vectors<rows, adds, 1>(left, left_row, left_column, right, right_row, out, out_row, depth);
  }
}

// B' d B of each tile from `first` on: images [count, rows, columns, channels] to out[16][block][padded(channels)]
inline void transform_inputs(
    const float* images, const Images& shape, long channels, long first, long number, long block, const float* zeros,
    float* out) {
  const long row_length = padded(channels);
  for (long index = 0; index < number; ++index) {
    const long tile = first + index, column = tile % count_tile_columns(shape) * 2 - shape.column_padding;
    const long rest = tile / count_tile_columns(shape), row = rest % count_tile_rows(shape) * 2 - shape.row_padding;
    const float* image = images + rest / count_tile_rows(shape) * shape.in_rows * shape.in_columns * channels;
    const float* sources[16];
    for (long i = 0; i < 4; ++i)
      for (long j = 0; j < 4; ++j) {
        const bool is_inside =
            row + i >= 0 && row + i < shape.in_rows && column + j >= 0 && column + j < shape.in_columns;
        sources[4 * i + j] = is_inside ? image + ((row + i) * shape.in_columns + column + j) * channels : zeros;
      }
    for (long channel = 0; channel < channels; channel += kLanes) {
      Vec half[4][4];
#pragma GCC unroll 4
      for (long j = 0; j < 4; ++j) {
        const Vec a = Vec::loadu(sources[j] + channel), b = Vec::loadu(sources[4 + j] + channel);
        const Vec c = Vec::loadu(sources[8 + j] + channel), d = Vec::loadu(sources[12 + j] + channel);
        half[0][j] = a - c;
        half[1][j] = b + c;
        half[2][j] = c - b;
        half[3][j] = b - d;
      }
      float* target = out + index * row_length + channel;
#pragma GCC unroll 4
      for (long i = 0; i < 4; ++i) {
        (half[i][0] - half[i][2]).store(target + (4 * i + 0) * block * row_length);
        (half[i][1] + half[i][2]).store(target + (4 * i + 1) * block * row_length);
        (half[i][2] - half[i][1]).store(target + (4 * i + 2) * block * row_length);
        (half[i][1] - half[i][3]).store(target + (4 * i + 3) * block * row_length);
      }
    }
  }
}

// The pixels of an output tile, nullptr outside of the image.
template <class T>
inline void find_outputs(T* images, const Images& shape, long channels, long tile, T* found[4]) {
  const long column = tile % count_tile_columns(shape) * 2, rest = tile / count_tile_columns(shape);
  const long row = rest % count_tile_rows(shape) * 2;
  T* image = images + rest / count_tile_rows(shape) * shape.out_rows * shape.out_columns * channels;
  for (long i = 0; i < 2; ++i)
    for (long j = 0; j < 2; ++j) {
      const bool is_inside = row + i < shape.out_rows && column + j < shape.out_columns;
      found[2 * i + j] = is_inside ? image + ((row + i) * shape.out_columns + column + j) * channels : nullptr;
    }
}

// A' m A of each tile, plus the bias if there is one
inline void transform_products(
    const float* products, const Images& shape, long channels, long first, long number, long block, const float* bias,
    float* images) {
  const long row_length = padded(channels);
  for (long index = 0; index < number; ++index) {
    float* targets[4];
    find_outputs(images, shape, channels, first + index, targets);
    for (long channel = 0; channel < channels; channel += kLanes) {
      const float* source = products + index * row_length + channel;
      const Vec start = bias == nullptr ? Vec(0.0f) : Vec::loadu(bias + channel);
      Vec half[2][4];
#pragma GCC unroll 4
      for (long j = 0; j < 4; ++j) {
        const Vec a = Vec::loadu(source + j * block * row_length), b = Vec::loadu(source + (4 + j) * block * row_length);
        const Vec c = Vec::loadu(source + (8 + j) * block * row_length);
        const Vec d = Vec::loadu(source + (12 + j) * block * row_length);
        half[0][j] = a + b + c;
        half[1][j] = b - c - d;
      }
#pragma GCC unroll 2
      for (long i = 0; i < 2; ++i) {
        if (targets[2 * i] != nullptr)
          (half[i][0] + half[i][1] + half[i][2] + start).store(targets[2 * i] + channel);
        if (targets[2 * i + 1] != nullptr)
          (half[i][1] - half[i][2] - half[i][3] + start).store(targets[2 * i + 1] + channel);
      }
    }
  }
}

// A dy A' of each tile: gradients [count, rows, columns, channels] to out[16][block][padded(channels)]
inline void transform_gradients(
    const float* gradients, const Images& shape, long channels, long first, long number, long block,
    const float* zeros, float* out) {
  const long row_length = padded(channels);
  for (long index = 0; index < number; ++index) {
    const float* sources[4];
    find_outputs(gradients, shape, channels, first + index, sources);
    for (auto& source : sources) source = source == nullptr ? zeros : source;
    for (long channel = 0; channel < channels; channel += kLanes) {
      Vec half[4][2];
#pragma GCC unroll 2
      for (long j = 0; j < 2; ++j) {
        const Vec a = Vec::loadu(sources[j] + channel), b = Vec::loadu(sources[2 + j] + channel);
        half[0][j] = a;
        half[1][j] = a + b;
        half[2][j] = a - b;
        half[3][j] = -b;
      }
      float* target = out + index * row_length + channel;
#pragma GCC unroll 4
      for (long i = 0; i < 4; ++i) {
        half[i][0].store(target + (4 * i + 0) * block * row_length);
        (half[i][0] + half[i][1]).store(target + (4 * i + 1) * block * row_length);
        (half[i][0] - half[i][1]).store(target + (4 * i + 2) * block * row_length);
        (-half[i][1]).store(target + (4 * i + 3) * block * row_length);
      }
    }
  }
}

// G g G' of filters [out][3][3][in]: for the forward pass as panels of out, 16 times [in][panel] of each panel; else, for
// the gradient of the input, of the filters turned by 180 degrees as panels of in, 16 times [out][panel] of each
template <bool is_forward>
inline void transform_filters(const float* filters, long outs, long ins, float* result) {
  const Vec half(0.5f);
  alignas(64) float block[kPositions][kLanes][kLanes];
  for (long out_block = 0; out_block < outs; out_block += kLanes)
    for (long in_block = 0; in_block < ins; in_block += kLanes) {
      for (long out = 0; out < kLanes; ++out) {
        const float* source = filters + (out_block + out) * 9 * ins + in_block;
        Vec partly[4][3];
#pragma GCC unroll 3
        for (long j = 0; j < 3; ++j) {
          const long column = is_forward ? j : 2 - j;
          const Vec a = Vec::loadu(source + (is_forward ? column : 6 + column) * ins);
          const Vec b = Vec::loadu(source + (3 + column) * ins);
          const Vec c = Vec::loadu(source + (is_forward ? 6 + column : column) * ins);
          partly[0][j] = a;
          partly[1][j] = (a + b + c) * half;
          partly[2][j] = (a - b + c) * half;
          partly[3][j] = c;
        }
#pragma GCC unroll 4
        for (long i = 0; i < 4; ++i) {
          const Vec a = partly[i][0], b = partly[i][1], c = partly[i][2];
          const Vec four[4] = {a, (a + b + c) * half, (a - b + c) * half, c};
#pragma GCC unroll 4
          for (long j = 0; j < 4; ++j) {
            const long position = 4 * i + j;
            if (is_forward) {
              four[j].store(&block[position][out][0]);
            } else {
              const long begin = in_block / kPanel * kPanel, width = find_width(begin, ins);
              float* panel = result + (position * ins + begin) * outs;
              four[j].store(panel + (out_block + out) * width + in_block - begin);
            }
          }
        }
      }
      if (!is_forward) continue;
      const long begin = out_block / kPanel * kPanel, width = find_width(begin, outs);
      for (long position = 0; position < kPositions; ++position) {
        float* target = result + (position * outs + begin) * ins + in_block * width + out_block - begin;
        transpose(&block[position][0][0], kLanes, target, width);
      }
    }
}

// Images of `ins` channels, and transformed filters, to images of `outs` channels.
inline void filter_images(
    const float* images, const float* transformed, const float* bias, float* result, const Images& shape, long ins,
    long outs, int threads) {
  const long block = choose_block(count_tiles(shape), ins + outs, threads);
  const long num_blocks = (count_tiles(shape) + block - 1) / block;
  const long in_row = padded(ins), out_row = padded(outs);
  const long inputs_size = kPositions * block * in_row, size = inputs_size + kPositions * block * out_row + ins;
  // allocated here, because an exception cannot leave a thread
  float* scratch = borrow<1>(size * threads);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int thread = 0; thread < threads; ++thread) {
    float *inputs = scratch + thread * size, *products = inputs + inputs_size, *zeros = inputs + size - ins;
    // products of rows that the last block lacks are computed too, and not used
    std::fill(inputs, inputs + inputs_size, 0.0f);
    std::fill(zeros, zeros + ins, 0.0f);
    const long from = num_blocks * thread / threads, to = num_blocks * (thread + 1) / threads;
    for (long index = from; index < to; ++index) {
      const long first = index * block, number = std::min(block, count_tiles(shape) - first);
      transform_inputs(images, shape, ins, first, number, block, zeros, inputs);
      for (long position = 0; position < kPositions; ++position)
        for (long begin = 0; begin < outs; begin += kPanel)
          for (long row = 0; row < number; row += kRows)
            multiply<kRows, false>(
                inputs + (position * block + row) * in_row, in_row, 1, transformed + (position * outs + begin) * ins,
                find_width(begin, outs), products + (position * block + row) * out_row + begin, out_row, ins,
                find_width(begin, outs));
      transform_products(products, shape, outs, first, number, block, bias, result);
    }
  }
}

__attribute__((noinline)) static void convolve(
    const float* images, const float* filters, const float* bias, float* result, const Images& shape, long ins,
    long outs, int threads) {
  float* transformed = borrow<0>(kPositions * ins * outs);
  transform_filters<true>(filters, outs, ins, transformed);
  filter_images(images, transformed, bias, result, shape, ins, outs, threads);
}

// `shape` is that of the convolution; its gradient goes from the outputs to the inputs.
__attribute__((noinline)) static void find_image_gradient(
    const float* gradients, const float* filters, float* result, const Images& shape, long ins, long outs,
    int threads) {
  const Images turned = turn(shape);
  float* transformed = borrow<0>(kPositions * ins * outs);
  transform_filters<false>(filters, outs, ins, transformed);
  filter_images(gradients, transformed, nullptr, result, turned, outs, ins, threads);
}

// G' s G of sums[16][outs][ins] to filters [out][3][3][in], summed over the threads
inline void transform_sums(const float* sums, long outs, long ins, int threads, float* filters) {
  const Vec half(0.5f);
  const long size = kPositions * outs * ins;
  for (long out = 0; out < outs; ++out)
    for (long in = 0; in < ins; in += kLanes) {
      Vec partly[3][4];
#pragma GCC unroll 4
      for (long j = 0; j < 4; ++j) {
        Vec four[4];
#pragma GCC unroll 4
        for (long i = 0; i < 4; ++i) {
          const float* source = sums + ((4 * i + j) * outs + out) * ins + in;
          four[i] = Vec::loadu(source);
          for (int thread = 1; thread < threads; ++thread) four[i] = four[i] + Vec::loadu(source + thread * size);
        }
        const Vec sum = (four[1] + four[2]) * half;
        partly[0][j] = four[0] + sum;
        partly[1][j] = (four[1] - four[2]) * half;
        partly[2][j] = sum + four[3];
      }
      float* target = filters + out * 9 * ins + in;
#pragma GCC unroll 3
      for (long i = 0; i < 3; ++i) {
        const Vec sum = (partly[i][1] + partly[i][2]) * half;
        (partly[i][0] + sum).store(target + (3 * i + 0) * ins);
        ((partly[i][1] - partly[i][2]) * half).store(target + (3 * i + 1) * ins);
        (sum + partly[i][3]).store(target + (3 * i + 2) * ins);
      }
    }
}

__attribute__((noinline)) static void find_filter_gradient(
    const float* gradients, const float* images, float* result, const Images& shape, long ins, long outs,
    int threads) {
  const long block = choose_block(count_tiles(shape), ins + outs, threads);
  const long num_blocks = (count_tiles(shape) + block - 1) / block;
  const long in_row = padded(ins), out_row = padded(outs), size = kPositions * outs * ins;
  const long inputs_size = kPositions * block * in_row, outputs_size = kPositions * block * out_row;
  const long own_size = inputs_size + outputs_size + ins + outs;
  float *sums = borrow<0>(size * threads), *scratch = borrow<1>(own_size * threads);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (int thread = 0; thread < threads; ++thread) {
    float *inputs = scratch + thread * own_size, *outputs = inputs + inputs_size;
    float *zeros = outputs + outputs_size, *own = sums + thread * size;
    std::fill(zeros, zeros + ins + outs, 0.0f);
    std::fill(own, own + size, 0.0f);
    const long from = num_blocks * thread / threads, to = num_blocks * (thread + 1) / threads;
    for (long index = from; index < to; ++index) {
      const long first = index * block, number = std::min(block, count_tiles(shape) - first);
      transform_inputs(images, shape, ins, first, number, block, zeros, inputs);
      transform_gradients(gradients, shape, outs, first, number, block, zeros, outputs);
      for (long position = 0; position < kPositions; ++position)
        for (long begin = 0; begin < ins; begin += kPanel) {
          const float* right = inputs + position * block * in_row + begin;
          const float* left = outputs + position * block * out_row;
          float* out = own + position * outs * ins + begin;
          const long width = find_width(begin, ins);
          long row = 0;
          for (; row + kRows <= outs; row += kRows)
            multiply<kRows, true>(left + row, 1, out_row, right, in_row, out + row * ins, ins, number, width);
          for (; row < outs; row += 2)
            multiply<2, true>(left + row, 1, out_row, right, in_row, out + row * ins, ins, number, width);
        }
    }
  }
  transform_sums(sums, outs, ins, threads, result);
}

}  // namespace porting_winograd

#endif
