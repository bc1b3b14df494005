// What the kernels of convolutions share: shapes, vectors, and memory for the time of a call.
//
// Images are [count][rows][columns][channels] in memory, float32.

#ifndef PORTING_IMAGES
#define PORTING_IMAGES

#include <algorithm>
#include <cstdlib>
#include <new>
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__ARM_NEON)
#include <arm_neon.h>
#endif

namespace porting_images {

// Vectors as long as those of the rest of a program, on x86. Torch's own would be the same there, and its headers take a
// compiler a second, twice: for the program, and for the measurement of whether it is to have these kernels.
#if defined(CPU_CAPABILITY_AVX512)
constexpr long kLanes = 16;
#elif defined(__x86_64__)
constexpr long kLanes = 8;
#else
constexpr long kLanes = 4;
#endif
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));
typedef float AnyLanes __attribute__((vector_size(kLanes * sizeof(float)), aligned(4), may_alias));

struct Vec {
  Vec() = default;
  Vec(Lanes lanes) : lanes(lanes) {}
  explicit Vec(float value) : lanes(value - Lanes{}) {}
  static Vec loadu(const float* from) { return Lanes(*reinterpret_cast<const AnyLanes*>(from)); }
  void store(float* to) const { *reinterpret_cast<AnyLanes*>(to) = lanes; }

  Lanes lanes;
};

inline Vec operator+(Vec one, Vec other) { return one.lanes + other.lanes; }
inline Vec operator-(Vec one, Vec other) { return one.lanes - other.lanes; }
inline Vec operator*(Vec one, Vec other) { return one.lanes * other.lanes; }
inline Vec operator-(Vec one) { return -one.lanes; }

// Programs are compiled so that a product and a sum stay two operations, unless they are written as one.
inline Vec fmadd(Vec one, Vec other, Vec sum) {
#if defined(CPU_CAPABILITY_AVX512)
  return Lanes(_mm512_fmadd_ps((__m512)one.lanes, (__m512)other.lanes, (__m512)sum.lanes));
#elif defined(__FMA__)
  return Lanes(_mm256_fmadd_ps((__m256)one.lanes, (__m256)other.lanes, (__m256)sum.lanes));
#elif defined(__ARM_NEON)
  return Lanes(vfmaq_f32((float32x4_t)sum.lanes, (float32x4_t)one.lanes, (float32x4_t)other.lanes));
#else
  return one * other + sum;
#endif
}

// Of two halves of a deck of cards, shuffled into one another, the first half or the second.
template <long begin>
inline Vec interleave(Vec one, Vec other) {
#if defined(__clang__)
  Lanes cards;
  for (long i = 0; i < kLanes; ++i) cards[i] = (i % 2 ? other : one).lanes[begin + i / 2];
  return cards;
#else
  typedef int Order __attribute__((vector_size(kLanes * sizeof(int))));
  Order order = {};
#pragma GCC unroll 16
  for (long i = 0; i < kLanes; ++i) order[i] = begin + i / 2 + i % 2 * kLanes;
  return __builtin_shuffle(one.lanes, other.lanes, order);
#endif
}

// Transpose a matrix of as many rows and columns as a vector has numbers.
inline void transpose(const float* from, long from_row, float* to, long to_row) {
  Vec rows[kLanes], before[kLanes];
#pragma GCC unroll 16
  for (long i = 0; i < kLanes; ++i) rows[i] = Vec::loadu(from + i * from_row);
  // each shuffle of the whole matrix rotates the bits of all places by one
#pragma GCC unroll 4
  for (long bit = 1; bit < kLanes; bit *= 2) {
#pragma GCC unroll 16
    for (long i = 0; i < kLanes; ++i) before[i] = rows[i];
#pragma GCC unroll 8
    for (long i = 0; i < kLanes / 2; ++i) {
      rows[2 * i] = interleave<0>(before[i], before[i + kLanes / 2]);
      rows[2 * i + 1] = interleave<kLanes / 2>(before[i], before[i + kLanes / 2]);
    }
  }
#pragma GCC unroll 16
  for (long i = 0; i < kLanes; ++i) rows[i].store(to + i * to_row);
}

// A convolution: filters of a window go over images with zeros around.
struct Images {
  long count, in_rows, in_columns, out_rows, out_columns, row_padding, column_padding;
  long window_rows, window_columns, row_dilation, column_dilation, row_stride, column_stride;
};

// The convolution, with the filters turned by 180 degrees, that makes the images' gradient of the results' (stride 1).
inline Images turn(const Images& shape) {
  Images turned = shape;
  std::swap(turned.in_rows, turned.out_rows);
  std::swap(turned.in_columns, turned.out_columns);
  turned.row_padding = (shape.window_rows - 1) * shape.row_dilation - shape.row_padding;
  turned.column_padding = (shape.window_columns - 1) * shape.column_dilation - shape.column_padding;
  return turned;
}

// Memory for the time of a call, of which a kernel has up to two at once. The thread keeps it for the next kernel: blocks
// of such sizes would leave holes between a program's tensors, too small for the next tensor.
template <int which>
inline float* borrow(long size) {
  struct Kept {
    ~Kept() { std::free(memory); }
    float* memory = nullptr;
    long size = 0;
  };
  thread_local Kept kept;
  if (kept.size < size) {
    std::free(kept.memory);
    kept.size = 0;
    kept.memory = static_cast<float*>(std::aligned_alloc(64, (size * sizeof(float) + 63) / 64 * 64));
    if (kept.memory == nullptr) throw std::bad_alloc();
    kept.size = size;
  }
  return kept.memory;
}

}  // namespace porting_images

#endif
