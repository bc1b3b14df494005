// The time loops of recurrent layers: in each step one product with the recurrent weights and one pass over the gates.
//
// T = steps, B = rows of the batch, U = units, G = gates of a cell (LSTM 4, GRU 3, RNN 1). All numbers are float32.
// Rows do not depend on one another: a call computes those from `first_row` to `end_row`, and several calls may run at
// once on other rows of the same layer. Tensors are contiguous unless strides are given.

#include <cstdint>
#include <initializer_list>

#include "products.h"

namespace {

enum Kind { LSTM, GRU, TANH, RELU };

struct Layer {
    int64_t kind, steps, rows, first_row, end_row, units, is_reversed;
    int64_t wants_first;             // whether anybody asks for the gradient of the first state
    const float *packed;             // the recurrent weights, and with `input` its own below them, as `pack` made them
    const float *input;              // [T, B, I] with the following strides, or null: its products are in `gates`
    int64_t num_inputs, input_step_stride, input_row_stride;
    const float *bias;               // [G U] with `input`, else [U], GRU: of the new gate's recurrent product
    float *gates;                    // [T, B, G U]: the gates' values
    float *hidden;                   // [T + 1, B, U]: the state before and after each step; reversed, the first is last
    float *cells;                    // LSTM: likewise; GRU: [T, B, U], the new gate's recurrent product
    const float *grad_output;        // [T, B, U] with the following strides, or null for zeros
    int64_t step_stride, row_stride;
    float *grad_hidden;              // [B, U]: the gradient of the last state, which becomes that of the first
    float *grad_cell;                // [B, U]: likewise, LSTM
    float *grad_input_gates;         // [T, B, G U]: of the products with the input
    float *grad_state_gates;         // GRU: [T, B, G U], of the products with the state; others have one for both
};

// -- functions of vectors ---------------------------------------------------------------------------------------------

// e^x as 2^n e^r, |r| <= ln 2 / 2, with the coefficients of Cephes' expf; NaN stays NaN.
inline vector exponential(vector x) {
    x = x > 88.0f ? fill(88.0f) : x;
    x = x < -87.0f ? fill(-87.0f) : x;
    // added and taken away again, this rounds to whole numbers, and leaves them in the last bits
    vector rounder = fill(12582912.0f), shifted = x * 1.44269504088896341f + rounder, n = shifted - rounder;
    vector r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vector p = fill(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    whole power = ((whole)shifted - (whole)rounder + 127) << 23;
    return p * (vector)power;
}

inline vector sigmoid(vector x) { return 1.0f / (1.0f + exponential(-x)); }

// A quotient of two polynomials, with the coefficients of Eigen's tanh for float; its relative error is small near zero
// as well. Beyond the bounds the result is 1 but for rounding; NaN stays NaN.
inline vector tanh(vector x) {
    x = x > 7.90531110763549805f ? fill(7.90531110763549805f) : x;
    x = x < -7.90531110763549805f ? fill(-7.90531110763549805f) : x;
    vector square = x * x;
    vector p = fill(-2.76076847742355e-16f);
    p = p * square + 2.00018790482477e-13f;
    p = p * square - 8.60467152213735e-11f;
    p = p * square + 5.12229709037114e-08f;
    p = p * square + 1.48572235717979e-05f;
    p = p * square + 6.37261928875436e-04f;
    p = p * square + 4.89352455891786e-03f;
    vector q = fill(1.19825839466702e-06f);
    q = q * square + 1.18534705686654e-04f;
    q = q * square + 2.26843463243900e-03f;
    q = q * square + 4.89352518554385e-03f;
    return x * p / q;
}

// -- the steps --------------------------------------------------------------------------------------------------------

// What a row of a step reads and writes. Forward `product` is that with the state before, to which `added` comes,
// backward that with the gradients of the gates after.
struct Row {
    int64_t units;
    const float *product, *added, *bias, *hidden_before, *cell_before, *grad_output;
    float *gates, *hidden, *cell, *grad_hidden, *grad_cell, *grad_gates, *grad_state_gates;
};

template <Kind kind>
inline void compute_state(const Row &row, int64_t j, int64_t count) {
    const int64_t U = row.units;
    auto add_products = [&](int gate) {
        return load(row.added + gate * U + j, count) + load(row.product + gate * U + j, count);
    };
    auto keep = [&](int gate, vector value) {
        store(row.gates + gate * U + j, value, count);
        return value;
    };
    vector hidden;
    if (kind == LSTM) {
        vector in = keep(0, sigmoid(add_products(0))), forget = keep(1, sigmoid(add_products(1)));
        vector fresh = keep(2, tanh(add_products(2))), out = keep(3, sigmoid(add_products(3)));
        vector cell = forget * load(row.cell_before + j, count) + in * fresh;
        store(row.cell + j, cell, count);
        hidden = out * tanh(cell);
    } else if (kind == GRU) {
        vector reset = keep(0, sigmoid(add_products(0))), update = keep(1, sigmoid(add_products(1)));
        vector product = load(row.product + 2 * U + j, count);
        if (row.bias) product += load(row.bias + j, count);
        store(row.cell + j, product, count);
        vector fresh = keep(2, tanh(load(row.added + 2 * U + j, count) + reset * product));
        hidden = fresh + update * (load(row.hidden_before + j, count) - fresh);
    } else if (kind == TANH) {
        hidden = tanh(add_products(0));
    } else {
        vector sum = add_products(0);
        hidden = sum < 0.0f ? vector{} : sum;
    }
    store(row.hidden + j, hidden, count);
}

template <Kind kind>
inline void compute_gradients(const Row &row, int64_t j, int64_t count) {
    const int64_t U = row.units;
    auto gate = [&](int number) { return load(row.gates + number * U + j, count); };
    auto write = [&](float *to, int number, vector value) { store(to + number * U + j, value, count); };
    // the part of the state that reached the next step without its product
    vector grad = load(row.grad_hidden + j, count) + load(row.product + j, count), direct{};
    if (row.grad_output) grad += load(row.grad_output + j, count);
    if (kind == LSTM) {
        vector in = gate(0), forget = gate(1), fresh = gate(2), out = gate(3), seen = tanh(load(row.cell + j, count));
        vector grad_cell = load(row.grad_cell + j, count) + grad * out * (1.0f - seen * seen);
        write(row.grad_gates, 0, grad_cell * fresh * in * (1.0f - in));
        write(row.grad_gates, 1, grad_cell * load(row.cell_before + j, count) * forget * (1.0f - forget));
        write(row.grad_gates, 2, grad_cell * in * (1.0f - fresh * fresh));
        write(row.grad_gates, 3, grad * seen * out * (1.0f - out));
        store(row.grad_cell + j, grad_cell * forget, count);
    } else if (kind == GRU) {
        vector reset = gate(0), update = gate(1), fresh = gate(2);
        vector of_fresh = grad * (1.0f - update) * (1.0f - fresh * fresh);
        vector of_update = grad * (load(row.hidden_before + j, count) - fresh) * update * (1.0f - update);
        vector of_reset = of_fresh * load(row.cell + j, count) * reset * (1.0f - reset);
        for (float *to : {row.grad_gates, row.grad_state_gates}) {
            write(to, 0, of_reset);
            write(to, 1, of_update);
        }
        write(row.grad_gates, 2, of_fresh);
        write(row.grad_state_gates, 2, of_fresh * reset);
        direct = grad * update;
    } else {
        vector hidden = load(row.hidden + j, count);
        write(row.grad_gates, 0, kind == TANH ? grad * (1.0f - hidden * hidden) : hidden > 0.0f ? grad : vector{});
    }
    store(row.grad_hidden + j, direct, count);
}

// Which of the T + 1 states a step begins with and ends in.
struct States {
    int64_t before, after;
};

inline States find_states(const Layer &layer, int64_t step) {
    return layer.is_reversed ? States{step + 1, step} : States{step, step + 1};
}

template <Kind kind>
Row find_row(const Layer &layer, int64_t step, int64_t number, const float *product) {
    constexpr int64_t num_gates = kind == LSTM ? 4 : kind == GRU ? 3 : 1;
    const int64_t U = layer.units, B = layer.rows, gates = (step * B + number) * num_gates * U;
    const States states = find_states(layer, step);
    auto locate = [&](auto *base, int64_t at) { return base ? base + at : base; };
    auto locate_state = [&](float *base, int64_t state) { return locate(base, (state * B + number) * U); };
    Row row{};
    row.units = U;
    row.product = product;
    row.bias = layer.bias;
    row.hidden_before = locate_state(layer.hidden, states.before);
    row.hidden = locate_state(layer.hidden, states.after);
    row.cell_before = locate_state(layer.cells, states.before);
    row.cell = locate_state(layer.cells, kind == GRU ? step : states.after);
    row.gates = layer.gates + gates;
    row.added = layer.input ? layer.bias : row.gates;
    row.grad_output = locate(layer.grad_output, step * layer.step_stride + number * layer.row_stride);
    row.grad_hidden = locate(layer.grad_hidden, number * U);
    row.grad_cell = locate(layer.grad_cell, number * U);
    row.grad_gates = locate(layer.grad_input_gates, gates);
    row.grad_state_gates = locate(layer.grad_state_gates, gates);
    return row;
}

template <Kind kind>
bool run(const Layer &layer, bool is_backward) {
    constexpr int64_t num_gates = kind == LSTM ? 4 : kind == GRU ? 3 : 1;
    const int64_t U = layer.units, B = layer.rows, num_rows = layer.end_row - layer.first_row;
    const int64_t inner = num_gates * U, columns = is_backward ? U : num_gates * U;
    const Memory products = allocate(num_rows * columns);
    if (!products) return false;
    std::memset(products.get(), 0, sizeof(float) * num_rows * columns);
    const Result result{products.get(), columns, columns, false};
    const float *grad_gates = kind == GRU ? layer.grad_state_gates : layer.grad_input_gates;
    for (int64_t turn = 0; turn < layer.steps; turn++) {
        const int64_t step = bool(layer.is_reversed) != is_backward ? layer.steps - 1 - turn : turn;
        if (!is_backward) {
            const float *before = layer.hidden + (find_states(layer, step).before * B + layer.first_row) * U;
            const int64_t at = step * layer.input_step_stride + layer.first_row * layer.input_row_stride;
            Left<false> input{};
            if (layer.input) input = {layer.input + at, layer.input_row_stride, layer.num_inputs};
            multiply<false>({before, U, U}, input, num_rows, layer.packed, result);
        }
        for (int64_t number = 0; number < num_rows; number++) {
            const Row row = find_row<kind>(layer, step, layer.first_row + number, products.get() + number * columns);
            int64_t j = 0;
            for (; j + LANES <= U; j += LANES)
                is_backward ? compute_gradients<kind>(row, j, LANES) : compute_state<kind>(row, j, LANES);
            if (j < U) is_backward ? compute_gradients<kind>(row, j, U - j) : compute_state<kind>(row, j, U - j);
        }
        if (is_backward && (layer.wants_first || turn + 1 < layer.steps)) {
            const float *gates = grad_gates + (step * B + layer.first_row) * inner;
            multiply<false>({gates, inner, inner}, {}, num_rows, layer.packed, result);
        }
    }
    // the first state reaches the loss by the first step's product, too
    for (int64_t number = 0; is_backward && layer.wants_first && number < num_rows; number++)
        for (int64_t j = 0; j < U; j++)
            layer.grad_hidden[(layer.first_row + number) * U + j] += products[number * columns + j];
    return true;
}

bool run_kind(const Layer &layer, bool is_backward) {
    switch (layer.kind) {
        case LSTM: return run<LSTM>(layer, is_backward);
        case GRU: return run<GRU>(layer, is_backward);
        case TANH: return run<TANH>(layer, is_backward);
        default: return run<RELU>(layer, is_backward);
    }
}

// Do `number` parts of a work, and return whether all of them are done. The threads are those of OpenMP, which are
// torch's as well: they wait for their next work in a loop, in which they would keep other threads from the processor.
template <class Work>
bool run_parts(int64_t number, const Work &work) {
    bool is_done = true;
#ifdef _OPENMP
#pragma omp parallel for num_threads(number) schedule(static, 1) reduction(&& : is_done)
#endif
    for (int64_t part = 0; part < number; part++) is_done = work(part) && is_done;
    return is_done;
}

bool run_layer(const Layer *parts, int64_t number, bool is_backward) {
    return run_parts(number, [&](int64_t part) { return run_kind(parts[part], is_backward); });
}

}  // namespace

extern "C" {

// How many numbers `inner` rows take in panels.
int64_t count_packed(int64_t inner, int64_t columns) { return inner * round_up(columns); }

// Put a matrix of `inner` x `columns` into panels. They have `num_rows` rows, and the matrix begins at `first_row`.
void pack(const float *matrix, int64_t inner, int64_t columns, int64_t inner_stride, int64_t column_stride,
          int64_t first_row, int64_t num_rows, float *to) {
    to += first_row * WIDTH;
    for (int64_t start = 0; start < columns; start += WIDTH, matrix += WIDTH * column_stride, to += num_rows * WIDTH)
        for (int64_t k = 0; k < inner; k++)
            pack_row(matrix + k * inner_stride, columns - start, column_stride, to + k * WIDTH);
}

// to = left x packed, by `threads` threads; with `has_bias` the last row of `packed` is added to each row.
void multiply_packed(const float *left, int64_t rows, int64_t inner, const float *packed, bool has_bias,
                     int64_t columns, float *to, int64_t threads) {
    static const float one = 1.0f;
    const Left<false> factor{left, inner, inner}, bias{&one, 0, has_bias};
    const Result result{to, columns, columns, false};
    run_parts(threads, [&](int64_t part) {
        const int64_t first = rows * part / threads, end = rows * (part + 1) / threads;
        multiply(factor.skip(first), bias, end - first, packed, result.skip(first, 0));
        return true;
    });
}

// to = left^T x right, by `threads` threads: [T, B, left_columns], contiguous, and [T, B, right_columns] with these
// strides, whose products of the same row are added up, to [left_columns, right_columns]. Returns whether there was
// memory for it.
bool multiply_transposed(const float *left, int64_t left_columns, const float *right, int64_t steps, int64_t rows,
                         int64_t right_columns, int64_t step_stride, int64_t row_stride, float *to, int64_t threads) {
    const Steps factor{right, steps, rows, right_columns, step_stride, row_stride};
    return run_parts(threads, [&](int64_t part) {
        const int64_t first = left_columns * part / threads, end = left_columns * (part + 1) / threads;
        return multiply_over_steps(left + first, left_columns, end - first, factor, to + first * right_columns);
    });
}

// Compute all steps; `packed` is [U, G U], or with `input` [U + I, G U]. `parts` are some rows of the same layer each,
// which are computed at once. Returns whether there was memory for it.
bool run_forward(const Layer *parts, int64_t number) { return run_layer(parts, number, false); }

// Compute the gradients of all steps; `packed` is [G U, U]. Returns whether there was memory for it.
bool run_backward(const Layer *parts, int64_t number) { return run_layer(parts, number, true); }
}
