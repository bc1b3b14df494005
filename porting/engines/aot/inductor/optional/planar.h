// Convolutions of few channels, with stride 1: vectors of 16 columns instead of channels, which would fill half of one.
//
// Numbers of channels are multiples of 8. Rows of images are laid out as [channels][columns] while they are in the
// cache, and results back again. The rest of a program may have shorter vectors: this is compiled for AVX-512.

#ifndef PORTING_PLANAR
#define PORTING_PLANAR

#include <immintrin.h>

#include <vector>

#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512dq,avx512bw,fma")

namespace porting_planar {

using namespace porting_images;

typedef float Wide __attribute__((vector_size(64), aligned(4), may_alias));
typedef int Order __attribute__((vector_size(64)));

constexpr long kWide = 16;    // columns of a vector
constexpr long kGroup = 8;    // channels that are computed at once
constexpr long kVectors = 2;  // of a result's row that are

inline Wide load(const float* from) { return *reinterpret_cast<const Wide*>(from); }
inline void store(float* to, Wide value) { *reinterpret_cast<Wide*>(to) = value; }

// Programs are compiled so that a product and a sum stay two operations, unless they are written as one.
inline Wide fmadd(Wide one, Wide other, Wide sum) { return (Wide)_mm512_fmadd_ps((__m512)one, (__m512)other, (__m512)sum); }

// Shuffle 128 numbers like a deck of cards: of the seven bits of a number's place, the first one becomes the last.
inline void interleave(Wide (&values)[kGroup]) {
  const Order low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
  const Order high = low + 8;
  Wide before[kGroup];
#pragma GCC unroll 8
  for (long i = 0; i < kGroup; ++i) before[i] = values[i];
#pragma GCC unroll 4
  for (long i = 0; i < kGroup / 2; ++i) {
    values[2 * i] = __builtin_shuffle(before[i], before[i + kGroup / 2], low);
    values[2 * i + 1] = __builtin_shuffle(before[i], before[i + kGroup / 2], high);
  }
}

// 8 channels of 16 columns, [column][channels], as [channel][stride]: the four bits of the column go behind the others.
inline void put_columns_inside(const float* from, long channels, float* to, long stride) {
  Wide values[kGroup];
#pragma GCC unroll 8
  for (long i = 0; i < kGroup; ++i) {
    if (channels == kGroup) {
      values[i] = load(from + i * kWide);
    } else {
      std::copy_n(from + 2 * i * channels, kGroup, reinterpret_cast<float*>(&values[i]));
      std::copy_n(from + (2 * i + 1) * channels, kGroup, reinterpret_cast<float*>(&values[i]) + kGroup);
    }
  }
  for (long bit = 0; bit < 4; ++bit) interleave(values);
#pragma GCC unroll 8
  for (long i = 0; i < kGroup; ++i) store(to + i * stride, values[i]);
}

// The other way round: the three bits of the channel go behind the others. Of 16 columns the first `count` are stored.
inline void put_channels_inside(Wide (&values)[kGroup], long count, float* to, long channels) {
  for (long bit = 0; bit < 3; ++bit) interleave(values);
  for (long column = 0; column < count; ++column)
    std::copy_n(reinterpret_cast<const float*>(values) + column * kGroup, kGroup, to + column * channels);
}

// Rows of images as [channels][width], with zeros around; of those asked for last, as many as the window has are kept.
class Rows {
 public:
  Rows(const float* images, long rows, long columns, long channels, long padding, long kept, float* memory)
      : images_(images), rows_(rows), columns_(columns), channels_(channels), padding_(padding), kept_(kept),
        width_(find_width(columns, padding)), memory_(memory), held_(kept, -1) {
    std::fill_n(memory, find_size(columns, channels, padding, kept), 0.0f);
  }

  static long find_width(long columns, long padding) { return columns + 2 * padding + kVectors * kWide; }
  static long find_size(long columns, long channels, long padding, long kept) {
    return (kept + 1) * channels * find_width(columns, padding);  // the last one is for rows outside
  }

  long width() const { return width_; }

  const float* find(long image, long row) {
    const long size = channels_ * width_;
    if (row < 0 || row >= rows_) return memory_ + kept_ * size;
    const long number = image * rows_ + row, place = number % kept_;
    if (held_[place] != number) lay_out(images_ + number * columns_ * channels_, memory_ + place * size);
    held_[place] = number;
    return memory_ + place * size;
  }

 private:
  void lay_out(const float* from, float* to) const {
    for (long group = 0; group < channels_; group += kGroup, to += kGroup * width_) {
      long column = 0;
      for (; column + kWide <= columns_; column += kWide)
        put_columns_inside(from + column * channels_ + group, channels_, to + padding_ + column, width_);
      for (; column < columns_; ++column)
        for (long channel = 0; channel < kGroup; ++channel)
          to[channel * width_ + padding_ + column] = from[column * channels_ + group + channel];
    }
  }

  const float* images_;
  long rows_, columns_, channels_, padding_, kept_, width_;
  float* memory_;
  std::vector<long> held_;
};

// filters [outs][window][ins] as [outs / 8][window rows][ins][window columns][8]; turned, what is in is out
inline void order_filters(const float* filters, const Images& shape, long ins, long outs, bool turns, float* result) {
  const long window = shape.window_rows * shape.window_columns;
  for (long group = 0; group < outs; group += kGroup)
    for (long i = 0; i < shape.window_rows; ++i)
      for (long in = 0; in < ins; ++in)
        for (long j = 0; j < shape.window_columns; ++j)
          for (long out = group; out < group + kGroup; ++out) {
            const long tap = i * shape.window_columns + j;
            *result++ = turns ? filters[(in * window + window - 1 - tap) * outs + out]
                              : filters[(out * window + tap) * ins + in];
          }
}

// Filters of 8 channels of the result have so many groups of 8 numbers.
inline long filters_of_group(const Images& shape, long ins) { return shape.window_rows * ins * shape.window_columns; }

// 8 channels of 32 columns of a row
inline void filter_columns(
    const float* const* rows, long width, const float* filters, const Images& shape, long ins, long column,
    Wide (&sums)[kVectors][kGroup]) {
  for (long i = 0; i < shape.window_rows; ++i)
    for (long in = 0; in < ins; ++in)
      for (long j = 0; j < shape.window_columns; ++j, filters += kGroup) {
        const float* from = rows[i] + in * width + column + j;
        Wide values[kVectors];
#pragma GCC unroll 2
        for (long part = 0; part < kVectors; ++part) {
          values[part] = load(from + part * kWide);
          __asm__("" : "+v"(values[part]));  // or it is read anew for each channel
        }
#pragma GCC unroll 8
        for (long out = 0; out < kGroup; ++out) {
          const Wide factor = filters[out] - Wide{};
#pragma GCC unroll 2
          for (long part = 0; part < kVectors; ++part) sums[part][out] = fmadd(factor, values[part], sums[part][out]);
        }
      }
}

inline void filter_images(
    const float* images, const float* filters, const float* bias, float* result, const Images& shape, long ins,
    long outs, int threads) {
  const long num_rows = shape.count * shape.out_rows, of_group = filters_of_group(shape, ins);
  const long size = Rows::find_size(shape.in_columns, ins, shape.column_padding, shape.window_rows);
  float* memory = borrow<1>(threads * size);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (long part = 0; part < threads; ++part) {
    Rows kept(images, shape.in_rows, shape.in_columns, ins, shape.column_padding, shape.window_rows,
              memory + part * size);
    std::vector<const float*> rows(shape.window_rows);
    for (long number = num_rows * part / threads; number < num_rows * (part + 1) / threads; ++number) {
      const long image = number / shape.out_rows, row = number % shape.out_rows;
      for (long i = 0; i < shape.window_rows; ++i) rows[i] = kept.find(image, row - shape.row_padding + i);
      float* target = result + number * shape.out_columns * outs;
      for (long group = 0; group < outs; group += kGroup)
        for (long column = 0; column < shape.out_columns; column += kVectors * kWide) {
          Wide sums[kVectors][kGroup];
#pragma GCC unroll 2
          for (long vector = 0; vector < kVectors; ++vector)
#pragma GCC unroll 8
            for (long out = 0; out < kGroup; ++out)
              sums[vector][out] = (bias == nullptr ? 0.0f : bias[group + out]) - Wide{};
          filter_columns(rows.data(), kept.width(), filters + group * of_group, shape, ins, column, sums);
#pragma GCC unroll 2
          for (long vector = 0; vector < kVectors; ++vector) {
            const long begin = column + vector * kWide, count = std::min(kWide, shape.out_columns - begin);
            if (count > 0) put_channels_inside(sums[vector], count, target + begin * outs + group, outs);
          }
        }
    }
  }
}

__attribute__((noinline)) static void convolve(
    const float* images, const float* filters, const float* bias, float* result, const Images& shape, long ins,
    long outs, int threads) {
  float* ordered = borrow<0>(shape.window_rows * shape.window_columns * ins * outs);
  order_filters(filters, shape, ins, outs, false, ordered);
  filter_images(images, ordered, bias, result, shape, ins, outs, threads);
}

__attribute__((noinline)) static void find_image_gradient(
    const float* gradients, const float* filters, float* result, const Images& shape, long ins, long outs,
    int threads) {
  float* ordered = borrow<0>(shape.window_rows * shape.window_columns * ins * outs);
  order_filters(filters, shape, outs, ins, true, ordered);
  filter_images(gradients, ordered, nullptr, result, turn(shape), outs, ins, threads);
}

// Add up, for 8 channels of the result and some columns of the window, the products of a row's columns.
template <long columns>
inline void add_products(const float* gradients, long of_gradients, const float* images, long length, Wide* result) {
  Wide sums[columns][kGroup];
#pragma GCC unroll 3
  for (long j = 0; j < columns; ++j)
#pragma GCC unroll 8
    for (long out = 0; out < kGroup; ++out) sums[j][out] = result[j * kGroup + out];
  for (long column = 0; column < length; column += kWide) {
    Wide values[columns];
#pragma GCC unroll 3
    for (long j = 0; j < columns; ++j) values[j] = load(images + column + j);
#pragma GCC unroll 8
    for (long out = 0; out < kGroup; ++out) {
      const Wide gradient = load(gradients + out * of_gradients + column);
#pragma GCC unroll 3
      for (long j = 0; j < columns; ++j) sums[j][out] = fmadd(gradient, values[j], sums[j][out]);
    }
  }
#pragma GCC unroll 3
  for (long j = 0; j < columns; ++j)
#pragma GCC unroll 8
    for (long out = 0; out < kGroup; ++out) result[j * kGroup + out] = sums[j][out];
}

inline void add_row(
    const float* gradients, long of_gradients, const float* const* rows, long of_images, const Images& shape, long ins,
    Wide* result) {
  for (long i = 0; i < shape.window_rows; ++i)
    for (long in = 0; in < ins; ++in) {
      const float* row = rows[i] + in * of_images;
      for (long j = 0; j < shape.window_columns;) {
        const long left = shape.window_columns - j, length = shape.out_columns;
        if (left >= 3) {
          add_products<3>(gradients, of_gradients, row + j, length, result);
        } else if (left == 2) {
          add_products<2>(gradients, of_gradients, row + j, length, result);
        } else {
          add_products<1>(gradients, of_gradients, row + j, length, result);
        }
        const long done = std::min(left, 3L);
        j += done;
        result += done * kGroup;
      }
    }
}

__attribute__((noinline)) static void find_filter_gradient(
    const float* gradients, const float* images, float* result, const Images& shape, long ins, long outs,
    int threads) {
  const long num_rows = shape.count * shape.out_rows, of_group = filters_of_group(shape, ins);
  const long of_images = Rows::find_size(shape.in_columns, ins, shape.column_padding, shape.window_rows);
  const long of_gradients = Rows::find_size(shape.out_columns, outs, 0, 1), of_sums = of_group * outs * kWide;
  const long size = of_images + of_gradients + of_sums;
  float* memory = borrow<1>(threads * size);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
  for (long part = 0; part < threads; ++part) {
    float* own = memory + part * size;
    Wide* sums = reinterpret_cast<Wide*>(own + of_images + of_gradients);
    std::fill_n(own + of_images + of_gradients, of_sums, 0.0f);
    Rows kept(images, shape.in_rows, shape.in_columns, ins, shape.column_padding, shape.window_rows, own);
    Rows of_result(gradients, shape.out_rows, shape.out_columns, outs, 0, 1, own + of_images);
    std::vector<const float*> rows(shape.window_rows);
    for (long number = num_rows * part / threads; number < num_rows * (part + 1) / threads; ++number) {
      const long image = number / shape.out_rows, row = number % shape.out_rows;
      for (long i = 0; i < shape.window_rows; ++i) rows[i] = kept.find(image, row - shape.row_padding + i);
      const float* gradient = of_result.find(image, row);
      for (long group = 0; group < outs; group += kGroup)
        add_row(gradient + group * of_result.width(), of_result.width(), rows.data(), kept.width(), shape, ins,
                sums + group * of_group);
    }
  }
  // as `order_filters` has them, but for the sums over columns and threads
  const long window = shape.window_rows * shape.window_columns;
  for (long number = 0; number < of_group * outs; ++number) {
    const long out = number / (kGroup * of_group) * kGroup + number % kGroup, rest = number / kGroup % of_group;
    const long i = rest / (ins * shape.window_columns), in = rest / shape.window_columns % ins;
    const long j = rest % shape.window_columns;
    float sum = 0.0f;
    for (long part = 0; part < threads; ++part) {
      const float* from = memory + part * size + of_images + of_gradients + number * kWide;
      for (long lane = 0; lane < kWide; ++lane) sum += from[lane];
    }
    result[(out * window + i * shape.window_columns + j) * ins + in] = sum;
  }
}

}  // namespace porting_planar

#pragma GCC pop_options

#endif
