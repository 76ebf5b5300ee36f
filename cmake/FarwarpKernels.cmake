# Kernel files and their compilers.
#
#   FARWARP_CUDA, FARWARP_HIP     AUTO (if the compiler is found), ON (an error if it is not found) or OFF
#   FARWARP_LINE_INFO             ON: cubins name source lines, for compute-sanitizer and ncu, and are 3.8 times as large
#   FARWARP_TRACE                 ON: kernels for GPUs have stamps (substrate/trace.h)
#   farwarp_have_cuda, _hip       TRUE if the kernels are compiled for it
#   farwarp_kernels(...)          compiles one kernel file for every target
#
# GPU compilers run as custom commands, because only one code object per file is needed. CMake's CUDA language would add the
# CUDA runtime and a host pass, and its HIP language needs ROCm.

set(FARWARP_CUDA AUTO CACHE STRING "Compile the kernels for sm_90a (nvcc 12 or newer): AUTO, ON or OFF")
set(FARWARP_HIP AUTO CACHE STRING "Compile the kernels for gfx942 and gfx950 (clang++-22 and lld-22): AUTO, ON or OFF")
set_property(CACHE FARWARP_CUDA FARWARP_HIP PROPERTY STRINGS AUTO ON OFF)
option(FARWARP_TRACE "Kernels for GPUs can record what their warps do, for farwarp trace; it costs time" OFF)
option(FARWARP_LINE_INFO "Compile line numbers and PTX text into the kernels for sm_90a" OFF)

set(FARWARP_CODE_OBJECTS ${PROJECT_BINARY_DIR}/code_objects.txt)  # a line for each: name, architecture, file
file(WRITE ${FARWARP_CODE_OBJECTS} "")

set(FARWARP_CUDA_ARCHS sm_90a)
set(FARWARP_HIP_ARCHS gfx942 gfx950)

# Sets farwarp_have_${suffix} from the switch. `why_not` says what is missing, or is empty. `found` describes the compiler.
macro(farwarp_decide switch suffix why_not found)
  set(farwarp_have_${suffix} FALSE)
  if(${switch} STREQUAL "OFF")
    message(STATUS "${switch}: off")
  elseif("${why_not}" STREQUAL "")
    set(farwarp_have_${suffix} TRUE)
    message(STATUS "${switch}: on, ${found}")
  elseif(${switch} STREQUAL "AUTO")
    message(STATUS "${switch}: off, ${why_not}")
  else()
    message(FATAL_ERROR "${switch}=${${switch}}: ${why_not}")
  endif()
endmacro()

find_program(FARWARP_NVCC nvcc HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda PATH_SUFFIXES bin)
set(why_not "")
set(version "")
if(NOT FARWARP_NVCC)
  set(why_not "nvcc not found in PATH, $CUDA_HOME/bin or /usr/local/cuda/bin")
else()
  execute_process(COMMAND ${FARWARP_NVCC} --version OUTPUT_VARIABLE version ERROR_QUIET)
  string(REGEX MATCH "release ([0-9.]+)" version "${version}")
  set(version "${CMAKE_MATCH_1}")
  if(version VERSION_LESS 12.0)
    set(why_not "${FARWARP_NVCC} is version '${version}', C++20 and sm_90a need 12.0")
  endif()
endif()
farwarp_decide(FARWARP_CUDA cuda "${why_not}" "${FARWARP_NVCC} ${version}")

# Other versions of clang are not tried. Version 19 has no gfx950 and crashes on LDS loads. The code of each version must first pass
# tools/check_code_objects.py.
find_program(FARWARP_HIP_CLANG clang++-22)
find_program(FARWARP_OBJDUMP llvm-objdump-22)
find_program(FARWARP_READELF llvm-readelf-22)
set(why_not "")
if(NOT FARWARP_HIP_CLANG)
  set(why_not "clang++-22 not found")
else()
  execute_process(COMMAND ${FARWARP_HIP_CLANG} -print-prog-name=ld.lld
    OUTPUT_VARIABLE lld OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE "${lld}")
    set(why_not "${FARWARP_HIP_CLANG} finds no ld.lld: install lld-22")
  elseif(FARWARP_TESTS AND NOT (FARWARP_OBJDUMP AND FARWARP_READELF))
    set(why_not "the tests of the code objects need llvm-objdump-22 and llvm-readelf-22: install llvm-22")
  endif()
endif()
farwarp_decide(FARWARP_HIP hip "${why_not}" "${FARWARP_HIP_CLANG}")
if(farwarp_have_cuda OR farwarp_have_hip)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)  # compresses code objects
endif()

# Floating-point contraction is off on all targets. Kernels call fused_multiply_add by name, so results of targets agree to the bit.
# Diagnostic 554 says that Global<const T> is never converted to itself, which is intended.
set(FARWARP_CUDA_FLAGS -cubin -x cu -std=c++20 -O3 -fmad=false --expt-relaxed-constexpr -DFARWARP_TARGET_CUDA
  -Werror all-warnings -diag-suppress 554)
if(FARWARP_TRACE)
  list(APPEND FARWARP_CUDA_FLAGS -DFARWARP_TRACE)
endif()
if(FARWARP_LINE_INFO)
  list(APPEND FARWARP_CUDA_FLAGS -lineinfo)
endif()
# --rocm-path: without it clang adds the wrappers of any ROCm package that it finds. -fuse-cuid=none: every build folder gives the
# same object. The two -mllvm options inline all functions, lambdas too, because a call would need a stack in device memory.
set(FARWARP_HIP_FLAGS -x hip --cuda-device-only --no-gpu-bundle-output -nogpulib -nogpuinc --rocm-path=/nonexistent
  -std=c++20 -O3 -mcode-object-version=5 -fuse-cuid=none -ffp-contract=off
  -mllvm -amdgpu-early-inline-all=true -mllvm -amdgpu-function-calls=false
  -DFARWARP_TARGET_HIP -Wall -Wextra -Werror -Wno-undefined-inline)
if(FARWARP_TRACE)
  list(APPEND FARWARP_HIP_FLAGS -DFARWARP_TRACE)
endif()

# farwarp_kernels(name entry.dev.cc [TO target] [MATRIX_UNIT wgmma|mfma] [DEFINES define...] [HIP_OPTIONS option...]):
# compiles one kernel file once per target (with MATRIX_UNIT: per target that has this matrix unit) and links the results into `target`. The default links them
# into everything that links farwarp_objects.
#   emulator  always: one object per personality
#   cuda      a cubin, name.sm_90a.cubin, embedded
#   hip       code objects, name.gfx942.co and name.gfx950.co, embedded
# Embedded objects are found through farwarp/vendor/code_object.h.
function(farwarp_kernels name entry)
  cmake_parse_arguments(PARSE_ARGV 2 ARG "" "TO;MATRIX_UNIT" "DEFINES;HIP_OPTIONS")
  if(NOT ARG_TO)
    set(ARG_TO farwarp_objects)
  endif()

  if(FARWARP_SANITIZE MATCHES thread)  # see substrate/emu/CMakeLists.txt
    set_source_files_properties(${entry} PROPERTIES COMPILE_OPTIONS -fno-sanitize=thread)
  endif()
  set(personalities EMU_SM90 EMU_GFX942)
  if(ARG_MATRIX_UNIT STREQUAL "wgmma")
    set(personalities EMU_SM90)
  elseif(ARG_MATRIX_UNIT STREQUAL "mfma")
    set(personalities EMU_GFX942)
  endif()
  foreach(personality ${personalities})
    string(TOLOWER ${personality} suffix)
    set(object ${name}_${suffix})
    add_library(${object} OBJECT ${entry})
    target_compile_definitions(${object} PRIVATE FARWARP_TARGET_${personality} ${ARG_DEFINES})
    target_include_directories(${object} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    # Unknown pragmas: "#pragma unroll" is for the GPU compilers. No sibling calls: the emulator reports where a thread waits.
    target_compile_options(${object} PRIVATE
      -Wall -Wextra -Wno-unknown-pragmas -ffp-contract=off -fno-optimize-sibling-calls)
    target_link_libraries(${object} PRIVATE farwarp_dependencies)
    farwarp_link_object(${ARG_TO} ${object})
  endforeach()

  list(TRANSFORM ARG_DEFINES PREPEND -D)
  set(FARWARP_EMBEDDED)
  if(farwarp_have_cuda AND NOT ARG_MATRIX_UNIT STREQUAL "mfma")
    foreach(arch ${FARWARP_CUDA_ARCHS})
      set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.${arch}.cubin)
      string(REPLACE sm_ compute_ virtual_arch ${arch})
      farwarp_code_object(${name} ${entry} kCuda ${arch} ${object}
        ${FARWARP_NVCC} ${FARWARP_CUDA_FLAGS} -gencode arch=${virtual_arch},code=${arch} -ccbin ${CMAKE_CXX_COMPILER}
        ${ARG_DEFINES} -MD -MF ${object}.d)
    endforeach()
  endif()
  if(farwarp_have_hip AND NOT ARG_MATRIX_UNIT STREQUAL "wgmma")
    foreach(arch ${FARWARP_HIP_ARCHS})
      set(object ${CMAKE_CURRENT_BINARY_DIR}/${name}.${arch}.co)
      # The clang driver ignores -MD and -MF for a device-only link. These are the equivalent options of clang -cc1.
      farwarp_code_object(${name} ${entry} kHip ${arch} ${object}
        ${FARWARP_HIP_CLANG} ${FARWARP_HIP_FLAGS} ${ARG_HIP_OPTIONS} --offload-arch=${arch} ${ARG_DEFINES}
        -Xclang -dependency-file -Xclang ${object}.d -Xclang -MT -Xclang ${object})
      set_property(GLOBAL APPEND PROPERTY FARWARP_HIP_CODE_OBJECTS ${object})
    endforeach()
  endif()
  if(FARWARP_EMBEDDED)
    add_library(${name}_code_objects OBJECT ${FARWARP_EMBEDDED})
    target_include_directories(${name}_code_objects PRIVATE ${PROJECT_SOURCE_DIR}/src)
    farwarp_link_object(${ARG_TO} ${name}_code_objects)
  endif()
endfunction()

# Links the objects of an object library into `target` by file name, so that the linker cannot drop their static records.
# If `target` is an object library itself, CMake does not pass its object files on, so its consumers list them (INTERFACE).
function(farwarp_link_object target object)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL OBJECT_LIBRARY)
    target_sources(${target} INTERFACE $<TARGET_OBJECTS:${object}>)
  else()
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${object}>)
  endif()
endfunction()

# Compiles `entry` into `object` with the command in ARGN, which also writes the dependencies to `object`.d, and compresses it into
# `object`.z. Appends the source file that embeds the result to FARWARP_EMBEDDED.
function(farwarp_code_object name entry kind arch object)
  cmake_path(ABSOLUTE_PATH entry)
  cmake_path(RELATIVE_PATH entry BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE shown)
  add_custom_command(OUTPUT ${object}
    COMMAND ${ARGN} -I${PROJECT_SOURCE_DIR}/src -o ${object} ${entry}
    DEPENDS ${entry}
    DEPFILE ${object}.d
    COMMENT "Compiling ${shown} for ${arch}"
    VERBATIM)
  add_custom_command(OUTPUT ${object}.z
    COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/cmake/compress.py ${object} ${object}.z
    DEPENDS ${object} ${PROJECT_SOURCE_DIR}/cmake/compress.py
    COMMENT "Compressing ${name} for ${arch}"
    VERBATIM)
  file(APPEND ${FARWARP_CODE_OBJECTS} "${name} ${arch} ${object}\n")
  string(MAKE_C_IDENTIFIER ${name}_${arch} symbol)
  set(embedding ${CMAKE_CURRENT_BINARY_DIR}/${name}.${arch}.cc)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/code_object.cc.in ${embedding} @ONLY)
  set_source_files_properties(${embedding} PROPERTIES OBJECT_DEPENDS ${object}.z)
  set(FARWARP_EMBEDDED ${FARWARP_EMBEDDED} ${embedding} PARENT_SCOPE)
endfunction()

# Adds the target hip_code_objects (all code objects for AMD) and the test that checks them. Runs after all folders have added kernels.
function(farwarp_check_code_objects)
  get_property(objects GLOBAL PROPERTY FARWARP_HIP_CODE_OBJECTS)
  if(NOT objects)
    return()
  endif()
  add_custom_target(hip_code_objects DEPENDS ${objects})
  if(NOT FARWARP_TESTS)
    return()
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME code_objects COMMAND Python3::Interpreter -B ${PROJECT_SOURCE_DIR}/tools/check_code_objects.py
    --objdump ${FARWARP_OBJDUMP} --readelf ${FARWARP_READELF} ${objects})
endfunction()
cmake_language(DEFER CALL farwarp_check_code_objects)
