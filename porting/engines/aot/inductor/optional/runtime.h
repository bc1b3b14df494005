// What a program needs of torch's runtime for compiled programs: a class to derive from, and the functions by which
// torch finds and runs it. A program of this package has no constants, and one call runs at a time.
#include <torch/csrc/inductor/aoti_runtime/constant_type.h>
#include <torch/csrc/inductor/aoti_runtime/device_utils.h>
#include <torch/csrc/inductor/aoti_runtime/utils.h>

#include <array>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <c10/util/generic_math.h>
#include <torch/csrc/inductor/aoti_runtime/scalar_to_tensor.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>

[[maybe_unused]] inline int64_t align(int64_t num_bytes) { return (num_bytes + 63) & -64; }

namespace torch::aot_inductor {

using ConstantMap = std::unordered_map<std::string, MaybeOwningAtenTensorHandle>;
using ConstantArray = std::vector<ConstantHandle>;

struct AOTInductorModelKernelsBase {};

class AOTInductorModelBase {
 public:
  AOTInductorModelBase(size_t num_inputs, size_t num_outputs, size_t num_constants, const std::string&,
                       std::optional<std::string>, bool = true)
      : inputs_info_(new Info[num_inputs]), outputs_info_(new Info[num_outputs]), num_inputs_(num_inputs),
        num_outputs_(num_outputs) {
    if (num_constants) throw std::runtime_error("a program with constants needs torch's runtime");
  }

  size_t num_inputs() const { return num_inputs_; }
  size_t num_outputs() const { return num_outputs_; }

 protected:
  struct Info {
    const char* name = nullptr;
  };

  void update_constants_map(std::shared_ptr<ConstantMap>) {}
  void update_constants_array(std::shared_ptr<ConstantArray>) {}

  std::unique_ptr<Info[]> inputs_info_, outputs_info_;
  const char *in_spec_ = "", *out_spec_ = "";
  int32_t device_type_ = 0, device_idx_ = -1;

 private:
  size_t num_inputs_, num_outputs_;
};

class AOTInductorModel : public AOTInductorModelBase {
 public:
  AOTInductorModel(std::shared_ptr<ConstantMap>, std::shared_ptr<ConstantArray>, const std::string&,
                   std::optional<std::string>);
  std::unordered_map<std::string, AtenTensorHandle> const_run_impl(DeviceStreamType, AOTIProxyExecutorHandle,
                                                                   bool = false);
  void _const_run_impl(std::vector<AtenTensorHandle>&, DeviceStreamType, AOTIProxyExecutorHandle);
  void run_impl(AtenTensorHandle*, AtenTensorHandle*, DeviceStreamType, AOTIProxyExecutorHandle);

 private:
  std::unique_ptr<AOTInductorModelKernelsBase> kernels_;
};

}  // namespace torch::aot_inductor

namespace porting {

using Model = torch::aot_inductor::AOTInductorModel;

thread_local std::string last_error;

class WithoutGradients {
 public:
  WithoutGradients() { aoti_torch_grad_mode_set_enabled(false); }
  ~WithoutGradients() { aoti_torch_grad_mode_set_enabled(before_); }

 private:
  bool before_ = aoti_torch_grad_mode_is_enabled();
};

template <typename Function>
int32_t report_errors(Function function) {
  try {
    last_error.clear();
    function();
    return 0;
  } catch (const std::exception& error) {
    last_error = error.what();
  } catch (...) {
    last_error = "unknown exception";
  }
  std::cerr << "Error: " << last_error << '\n';
  return 1;
}

inline const Model& find_model(void* container) { return *static_cast<Model*>(container); }

}  // namespace porting

#define PORTING_EXPORT extern "C" __attribute__((__visibility__("default"))) int32_t

PORTING_EXPORT AOTInductorModelContainerCreateWithDevice(void** container, size_t, const char* device, const char*) {
  return porting::report_errors([&] { *container = new porting::Model(nullptr, nullptr, device, std::nullopt); });
}

PORTING_EXPORT AOTInductorModelContainerDelete(void* container) {
  delete static_cast<porting::Model*>(container);
  return 0;
}

PORTING_EXPORT AOTInductorModelContainerRun(void* container, AtenTensorHandle* inputs, size_t num_inputs,
                                            AtenTensorHandle* outputs, size_t num_outputs, void* stream,
                                            AOTIProxyExecutorHandle executor) {
  return porting::report_errors([&] {
    auto& model = *static_cast<porting::Model*>(container);
    if (num_inputs != model.num_inputs() || num_outputs != model.num_outputs())
      throw std::runtime_error("a wrong number of tensors for this program");
    porting::WithoutGradients guard;
    model.run_impl(inputs, outputs, static_cast<torch::aot_inductor::DeviceStreamType>(stream), executor);
  });
}

PORTING_EXPORT AOTInductorModelContainerGetNumInputs(void* container, size_t* number) {
  *number = porting::find_model(container).num_inputs();
  return 0;
}

PORTING_EXPORT AOTInductorModelContainerGetNumOutputs(void* container, size_t* number) {
  *number = porting::find_model(container).num_outputs();
  return 0;
}

PORTING_EXPORT AOTInductorModelContainerGetNumConstants(void*, size_t* number) {
  *number = 0;
  return 0;
}

PORTING_EXPORT AOTInductorModelContainerGetCallSpec(void*, const char** inputs, const char** outputs) {
  *inputs = *outputs = "";
  return 0;
}

PORTING_EXPORT AOTInductorGetLastError(const char** message) {
  *message = porting::last_error.c_str();
  return 0;
}
