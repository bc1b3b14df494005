// What the kernels of convolutions share: shapes, vectors, and memory for the time of a call.
//
// Images are [count][rows][columns][channels] in memory, float32.

#ifndef PORTING_IMAGES
#define PORTING_IMAGES

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

namespace porting_images {

using Vec = at::vec::Vectorized<float>;
constexpr long kLanes = Vec::size();

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

struct Freed {
  void operator()(float* memory) const { std::free(memory); }
};
using Scratch = std::unique_ptr<float[], Freed>;

inline Scratch allocate(long size) {
  void* memory = std::aligned_alloc(64, (size * sizeof(float) + 63) / 64 * 64);
  if (memory == nullptr) throw std::bad_alloc();
  return Scratch(static_cast<float*>(memory));
}

}  // namespace porting_images

#endif
