// Convolutions with a filter for each channel: a row of the result is kept in registers, a few columns at once.
//
// There is a multiplication for each number that is read, so that loads are what takes time. Vectors are of channels, of
// which there are as many as a vector has numbers, or more; the last vector shares channels with the one before.

#ifndef PORTING_DEPTHWISE
#define PORTING_DEPTHWISE

namespace porting_depthwise {

using namespace porting_images;
constexpr long kColumns = 8;  // that share the load of a weight

// The first channel of a vector.
inline long begin_vector(long number, long channels) { return std::min(number * kLanes, channels - kLanes); }
inline long count_vectors(long channels) { return (channels + kLanes - 1) / kLanes; }

// filters [channels][window] as [window][channels]
inline void put_channels_inside(const float* filters, long window, long channels, bool turns, float* result) {
  for (long tap = 0; tap < window; ++tap)
    for (long channel = 0; channel < channels; ++channel)
      result[tap * channels + channel] = filters[channel * window + (turns ? window - 1 - tap : tap)];
}

// `columns` results of a row, beginning at `column`; those taps count that are inside of the image for all of them
template <long columns>
inline void filter_columns(
    const float* image, const float* filters, Vec start, float* result, const Images& shape, long channels, long row,
    long column) {
  Vec sums[columns];
#pragma GCC unroll 8
  for (long index = 0; index < columns; ++index) sums[index] = start;
  for (long i = 0; i < shape.window_rows; ++i) {
    const long in_row = row * shape.row_stride - shape.row_padding + i * shape.row_dilation;
    if (in_row < 0 || in_row >= shape.in_rows) continue;
    for (long j = 0; j < shape.window_columns; ++j) {
      const long in_column = column * shape.column_stride - shape.column_padding + j * shape.column_dilation;
      if (in_column < 0 || in_column + (columns - 1) * shape.column_stride >= shape.in_columns) continue;
      const Vec weight = Vec::loadu(filters + (i * shape.window_columns + j) * channels);
      const float* source = image + (in_row * shape.in_columns + in_column) * channels;
#pragma GCC unroll 8
      for (long index = 0; index < columns; ++index)
        sums[index] = fmadd(weight, Vec::loadu(source + index * shape.column_stride * channels), sums[index]);
    }
  }
#pragma GCC unroll 8
  for (long index = 0; index < columns; ++index)
    sums[index].store(result + (row * shape.out_columns + column + index) * channels);
}

// The columns of the result, from the first to before the last, that a tap finds inside of the image.
inline void find_columns_inside(const Images& shape, long tap, long* first, long* last) {
  const long shift = tap * shape.column_dilation - shape.column_padding, stride = shape.column_stride;
  const long end = shape.in_columns - 1 - shift;
  *first = std::min(shift < 0 ? (stride - 1 - shift) / stride : 0L, shape.out_columns);
  *last = std::max(*first, end < 0 ? 0L : std::min(end / stride + 1, shape.out_columns));
}

inline void filter_images(
    const float* images, const float* filters, const float* bias, float* result, const Images& shape, long channels,
    int threads) {
  // all taps of these columns are inside of the image
  long first, last, unused;
  find_columns_inside(shape, 0, &first, &unused);
  find_columns_inside(shape, shape.window_columns - 1, &unused, &last);
  const long rows = shape.count * shape.out_rows;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (long index = 0; index < rows; ++index) {
    const long row = index % shape.out_rows, number = index / shape.out_rows;
    for (long vector = 0; vector < count_vectors(channels); ++vector) {
      const long channel = begin_vector(vector, channels);
      const float* image = images + number * shape.in_rows * shape.in_columns * channels + channel;
      float* target = result + number * shape.out_rows * shape.out_columns * channels + channel;
      const Vec start = bias == nullptr ? Vec(0.0f) : Vec::loadu(bias + channel);
      long column = 0;
      while (column < shape.out_columns) {
        if (column >= first && column + kColumns <= last) {
          filter_columns<kColumns>(image, filters + channel, start, target, shape, channels, row, column);
          column += kColumns;
        } else if (column >= first && column + 2 <= last) {
          filter_columns<2>(image, filters + channel, start, target, shape, channels, row, column);
          column += 2;
        } else {
          filter_columns<1>(image, filters + channel, start, target, shape, channels, row, column);
          column += 1;
        }
      }
    }
  }
}

__attribute__((noinline)) static void convolve(
    const float* images, const float* filters, const float* bias, float* result, const Images& shape, long channels,
    long, int threads) {
  const long window = shape.window_rows * shape.window_columns;
  float* ordered = borrow<0>(window * channels);
  put_channels_inside(filters, window, channels, false, ordered);
  filter_images(images, ordered, bias, result, shape, channels, threads);
}

// For stride 1.
__attribute__((noinline)) static void find_image_gradient(
    const float* gradients, const float* filters, float* result, const Images& shape, long channels, long,
    int threads) {
  const long window = shape.window_rows * shape.window_columns;
  float* ordered = borrow<0>(window * channels);
  put_channels_inside(filters, window, channels, true, ordered);
  filter_images(gradients, ordered, nullptr, result, turn(shape), channels, threads);
}

// The sum over a row of the products of `number` pixels; those of the other row are `stride` apart.
inline Vec multiply_rows(const float* one, const float* other, long number, long channels, long stride) {
  Vec sums[4] = {Vec(0.0f), Vec(0.0f), Vec(0.0f), Vec(0.0f)};
  long index = 0;
  for (; index + 4 <= number; index += 4) {
#pragma GCC unroll 4
    for (long part = 0; part < 4; ++part)
      sums[part] = fmadd(
          Vec::loadu(one + (index + part) * channels), Vec::loadu(other + (index + part) * stride * channels),
          sums[part]);
  }
  for (; index < number; ++index)
    sums[0] = fmadd(Vec::loadu(one + index * channels), Vec::loadu(other + index * stride * channels), sums[0]);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

__attribute__((noinline)) static void find_filter_gradient(
    const float* gradients, const float* images, float* result, const Images& shape, long channels, long,
    int threads) {
  const long window = shape.window_rows * shape.window_columns, vectors = count_vectors(channels);
  float* memory = borrow<0>(2 * vectors * window * kLanes);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (long vector = 0; vector < vectors; ++vector) {
    const long channel = begin_vector(vector, channels);
    float *sums = memory + 2 * vector * window * kLanes, *of_image = sums + window * kLanes;
    std::fill(sums, sums + window * kLanes, 0.0f);
    for (long number = 0; number < shape.count; ++number) {
      const float* image = images + number * shape.in_rows * shape.in_columns * channels + channel;
      const float* gradient = gradients + number * shape.out_rows * shape.out_columns * channels + channel;
      // sums of an image apart: a sum of all products, one after the other, would lose digits
      std::fill(of_image, of_image + window * kLanes, 0.0f);
      for (long row = 0; row < shape.out_rows; ++row)
        for (long tap = 0; tap < window; ++tap) {
          const long tap_row = tap / shape.window_columns, tap_column = tap % shape.window_columns;
          const long in_row = row * shape.row_stride - shape.row_padding + tap_row * shape.row_dilation;
          long first, last;
          find_columns_inside(shape, tap_column, &first, &last);
          if (in_row < 0 || in_row >= shape.in_rows || first >= last) continue;
          const long in_column = first * shape.column_stride - shape.column_padding + tap_column * shape.column_dilation;
          const Vec products = multiply_rows(
              gradient + (row * shape.out_columns + first) * channels,
              image + (in_row * shape.in_columns + in_column) * channels, last - first, channels, shape.column_stride);
          float* sum = of_image + tap * kLanes;
          (Vec::loadu(sum) + products).store(sum);
        }
      for (long tap = 0; tap < window * kLanes; tap += kLanes)
        (Vec::loadu(sums + tap) + Vec::loadu(of_image + tap)).store(sums + tap);
    }
  }
  for (long vector = 0; vector < vectors; ++vector)
    for (long lane = 0; lane < kLanes; ++lane)
      for (long tap = 0; tap < window; ++tap)
        result[(begin_vector(vector, channels) + lane) * window + tap] =
            memory[(2 * vector * window + tap) * kLanes + lane];
}

}  // namespace porting_depthwise

#endif
