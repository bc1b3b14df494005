// Means and variances of compiled loops, by sums of what numbers differ from a number near their mean.
//
// Inductor's own loops update a mean and a sum of squares with each number (Welford), which is a chain of five operations
// that wait for each other, 4,096 numbers long. Here 128 numbers are added up, each less a number near their mean, and
// their mean and squares follow from the sums (Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983):
// chains of one operation, and shorter ones. Their moments are then combined pairwise.

#ifndef PORTING_MOMENTS
#define PORTING_MOMENTS

#include <cstdint>

namespace porting_moments {

constexpr std::uint64_t kChunk = 128;

// What numbers are added up in: while a chunk is not full, `mean` and `m2` of the Welford that goes with it are the sums of
// distances from `shift` and of their squares.
template <class T>
struct Moments {
  explicit Moments(std::uint64_t) {}

  T shift = T(0);  // the first number, and after the first chunk the mean of that
  // How many chunks are full. Those of a level, where its bit is set, are 2^level chunks combined. Their means are those of
  // the distances: a mean of large numbers would be rounded.
  std::uint64_t num_chunks = 0;
  union {
    Welford<T> levels[40];
  };
};

// `mask ? one : other`, for vectors and for numbers
template <class T, class Mask>
inline T choose(const Mask& mask, const T& one, const T& other) {
  if constexpr (IsVecType<T>::value) {
    return T::blendv(other, one, mask);
  } else {
    return mask ? one : other;
  }
}

// the moments of the distances that were added up
template <class T>
inline Welford<T> find_moments(const Welford<T>& sums) {
  // a weight is zero behind the end of a tensor
  const T mean = sums.mean / choose(sums.weight == T(0), T(1), sums.weight);
  const T squares = sums.m2 - sums.mean * mean;
  // less than zero by rounding, where all numbers are alike
  return Welford<T>{mean, choose(squares < T(0), T(0), squares), sums.weight, sums.index};
}

// The sums come one by one: those of a structure in memory would stay there while they are added up.
template <class T>
__attribute__((noinline, cold)) void keep_chunk(T mean, T m2, T weight, Moments<T>* moments) {
  Welford<T> found = find_moments(Welford<T>{mean, m2, weight, kChunk});
  if (moments->num_chunks == 0) {
    const T first = moments->shift;
    moments->shift = first + found.mean;
    found.mean = found.mean - (moments->shift - first);
  }
  std::uint64_t level = 0;
  for (; (moments->num_chunks >> level) & 1; ++level) found = ::welford_combine(moments->levels[level], found);
  moments->levels[level] = found;
  ++moments->num_chunks;
}

// one number more
template <class T>
inline Welford<T> welford_combine(const Welford<T>& sums, const T& data, Moments<T>* moments) {
  T mean = sums.mean, m2 = sums.m2, weight = sums.weight;
  std::uint64_t index = sums.index;
  if (index == kChunk) {
    keep_chunk(mean, m2, weight, moments);
    mean = m2 = weight = T(0);
    index = 0;
  } else if (index == 0 && moments->num_chunks == 0) {
    moments->shift = data;
  }
  const T difference = data - moments->shift;
  return Welford<T>{mean + difference, m2 + difference * difference, weight + T(1), index + 1};
}

// the same for the first numbers of a vector
template <class T>
inline Welford<T> welford_combine(const Welford<T>& sums, const T& data, std::int64_t number, Moments<T>* moments) {
  const bool is_kept = sums.index == kChunk;
  const Welford<T> all = welford_combine(sums, data, moments), before = is_kept ? Welford<T>() : sums;
  return Welford<T>{
      T::set(before.mean, all.mean, number), T::set(before.m2, all.m2, number),
      T::set(before.weight, all.weight, number), all.index};
}

// the moments of all numbers
template <class T>
inline Welford<T> welford_combine(const Welford<T>& sums, Moments<T>* moments) {
  if (sums.index == 0) return sums;
  Welford<T> found = find_moments(sums);
  for (std::uint64_t level = 0; moments->num_chunks >> level; ++level)
    if ((moments->num_chunks >> level) & 1) found = ::welford_combine(moments->levels[level], found);
  found.mean = found.mean + moments->shift;
  moments->num_chunks = 0;
  return found;
}

}  // namespace porting_moments

#endif
